"""
Remove nodes that joined with a token of `--ephemeral` and have been away for too long.

A node is away in a scan if its presence is missing. The node signs the presence, and the broker lets it expire. Only time that
this process has observed is counted: each scan adds the time since the previous scan, but at most two intervals. Therefore a
changed clock, a stopped process or a broker outage cannot remove a node. The count restarts when the process restarts.

If all nodes lose the connection to the broker, all of them seem to be away. Therefore no time is counted for a scan that finds no
present node in the fleet, and one scan removes at most a tenth of these nodes. Nodes of a site that is cut off are not away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from ccm_agent.model.errors import CcmError
from ccm_ctl.fleet.keys.join_records import BriefNode, JoinRecords
from ccm_ctl.fleet.keys.leaving import leave_fleet
from ccm_ctl.fleet.nodes.inventory import read_inventory, read_nodes
from ccm_ctl.fleet.nodes.nodes import Inventory
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.trust.node_state import LeftOutReasons, make_node_verifier, verify_nodes

log = logging.getLogger(__name__)

SCAN_S = 60.0
"""Seconds between two scans."""

SHARE = 10
"""One scan removes at most one in this many of the nodes."""


class BriefNodeWatch:
    """
    Removes nodes that were away for too long.

    Args:
        fleet: The bus, with the credentials of an operator with `--join`.
        on_left: Called with each removed node.
    """

    def __init__(self, fleet: Fleet, on_left: Callable[[BriefNode], None]) -> None:
        self._fleet = fleet
        self._on_left = on_left
        self._away_s: dict[str, float] = {}
        self._scanned: float | None = None

    async def run(self) -> None:
        """Scan until cancelled."""
        while True:
            try:
                await self.scan()
            except CcmError as err:
                log.warning("offline nodes were not removed", extra={"reason": str(err)})
            await self._fleet.clock.sleep(SCAN_S)

    async def scan(self) -> None:
        """
        Scan once, and remove the nodes that were away for too long.

        Raises:
            CcmError: The broker cannot be reached, or the operator lacks a right. No further nodes are removed.
        """
        began, before = self._fleet.clock.monotonic(), self._scanned
        # no time is counted for a scan that fails or finds no node, or for the time until the next scan
        self._scanned = None
        records = JoinRecords(self._fleet)
        nodes = await records.brief_nodes()
        inventory = await read_nodes(self._fleet, [node.name for node in nodes])
        unknown = await self._cut_off(inventory)
        present = await self._verified(inventory)
        if nodes and not present:  # is any other node of the fleet present?
            present = await self._verified(await read_inventory(self._fleet))
        if present:
            self._scanned = began
        passed_s = min(began - before, 2 * SCAN_S) if before is not None and present else 0.0
        away = [node.key for node in nodes if node.name not in present and node.name not in unknown]
        self._away_s = {key: self._away_s[key] + passed_s if key in self._away_s else 0.0 for key in away}
        due = [node for node in nodes if self._away_s.get(node.key, 0.0) >= node.ephemeral_s]
        due.sort(key=lambda node: self._away_s[node.key], reverse=True)
        for node in due[: max(1, len(nodes) // SHARE)]:
            await leave_fleet(self._fleet, records, node.name, node.key)
            self._on_left(node)

    async def _cut_off(self, inventory: Inventory) -> Collection[str]:
        """Return those of the nodes whose site is cut off. Their presence expires here, although they may be well."""
        copied = {name: node.copied_from for name, node in inventory.nodes.items() if node.copied_from}
        if self._fleet.sites is None or not copied:
            return ()
        cut = {one.index for one in await self._fleet.sites.read() if one.is_cut}
        return [name for name, source in copied.items() if source in cut]

    async def _verified(self, inventory: Inventory) -> set[str]:
        """Return the names of the nodes whose presence is verified."""
        verifier = await make_node_verifier(self._fleet)
        if verifier is not None:
            await verify_nodes(verifier, inventory, inventory.nodes, LeftOutReasons())
        return {name for name, node in inventory.nodes.items() if node.is_present}
