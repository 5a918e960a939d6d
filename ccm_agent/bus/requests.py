"""
Requests: published by the controller, received by agents on their scopes.

A broker checks the subject of a message, but not its reply subject. A user with permission for any direct get can therefore
have the reply sent to the subject of a request. Such a copy has the header `Nats-Stream`, which a program's own message never
has, so it is refused. The only exception is a due request that the stream of schedules republishes. It must be on the subject
for which it was due.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.bus.connection.headers import was_stored
from ccm_agent.bus.connection.messages import SENT
from ccm_agent.bus.schedule_index import own_subjects, read_index
from ccm_agent.bus.streams import parse_sequence, parse_time, read_last
from ccm_agent.bus.subjects import (
    DUE_PREFIX,
    SCHEDULE_PREFIX,
    due_subject,
    parse_request,
    parse_scheduled,
    request_pattern,
    request_subject,
)
from ccm_agent.model.errors import BusDeniedError, ProtocolError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.limited_log import LimitedLog
from ccm_agent.model.ports import IncomingRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.connection.messages import Message
    from ccm_agent.bus.connection.subscription import Subscription
    from ccm_agent.bus.signatures.signatory import Signatory
    from ccm_agent.bus.signatures.verified import Base
    from ccm_agent.bus.streams import Stored

log = logging.getLogger(__name__)

SCHEDULES_STREAM = "CCM_SCHEDULES"

_SCHEDULER = "Nats-Scheduler"
"""Header of a due request: the subject of its stored schedule."""


class _Envelope(Struct, frozen=True):
    """The fields that are in every request body."""

    protocol: str


def validate_request(subject: str, body: bytes, headers: Mapping[str, str]) -> IncomingRequest:
    """
    Decode a message as a request, and check it against the rules of the protocol.

    Raises:
        ProtocolError: The message is a copy, its body and subject have different protocols, or it is not a request.
    """
    protocol, scope, schedule = parse_scheduled(subject)
    lowered = {name.lower(): value for name, value in headers.items()}
    if "status" in lowered:
        raise ProtocolError(f"{subject}: not a request but a reply of the broker")
    scheduled = was_stored(headers)
    if scheduled and not _is_due(subject, lowered):
        stream = lowered.get("nats-stream", "a stream")
        raise ProtocolError(f"{subject}: refused: a copy of a message in {stream} was sent here")
    if not scheduled and schedule:
        raise ProtocolError(f"{subject}: refused: only schedules may send requests there")
    if not scheduled and SENT.lower() not in lowered:
        raise ProtocolError(
            f"{subject}: refused: not a request but a reply of the broker that was redirected here"
        )
    if _protocol_of(subject, body) != protocol:
        raise ProtocolError(f"{subject}: refused: the protocols of body and subject differ")
    return IncomingRequest(
        subject=subject, protocol=protocol, scope=scope, body=body, headers=headers, scheduled=scheduled
    )


def _is_due(subject: str, lowered: Mapping[str, str]) -> bool:
    """
    Whether the broker's scheduler created this message for the subject. A repeated header is treated as absent; see
    `connection.headers`.

    `Nats-Scheduler` names the schedule. The broker stores this header only in the stream of schedules, so a copy does not have
    it.
    """
    protocol, scope, token = parse_scheduled(subject)
    due = due_subject(request_subject(protocol, scope))
    stored, _, name = lowered.get("nats-scheduler", "").rpartition(".")
    return bool(
        lowered.get("nats-stream") == SCHEDULES_STREAM
        and lowered.get("nats-subject") == due_subject(subject)
        and stored == f"{SCHEDULE_PREFIX}.{due.removeprefix(f'{DUE_PREFIX}.')}"
        and name
        and token in ("", name)
        and _has_place(lowered)
    )


def _has_place(lowered: Mapping[str, str]) -> bool:
    """Whether the headers have a valid position and time. A sender can write anything there, and later readers rely on them."""
    try:
        return bool(
            parse_sequence(lowered.get("nats-sequence", ""))
            and parse_time(lowered.get("nats-time-stamp", ""))
        )
    except ValueError:
        return False


def _protocol_of(subject: str, body: bytes) -> str:
    try:
        return decode_foreign(body, _Envelope).protocol
    except msgspec.MsgspecError as err:
        raise ProtocolError(f"{subject}: the body is not a message of the protocol: {err}") from err


class NatsRequests:
    """The `Requests` port on a broker, and its counterpart for sending requests of operators."""

    def __init__(self, connection: Connection, signatory: Signatory | None = None) -> None:
        """
        Create the port for a connection.

        Args:
            connection: The connection to the broker.
            signatory: Signs requests; None: they are not signed.
        """
        self._connection = connection
        self._signatory = signatory
        self._scopes: dict[str, Subscription] = {}
        self._on_request: Callable[[IncomingRequest], None] | None = None
        self._on_refused: Callable[[str, ProtocolError], None] | None = None
        self._limited = LimitedLog(log)

    async def publish(
        self, subject: str, body: bytes, headers: Mapping[str, str] | None = None, *, base: Sequence[Base]
    ) -> None:
        """
        Sign and send a request. `base` lists the bases of its content, for the signature.

        Raises:
            BusUnavailableError: The broker is unreachable.
            BusDeniedError: The broker refuses it.
        """
        parse_request(subject)
        signature = self._signatory.request(subject, body, base) if self._signatory else {}
        await self._connection.publish(
            subject, body, {SENT: "1", **signature, **(headers or {})}, confirm=True
        )

    async def subscribe(
        self,
        scopes: Sequence[str],
        on_request: Callable[[IncomingRequest], None],
        on_refused: Callable[[str, ProtocolError], None] | None = None,
    ) -> None:
        """See `Requests.subscribe`."""
        self._on_request, self._on_refused = on_request, on_refused
        wanted = {scope: request_pattern(scope) for scope in scopes}
        new = [scope for scope in wanted if scope not in self._scopes]
        denied = await self._add(new, wanted)
        old = [scope for scope in self._scopes if scope not in wanted]
        await self._connection.unsubscribe([self._scopes.pop(scope) for scope in old])
        if denied is not None:
            raise denied

    async def last_due(self, subject: str) -> IncomingRequest | None:
        """See `Requests.last_due`."""
        stored = await read_last(self._connection, SCHEDULES_STREAM, due_subject(subject))
        if stored is None or not stored.body or await self._is_superseded(stored):
            return None
        # the reply has the same headers as the delivery, so the derived run ID is the same
        return validate_request(subject, stored.body, stored.headers)

    async def own_subjects(self, scopes: Collection[str]) -> list[str]:
        """See `Requests.own_subjects`."""
        index, _ = await read_index(self._connection, SCHEDULES_STREAM)
        return own_subjects(index.schedules, scopes)

    async def _is_superseded(self, due: Stored) -> bool:
        """
        Whether the schedule of this request has been removed or replaced since. A one-time schedule is removed after it was due.
        """
        schedule = due.headers.get(_SCHEDULER, "")
        if not schedule.startswith(f"{SCHEDULE_PREFIX}."):
            return False
        try:
            now = await read_last(self._connection, SCHEDULES_STREAM, schedule)
        except BusDeniedError:
            return False  # older credentials of nodes do not allow this request
        return now is not None and now.body != due.body

    async def _add(self, new: Sequence[str], wanted: Mapping[str, str]) -> BusDeniedError | None:
        """Subscribe to all subjects together; if the broker refuses one, subscribe to each separately."""
        try:
            made = await self._connection.subscribe([wanted[scope] for scope in new], self._receive)
            self._scopes.update(zip(new, made, strict=True))
            return None
        except BusDeniedError as err:
            if len(new) == 1:
                return err
        denied = None
        for scope in new:
            denied = await self._add([scope], wanted) or denied
        return denied

    def _receive(self, message: Message) -> None:
        try:
            incoming = validate_request(message.subject, message.body, message.headers)
        except ProtocolError as err:
            self._limited.warning(
                "a request is refused", extra={"subject": message.subject, "error": str(err)}
            )
            if self._on_refused is not None:
                self._on_refused(message.subject, err)
            return
        if self._on_request is not None:
            self._on_request(incoming)
