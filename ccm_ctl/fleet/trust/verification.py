"""Read the stream of events and judge the complete chains of nodes, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from datetime import datetime

from ccm_agent.bus.subjects import parse_event
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.ports import StoredEvent
from ccm_agent.model.records.verdicts import NodeReport, Verdict
from ccm_agent.model.wire import PROTOCOL
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.trust.authenticity import NodeEvents
from ccm_ctl.fleet.trust.authors import Authors, learn_records

ONE_BY_ONE = 10
"""For more than this many nodes, the whole stream is read once, instead of the events of each node."""


async def verify_nodes(
    fleet: Fleet, authors: Authors, nodes: Collection[str], since: datetime | None = None
) -> list[NodeReport]:
    """
    Judge the stored events of nodes, and return one report per node. The memory use does not grow with the number of events.

    Args:
        fleet: The bus.
        authors: The known keys. Certificates in records and events are added.
        nodes: Their names. Events of other nodes are skipped.
        since: Older events are not read, and missing events before this time are not reported.
    """
    await learn_records(fleet, authors, nodes)
    readers = {node: NodeEvents(node, authors) for node in sorted(nodes)}
    if len(readers) <= ONE_BY_ONE:
        for node, reader in readers.items():
            async for event in read_events(fleet, node, since):
                reader.take(event)
    else:
        async for event in fleet.events.scan(f"{PROTOCOL}.>", since=since):
            found = readers.get(find_node(event))
            if found is not None:
                found.take(event)
    return [reader.finish() for reader in readers.values()]


def judge_events(node: str, authors: Authors, events: Collection[StoredEvent]) -> dict[int, Verdict]:
    """Return the verdicts on the stored events of one node, by sequence. All its events must be given, in order."""
    verdicts: dict[int, Verdict] = {}
    sequences = [event.sequence for event in events]
    reader = NodeEvents(node, authors, lambda at, verdict, _: verdicts.update({sequences[at]: verdict}))
    for event in events:
        reader.take(event)
    reader.finish()
    return verdicts


async def read_events(fleet: Fleet, node: str, since: datetime | None = None) -> AsyncIterator[StoredEvent]:
    """Yield all stored events of one node, in the order of the stream."""
    runs = fleet.events.scan(f"{PROTOCOL}.*.*.*.{node}", since=since)
    agent = fleet.events.scan(f"{PROTOCOL}.agent.*.{node}", since=since)
    async for event in _merged(runs, agent):
        if find_node(event) == node:
            yield event


async def _merged(
    one: AsyncIterator[StoredEvent], other: AsyncIterator[StoredEvent]
) -> AsyncIterator[StoredEvent]:
    """Merge two readers by sequence."""
    left, right = await anext(one, None), await anext(other, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left.sequence < right.sequence):
            assert left is not None
            yield left
            left = await anext(one, None)
        else:
            if left is None or left.sequence > right.sequence:
                yield right
            right = await anext(other, None)


def find_node(event: StoredEvent) -> str:
    """Return the node in an event's subject, or "" if it is not the subject of an event."""
    try:
        return parse_event(event.subject).node
    except ProtocolError:
        return ""
