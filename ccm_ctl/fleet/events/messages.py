"""Decode messages of agents. The subject contains node and run, and the body the content."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ccm_agent.bus.subjects import parse_event
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.outcome import (
    SESSION_START,
    SESSION_SUMMARY,
    TRANSACTION_EVENT,
    SessionStart,
    SessionSummary,
    TransactionEvent,
)
from ccm_agent.model.ports import StoredEvent
from ccm_agent.model.wire import PROTOCOL, SESSION_ANSWER, SESSION_PROGRESS, AgentEvent, Answer, Progress

Payload = SessionStart | TransactionEvent | SessionSummary | Answer | Progress | AgentEvent

_KINDS: dict[str, type[Payload]] = {
    SESSION_START: SessionStart,
    TRANSACTION_EVENT: TransactionEvent,
    SESSION_SUMMARY: SessionSummary,
    SESSION_ANSWER: Answer,
    SESSION_PROGRESS: Progress,
}


class AgentMessage(Struct, frozen=True, kw_only=True):
    """One message of an agent: its node, its run ("" for the agent itself), and its content."""

    node: str
    run: str
    protocol: str
    said: Payload


def decode_agent_message(message: StoredEvent) -> AgentMessage:
    """
    Decode a message of an agent.

    Raises:
        ProtocolError: Its subject is not one of ours, its kind is unknown, or its body does not match the subject.
    """
    address = parse_event(message.subject)
    kind = _KINDS.get(address.protocol)
    if kind is None and address.protocol.startswith(f"{PROTOCOL}.agent."):
        kind = AgentEvent
    if kind is None:
        raise ProtocolError(f"{message.subject}: this version does not support the event {address.protocol}")
    try:
        said = decode_foreign(message.body, kind)
    except msgspec.MsgspecError as err:
        raise ProtocolError(f"{message.subject}: not an event of its kind: {err}") from err
    if said.protocol != address.protocol:
        raise ProtocolError(f"{message.subject}: the body has the protocol {said.protocol!r}")
    return AgentMessage(node=address.node, run=address.run, protocol=address.protocol, said=said)
