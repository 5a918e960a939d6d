"""Read the events of a run, or of one node's part of it, from the stream."""

from __future__ import annotations

from ccm_agent.bus.subjects import check_node, run_pattern
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.outcome import TransactionEvent
from ccm_ctl.fleet.events.messages import decode_agent_message
from ccm_ctl.fleet.ports import Fleet


async def read_session_events(fleet: Fleet, run: str, node: str) -> list[TransactionEvent]:
    """
    Return the events about resources that a node reported in a run, in the order of their numbers and without duplicates.
    Signatures are not checked.

    Raises:
        UsageError: This is not a valid node name.
        ProtocolError: This is not a valid run ID.
    """
    found: dict[int, TransactionEvent] = {}
    for message in await fleet.events.read(run_pattern(run, check_node(node))):
        try:
            said = decode_agent_message(message).said
        except ProtocolError:
            continue
        if isinstance(said, TransactionEvent):
            found.setdefault(said.number, said)
    return [found[number] for number in sorted(found)]


async def read_run_events(
    fleet: Fleet, run: str, most: int
) -> tuple[list[tuple[str, TransactionEvent]], bool]:
    """
    Return the events about resources of all nodes of a run, without duplicates, and whether there are more than `most`.

    Signatures are not checked.

    Raises:
        ProtocolError: This is not a valid run ID.
    """
    found: dict[tuple[str, int], TransactionEvent] = {}
    async for message in fleet.events.scan(run_pattern(run)):
        try:
            heard = decode_agent_message(message)
        except ProtocolError:
            continue
        if isinstance(heard.said, TransactionEvent):
            if len(found) >= most:
                return _sorted(found), True
            found.setdefault((heard.node, heard.said.number), heard.said)
    return _sorted(found), False


def _sorted(found: dict[tuple[str, int], TransactionEvent]) -> list[tuple[str, TransactionEvent]]:
    return [(node, found[node, number]) for node, number in sorted(found)]
