"""
Events: agents publish them to a stream and wait for the acknowledgement; readers receive them live and read missed ones later.

The spool handles errors of `publish` as follows. After BusUnavailableError, it retries soon. BusDeniedError and BusSetupError
require an operator, so it retries slowly. ProtocolError is permanent. The message id is the same in each attempt.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ccm_agent.bus.access.audit import AUDITED
from ccm_agent.bus.chain import CHAIN_HEADER
from ccm_agent.bus.connection.headers import STORED
from ccm_agent.bus.connection.messages import SENT
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.bus.streams import read_all, read_first, read_newest, store
from ccm_agent.bus.subjects import parse_event
from ccm_agent.model.errors import BusSetupError, ProtocolError
from ccm_agent.model.limited_log import LimitedLog
from ccm_agent.model.ports import Published, StoredEvent
from ccm_agent.model.wire import PROTOCOL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.connection.messages import Message
    from ccm_agent.bus.streams import Stored

log = logging.getLogger(__name__)

EVENTS_STREAM = "CCM_EVENTS"

MESSAGE_ID = "Nats-Msg-Id"
EXPECTED_STREAM = "Nats-Expected-Stream"


def check_delivered(subject: str, headers: Mapping[str, str]) -> None:
    """
    Check that a message was published as an event.

    Raises:
        ProtocolError: It is a copy of a stored message, which a direct get sent to this subject, or it is not an event.
    """
    parse_event(subject)
    names = set(map(str.lower, headers))
    if "status" in names or not STORED.isdisjoint(names):
        raise ProtocolError(f"{subject}: refused: it is not an event but a reply that was sent here")
    if names.isdisjoint((MESSAGE_ID.lower(), SENT.lower())):
        raise ProtocolError(f"{subject}: refused: it is a reply of the broker that was sent here")


def build_event(
    subject: str,
    body: bytes,
    headers: Mapping[str, str],
    sequence: int = 0,
    time: datetime | None = None,
) -> StoredEvent:
    """Decode an event, with its sender's claims about position and author. Nothing is verified here."""
    return StoredEvent(
        subject=subject,
        body=body,
        sequence=sequence,
        chain=headers.get(CHAIN_HEADER, ""),
        signature=headers.get(SIGNATURE_HEADER, ""),
        time=time,
    )


class NatsEvents:
    """
    The `Events` port on a broker.

    Attributes:
        dropped: The number of messages dropped because they did not match their subject.
    """

    def __init__(self, connection: Connection, stream: str = EVENTS_STREAM) -> None:
        self.dropped = 0
        self._connection = connection
        self._stream = stream
        self._limited = LimitedLog(log)

    async def publish(
        self, subject: str, message_id: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> Published:
        """See `Events.publish`."""
        all_headers = {**(headers or {}), MESSAGE_ID: message_id}
        if parse_event(subject).protocol not in AUDITED:
            all_headers[EXPECTED_STREAM] = self._stream
        within_s = self._connection.settings.acknowledge_s
        ack = await store(self._connection, subject, body, all_headers, within_s=within_s)
        if ack.stream not in ("", self._stream):
            raise BusSetupError(
                f"{subject}: stored in {ack.stream}, not in {self._stream}; remove that stream's subject, or that stream"
            )
        return Published(sequence=ack.sequence, is_duplicate=ack.duplicate)

    async def announce(self, subject: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """See `Events.announce`."""
        parse_event(subject)
        await self._connection.publish(subject, body, {SENT: "1", **(headers or {})})

    async def follow(
        self, subject: str, on_event: Callable[[StoredEvent], None]
    ) -> Callable[[], Awaitable[None]]:
        """See `Events.follow`."""

        def receive(message: Message) -> None:
            try:
                check_delivered(message.subject, message.headers)
            except ProtocolError as err:
                self._drop(message.subject, err)
                return
            on_event(build_event(message.subject, message.body, message.headers))

        made = await self._connection.subscribe([subject], receive)

        async def stop() -> None:
            await self._connection.unsubscribe(made)

        return stop

    async def read(self, subject: str, from_sequence: int = 1) -> list[StoredEvent]:
        """See `Events.read`."""
        found = []
        async for stored in read_all(self._connection, self._stream, subject, from_sequence):
            found += self._genuine(stored)
        return found

    async def scan(self, subject: str, since: datetime | None = None) -> AsyncIterator[StoredEvent]:
        """See `Events.scan`."""
        async for stored in read_all(self._connection, self._stream, subject, since=since):
            for event in self._genuine(stored):
                yield event

    async def oldest(self) -> datetime | None:
        """See `Events.oldest`."""
        stored = await read_first(self._connection, self._stream, f"{PROTOCOL}.>")
        return stored.time if stored is not None else None

    async def newest(self, patterns: Sequence[str]) -> list[StoredEvent]:
        """See `Events.newest`."""
        found = []
        for stored in await read_newest(self._connection, self._stream, patterns):
            found += self._genuine(stored)
        return found

    def _genuine(self, stored: Stored) -> list[StoredEvent]:
        """Return the event, unless it is a copy of another message."""
        if stored.copied or MESSAGE_ID not in stored.headers:
            self._drop(stored.subject, ProtocolError(f"{stored.subject}: a copy of another message"))
            return []
        return [build_event(stored.subject, stored.body, stored.headers, stored.sequence, stored.time)]

    def _drop(self, subject: str, err: ProtocolError) -> None:
        self.dropped += 1
        self._limited.warning("an event is dropped", extra={"subject": subject, "error": str(err)})
