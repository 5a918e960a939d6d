"""One node's part of a run, as the stream holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccm_agent.bus.subjects import check_node, run_pattern
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.outcome import TransactionEvent
from ccm_ctl.fleet.messages import decode_agent_message

if TYPE_CHECKING:
    from ccm_ctl.fleet.ports import Fleet


async def read_session_events(fleet: Fleet, run: str, node: str) -> list[TransactionEvent]:
    """
    The events about resources that a node reported in a run, by their numbers, each once. Signatures are not checked.

    Raises:
        UsageError: Not the name of a node.
        ProtocolError: Not the id of a run.
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
