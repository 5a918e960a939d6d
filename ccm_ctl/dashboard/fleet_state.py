"""The fleet in the form for pages. It is read repeatedly while pages are open, and each page receives the changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import BusError, BusUnavailableError, NoTargetError
from ccm_agent.model.records.rollout_records import RolloutState
from ccm_ctl.dashboard.attention_lines import find_attention
from ccm_ctl.fleet.assignments.convergence import NodeStanding
from ccm_ctl.fleet.assignments.followed_data import FollowedData
from ccm_ctl.fleet.data.fact_edits import flat_facts
from ccm_ctl.fleet.nodes.attention import read_open_rollouts
from ccm_ctl.fleet.nodes.discovery import TargetSpec
from ccm_ctl.fleet.nodes.node_condition import SILENT, NodeCondition
from ccm_ctl.fleet.nodes.nodes import Node
from ccm_ctl.fleet.nodes.overview import FleetOverview, choose_nodes, read_overview
from ccm_ctl.fleet.nodes.silent_nodes import SilentNodes
from ccm_ctl.fleet.ports import Fleet

log = logging.getLogger(__name__)

AFTER_EVENTS_S = 1.0
"""Seconds between an event and the next reading of the fleet. The broker does not notify when a node has written its record."""

QUIET_S = 5.0
"""Seconds between two readings if there are no events. Nodes can appear and disappear without an event."""

SHARE = 6
"""At most 1/SHARE of the time is spent on reading, so a large fleet is read less often."""

FACTS_KEPT_S = 60.0
"""Facts that a filter uses are not read again within this many seconds."""

FIRST_READ_S = 15.0
"""The maximum time, in seconds, that a page waits for the first reading of the fleet."""

AT_ONCE = 250
"""The number of rows that are created before other requests are served."""


class Row(Struct, frozen=True):
    """A node's encoded row, and the version of the fleet in which it last changed."""

    version: int
    encoded: bytes


class FleetState:
    """
    The rows of all nodes by name, each with the version in which it last changed.

    Attributes:
        version: The version of the newest change.
        problem: The reason why the fleet could not be read. "": the last reading was successful.
        silent: Finds nodes that lose their connection.
    """

    def __init__(self, fleet: Fleet, on_change: Callable[[], None]) -> None:
        # increases across restarts of the dashboard, so pages never confuse old and new versions
        self._first = self.version = int(fleet.clock.now().timestamp() * 1000)
        self.problem = ""
        self.silent = SilentNodes(fleet, self.look_soon)
        self._fleet = fleet
        self._on_change = on_change
        self._data = FollowedData(fleet.data)
        self._overview: FleetOverview | None = None
        self._rows: dict[str, Row] = {}
        self._gone: dict[str, int] = {}
        self._summary = self._attention = b""
        self._facts: dict[str, dict[str, Any]] = {}
        self._facts_at = float("-inf")
        self._wanted = asyncio.Event()
        self._soon = asyncio.Event()
        self._ready = asyncio.Event()

    @property
    def read_at(self) -> datetime | None:
        """When the fleet was last read, or None before the first reading."""
        return self._overview.time if self._overview is not None else None

    async def run(self, is_watched: Callable[[], bool]) -> None:
        """Read the fleet until cancelled, while pages are open."""
        loop = asyncio.get_running_loop()
        while True:
            if not is_watched():
                await self._wanted.wait()
            self._wanted.clear()
            began = loop.time()
            await self.refresh()
            took = loop.time() - began
            await asyncio.sleep(max(AFTER_EVENTS_S, took * SHARE))
            await self._pause(QUIET_S - AFTER_EVENTS_S)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._soon.wait()
        except TimeoutError:
            pass
        self._soon.clear()

    def look_soon(self) -> None:
        """Read the fleet soon. Called when nodes have published events or the broker is available again."""
        self._soon.set()

    async def refresh(self) -> None:
        """Read the fleet now. If the broker is unavailable, the current data are kept."""
        try:
            overview = await read_overview(self._fleet, self._data, self.silent.answer_of)
            rollouts = await read_open_rollouts(self._fleet)
        except BusError as err:
            self.problem = err.message
            return
        self.problem = ""
        await self._take(overview, rollouts)
        self._ready.set()

    async def current(self) -> FleetOverview:
        """
        Return the last reading of the fleet. Before the first reading, wait until the broker replies.

        Raises:
            BusUnavailableError: The fleet has not been read yet, and the broker does not reply.
        """
        self._wanted.set()
        try:
            async with asyncio.timeout(FIRST_READ_S):
                await self._ready.wait()
        except TimeoutError as err:
            raise BusUnavailableError(self.problem or "the broker has not answered yet") from err
        assert self._overview is not None
        return self._overview

    async def changes(self, since: int, spec: TargetSpec) -> dict[str, Any]:
        """
        Return the changes after a version for the selected nodes.

        Args:
            since: The page's version. 0: the page has no data. A version from an earlier start of the dashboard is treated as 0.
            spec: The nodes that the page shows. Empty: all nodes.

        Raises:
            SelectorError: A selector cannot be parsed.
        """
        overview = await self.current()
        problem, meant = "", set(overview.inventory.nodes)
        if not spec.is_empty:
            try:
                meant = await self._choose(overview, spec)
            except NoTargetError as err:
                problem, meant = err.message, set()
        since = since if self._first < since <= self.version else 0
        changed = {name: row for name, row in self._rows.items() if row.version > since}
        gone = [name for name in changed if name not in meant] if since else []
        gone += [name for name, version in self._gone.items() if version > since]
        return {
            "version": self.version,
            "since": since,
            "time": overview.time,
            "rows": [msgspec.Raw(row.encoded) for name, row in changed.items() if name in meant],
            "gone": gone,
            "assignments": msgspec.Raw(self._summary),
            "attention": msgspec.Raw(self._attention),
            "total": len(overview.inventory.nodes),
            "matching": len(meant),
            "problem": problem,
            "broker_problem": self.problem,
        }

    async def _choose(self, overview: FleetOverview, spec: TargetSpec) -> set[str]:
        """Return the nodes that match a filter. The required facts are cached for FACTS_KEPT_S."""
        now = asyncio.get_running_loop().time()
        if now - self._facts_at > FACTS_KEPT_S:
            self._facts, self._facts_at = {}, now
        for name, node in overview.inventory.nodes.items():
            if not node.gathered:
                node.gathered = self._facts.get(name, {})
        found = await choose_nodes(self._fleet, overview, spec)
        self._facts = {
            name: node.gathered for name, node in overview.inventory.nodes.items() if node.gathered
        }
        return set(found)

    async def _take(self, overview: FleetOverview, rollouts: list[RolloutState]) -> None:
        version, rows = self.version + 1, dict[str, Row]()
        for place, (name, node) in enumerate(overview.inventory.nodes.items()):
            encoded = msgspec.json.encode(row_of(node, overview.standings[name], overview.conditions[name]))
            before = self._rows.get(name)
            rows[name] = before if before is not None and before.encoded == encoded else Row(version, encoded)
            if place % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        removed = [name for name in self._rows if name not in rows]
        summary = msgspec.json.encode(assignments_of(overview))
        attention = msgspec.json.encode(find_attention(overview, rollouts, overview.time))
        is_new = self._overview is None or bool(removed)
        is_new |= (summary, attention) != (self._summary, self._attention)
        is_new |= any(row.version == version for row in rows.values())
        self._gone = {name: at for name, at in self._gone.items() if name not in rows}
        self._gone |= dict.fromkeys(removed, version)
        self._overview, self._rows = overview, rows
        self._summary, self._attention = summary, attention
        if is_new:
            self.version = version
        self._on_change()  # pages show when the fleet was last read, even if nothing has changed


def row_of(node: Node, standings: dict[str, NodeStanding], condition: NodeCondition) -> dict[str, Any]:
    """Return a node's row for the page of the fleet."""
    record = node.record
    row: dict[str, Any] = {
        "node": node.name,
        "state": node.state,
        "status": condition.state,
        "facts": node.routed | dict(flat_facts(node.assigned)),
        "standings": {name: cell_of(one) for name, one in standings.items()},
    }
    if record is not None:
        row |= {
            "version": record.version,
            "last_run": record.last_run,
            "last_state": record.last_state,
            "last_time": record.last_time,
            "conflict": record.conflict or node.wrong_clock,
            "unsigned": not record.signatures,
        }
        if record.disabled is not None:
            row["disabled"] = record.disabled.sentence
    if node.presence is not None and node.presence.run:
        row["run"] = node.presence.run
    if condition.detail:
        row["detail"] = condition.detail
    is_away = condition.is_late or condition.state == SILENT or not node.is_present
    if condition.heard is not None and is_away:
        # only for these nodes, because each heartbeat of other nodes would change the row
        row["heard"] = condition.heard
    if condition.is_late:
        row["late"] = True
    if node.unverified:
        row["unverified"] = node.unverified_note
    return row


def cell_of(one: NodeStanding) -> dict[str, Any]:
    """Return a cell of the heat map."""
    cell: dict[str, Any] = {"state": one.state, "since": one.since, "run": one.run}
    if one.reason:
        cell["reason"] = one.reason
    if one.away is not None:
        cell["away"] = True
    if one.older_data or (one.revision and one.revision != one.wanted.revision):
        cell["stale"] = True
    if one.wanted.assignment.mode == "plan":
        cell["plan"] = True
    return cell


def assignments_of(overview: FleetOverview) -> list[dict[str, Any]]:
    """Return the assignments, sorted by name, with the number of nodes per state. They are the columns of the heat map."""
    found: dict[str, dict[str, int]] = {one.name: {} for one in overview.assignments.standing}
    for standings in overview.standings.values():
        for name, one in standings.items():
            counts = found.setdefault(name, {})
            counts[one.state] = counts.get(one.state, 0) + 1
    return [{"name": name, "counts": counts} for name, counts in sorted(found.items())]
