"""
Events: agents publish them to a stream and wait until it has them; readers hear them early and read what they missed.

What errors of `publish` mean to who keeps a spool: after BusUnavailableError soon is a good time to try again; BusDeniedError and
BusSetupError need an operator first, so trying goes on, slowly; ProtocolError is for ever. The id is the same each time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ccm_agent.bus.messages import SENT
from ccm_agent.bus.streams import read_all, read_newest, store
from ccm_agent.bus.subjects import parse_event
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.ports import StoredEvent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ccm_agent.bus.connection import Connection
    from ccm_agent.bus.messages import Message
    from ccm_agent.bus.streams import Stored

log = logging.getLogger(__name__)

EVENTS_STREAM = "CCM_EVENTS"

MESSAGE_ID = "Nats-Msg-Id"
EXPECTED_STREAM = "Nats-Expected-Stream"


def check_delivered(subject: str, headers: Mapping[str, str]) -> None:
    """
    See that an event came from who published it.

    Raises:
        ProtocolError: It is a copy of something stored, sent here by somebody's direct get, or no event at all.
    """
    parse_event(subject)
    for name in headers:
        if name.lower() in ("nats-stream", "status"):
            raise ProtocolError(f"{subject}: not published as an event, but sent here as an answer; refused")
    if not {MESSAGE_ID.lower(), SENT.lower()} & {name.lower() for name in headers}:
        raise ProtocolError(f"{subject}: no program published this: an answer that was sent here; refused")


class NatsEvents:
    """
    The `Events` port on a broker.

    Attributes:
        dropped: How many messages were not what their subject says.
    """

    def __init__(self, connection: Connection, stream: str = EVENTS_STREAM) -> None:
        self.dropped = 0
        self._connection = connection
        self._stream = stream

    async def publish(self, subject: str, event_id: str, body: bytes) -> int:
        """See `Events.publish`."""
        parse_event(subject)
        headers = {MESSAGE_ID: event_id, EXPECTED_STREAM: self._stream}
        return (await store(self._connection, subject, body, headers)).sequence

    async def announce(self, subject: str, body: bytes) -> None:
        """See `Events.announce`."""
        parse_event(subject)
        await self._connection.publish(subject, body, {SENT: "1"})

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
            on_event(StoredEvent(subject=message.subject, body=message.body))

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

    async def newest(self, patterns: Sequence[str]) -> list[StoredEvent]:
        """See `Events.newest`."""
        found = []
        for stored in await read_newest(self._connection, self._stream, patterns):
            found += self._genuine(stored)
        return found

    def _genuine(self, stored: Stored) -> list[StoredEvent]:
        """The event, unless it is a copy of something else."""
        if stored.copied or MESSAGE_ID not in stored.headers:
            self._drop(stored.subject, ProtocolError(f"{stored.subject}: a stored copy of something else"))
            return []
        return [StoredEvent(subject=stored.subject, body=stored.body, sequence=stored.sequence)]

    def _drop(self, subject: str, err: ProtocolError) -> None:
        self.dropped += 1
        log.warning("an event is dropped", extra={"subject": subject, "error": str(err)})
