"""
The nodes of a fleet, as described by their entries on the broker.

Nodes write their own records to CCM_NODES. A node whose presence key has expired is offline, but remains in the inventory until
it is removed. Assigned facts apply immediately, even if the node has not received them yet.
"""

from __future__ import annotations

import functools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from ccm_agent.bus.subjects import event_subject, is_node
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.wire import AGENT_DUPLICATE, AgentEvent, FactsRecord, NodeRecord, Presence
from ccm_ctl.fleet.data.documents import decode_document
from ccm_ctl.fleet.nodes.node_clock import clock_off_s
from ccm_ctl.fleet.nodes.nodes import ASSIGNED, DuplicateIdentity, Inventory, Node
from ccm_ctl.fleet.nodes.stored_nodes import add_names, read_stored
from ccm_ctl.fleet.trust.node_state import LeftOutReasons, make_node_verifier, verify_nodes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from ccm_ctl.fleet.nodes.stored_nodes import StoredNodes
    from ccm_ctl.fleet.ports import Fleet


FACTS_AT_ONCE = 200
"""The maximum number of keys per request. The number is limited because replies are large."""

AT_ONCE = 250
"""The number of nodes whose entries are decoded together. The cache file has as many in each part."""

NAMED_LIMIT = 1_000
"""With more nodes than this, reading all entries is faster than requesting each node by name."""

_EMPTY: dict[str, Any] = {
    "assignments": {},
    "refresh_pending": [],
    "locks": [],
    "incomplete_undos": [],
    "facts": {},
}
"""Empty values of records. They are never changed."""


async def read_inventory(
    fleet: Fleet,
    *,
    keeps_entries: bool = True,
    on_part: Callable[[Inventory], Awaitable[object]] | None = None,
) -> Inventory:
    """
    Read every node that has connected or has assigned facts, without its gathered facts.

    Args:
        fleet: The fleet.
        keeps_entries: Whether to keep the entries of records, which are needed only to verify them.
        on_part: Called with each part of the nodes, before the next is read.
    """
    nodes: dict[str, Node] = {}
    async with node_reader(fleet) as reader:
        for begin in range(0, len(reader.names), AT_ONCE):
            names = reader.names[begin : begin + AT_ONCE]
            part = await reader.read(names, is_last=True, keeps_entries=keeps_entries)
            if on_part is not None:
                await on_part(part)
            nodes |= part.nodes
    return Inventory(dict(sorted(nodes.items())))


class NodeReader:
    """
    Reads the nodes of `read_inventory` in parts, so that a long list does not need memory for all of them.

    Attributes:
        names: Their names, in natural order.
    """

    def __init__(self, stored: StoredNodes, assigned: Iterable[KeyValueEntry]) -> None:
        """Store the entries of nodes and the assigned facts."""
        self._stored = stored
        self._assigned = {entry.key: entry for entry in assigned}
        missing = self._assigned.keys() - set(stored.names)
        expected: dict[str, Node] = {}
        for name in missing:
            _take_assigned(expected, self._assigned[name])
        self.names = add_names(list(stored.names), expected)

    async def read(
        self, names: Sequence[str], *, is_last: bool = False, keeps_entries: bool = True
    ) -> Inventory:
        """
        Read some of the nodes, in the order of the names. `is_last`: they are not read again. `keeps_entries`: see
        `read_inventory`.

        Raises:
            BusError: The broker does not answer.
        """
        nodes: dict[str, Node] = {}
        for entry in await self._stored.read(names, is_last=is_last):
            _take_in(nodes, entry, keeps_entry=keeps_entries)
        for name in names:
            if name in self._assigned:
                _take_assigned(nodes, self._assigned[name])
        return Inventory({name: nodes[name] for name in names if name in nodes})


@asynccontextmanager
async def node_reader(fleet: Fleet) -> AsyncIterator[NodeReader]:
    """
    Open a reader for all nodes, which reads them in parts.

    Raises:
        BusError: The broker does not answer.
    """
    with await (fleet.all_nodes or functools.partial(read_stored, fleet.nodes))() as stored:
        yield NodeReader(stored, await fleet.facts.matching([">"]))


async def read_nodes(fleet: Fleet, names: Iterable[str]) -> Inventory:
    """Read only these nodes, as in `read_inventory`. Nodes that do not exist are left out."""
    wanted = sorted({name for name in names if is_node(name)})
    if len(wanted) > NAMED_LIMIT:
        known = (await read_inventory(fleet)).nodes
        return Inventory({name: known[name] for name in wanted if name in known})
    nodes: dict[str, Node] = {}
    for begin in range(0, len(wanted), FACTS_AT_ONCE):
        some = wanted[begin : begin + FACTS_AT_ONCE]
        keys = [f"{kind}.{name}" for name in some for kind in ("node", "presence")]
        for entry in await fleet.nodes.matching(keys):
            _take_in(nodes, entry)
        for entry in await fleet.facts.matching(some):
            _take_assigned(nodes, entry)
    return Inventory(dict(sorted(nodes.items())))


async def require_nodes(fleet: Fleet, names: Sequence[str]) -> Inventory:
    """
    Read these nodes, as in `read_nodes`. All of them must exist.

    Raises:
        NoTargetError: A node does not exist. The error names the most similar node.
    """
    found = await read_nodes(fleet, names)
    if not set(names) <= set(found.nodes):
        found = await read_inventory(fleet)
        for name in names:
            found.need(name)
    return found


async def read_verified(fleet: Fleet, names: Iterable[str]) -> Inventory:
    """Read these nodes, as in `read_nodes`. Unverified data are left out, and the operator is warned."""
    inventory, left_out = await read_nodes(fleet, names), LeftOutReasons()
    verifier = await make_node_verifier(fleet)
    if verifier is not None:
        await verify_nodes(verifier, inventory, inventory.nodes, left_out)
        left_out.warn(fleet)
    return inventory


async def read_facts(fleet: Fleet, inventory: Inventory, names: Iterable[str]) -> None:
    """
    Read `gathered` for these nodes only, because facts are large.

    Other entries in a reply are ignored, because they could replace entries that were already verified.
    """
    wanted = [f"facts.{name}" for name in names]
    for begin in range(0, len(wanted), FACTS_AT_ONCE):
        some = wanted[begin : begin + FACTS_AT_ONCE]
        requested = set(some)
        for entry in await fleet.nodes.matching(some):
            if entry.key in requested:
                _take_in(inventory.nodes, entry)


async def read_verified_facts(
    fleet: Fleet, inventory: Inventory, names: Iterable[str]
) -> AsyncIterator[Node]:
    """
    Yield these nodes with `gathered`. Unverified data are left out, and the operator is warned at the end.

    FACTS_AT_ONCE nodes are read together. The caller can clear `gathered` of a node after use to save memory.
    """
    verifier, left_out, wanted = await make_node_verifier(fleet), LeftOutReasons(), list(names)
    for begin in range(0, len(wanted), FACTS_AT_ONCE):
        some = wanted[begin : begin + FACTS_AT_ONCE]
        await read_facts(fleet, inventory, [name for name in some if not inventory.nodes[name].gathered])
        if verifier is not None:
            await verify_nodes(verifier, inventory, some, left_out)
        for name in some:
            yield inventory.nodes[name]
    left_out.warn(fleet)


async def read_twins(fleet: Fleet, node: str) -> list[DuplicateIdentity]:
    """Return the two agents that use the identity of a node, according to the last report of the duplicate."""
    found: dict[DuplicateIdentity, bool] = {}
    for message in await fleet.events.read(event_subject(AGENT_DUPLICATE, node)):
        try:
            details = decode_foreign(message.body, AgentEvent).details
        except msgspec.MsgspecError:
            continue
        twin = DuplicateIdentity(
            machine=str(details.get("machine", "")), started=str(details.get("started", ""))
        )
        found.pop(twin, None)
        found[twin] = bool(details.get("duplicate"))
    return [twin for twin, is_duplicate in found.items() if is_duplicate][-2:]


def _take_in(nodes: dict[str, Node], entry: KeyValueEntry, *, keeps_entry: bool = True) -> None:
    """Decode a record. An unreadable record is skipped, so that one broken node does not hide the others."""
    kind, _, name = entry.key.partition(".")
    node = nodes.get(name)
    if node is None:
        if not is_node(name):
            return
        node = nodes[name] = Node(name=name)
    node.copied_from = entry.copied_from
    if keeps_entry:
        node.entries = {**node.entries, kind: entry}
    try:
        if kind == "node":
            node.record, node.written = _read_record(node.name, entry.value), entry.created
        elif kind == "presence":
            node.presence = decode_foreign(entry.value, Presence)
            if node.presence.node == node.name:
                node.presence.node = node.name  # one string in memory
            node.heard, node.clock_off_s = entry.created, clock_off_s(node.presence, entry)
        elif kind == "facts":
            node.gathered = decode_foreign(entry.value, FactsRecord).facts
    except msgspec.MsgspecError:
        return


def _read_record(name: str, value: bytes) -> NodeRecord:
    """Return a record. Its name and empty lists are shared, because they would need a third of its memory."""
    record = decode_foreign(value, NodeRecord)
    if record.node == name:
        record.node = name
    for field, empty in _EMPTY.items():
        if not getattr(record, field):
            setattr(record, field, empty)
    return record


def _take_assigned(nodes: dict[str, Node], entry: KeyValueEntry) -> None:
    """Decode assigned facts. Empty facts are ignored, so a node that has only those is not in the inventory."""
    document = decode_document(entry)
    if is_node(entry.key) and isinstance(document.body, dict) and document.body:
        node = nodes.setdefault(entry.key, Node(name=entry.key))
        node.assigned, node.entries = document.body, {**node.entries, ASSIGNED: entry}
