"""
The broker for `testing.memory_bus`, with its streams, subscriptions and failures.

Tests can stop and start it, drop acknowledgements or deny subjects. A `MemoryBus` connects to it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from msgspec import Struct

from ccm_agent.bus.connection.messages import SENT
from ccm_agent.bus.events import EVENTS_STREAM
from ccm_agent.bus.requests import SCHEDULES_STREAM
from ccm_agent.bus.subjects import (
    decode_token,
    due_subject,
    parse_scheduled,
    schedule_subject,
    stored_patterns,
    subject_matches,
)
from ccm_agent.model.errors import BusDeniedError, BusUnavailableError, ProtocolError

MAX_PAYLOAD_BYTES = 1 << 20


class Sent(Struct, frozen=True):
    """A published message, as delivered to subscribers (core NATS)."""

    subject: str
    body: bytes
    headers: Mapping[str, str] = {}


class StoredWrite(Struct):
    """A stored message in a bucket or in the event stream."""

    subject: str
    body: bytes
    sequence: int
    time: datetime
    message_id: str = ""
    expires: datetime | None = None
    copied: bool = False
    signature: str = ""
    headers: Mapping[str, str] = {}
    note: str = ""


class MemorySubscription:
    """A subscription of a client."""

    def __init__(self, pattern: str, on_message: Callable[[Sent], None]) -> None:
        self.pattern = pattern
        self.on_message = on_message


class MemoryBroker:
    """
    The broker in memory.

    Attributes:
        sent: All published messages in order, except notifications.
        events: The messages in the event stream.
        lost_acks: The number of upcoming writes that are stored but not acknowledged.
    """

    def __init__(self, now: Callable[[], datetime] | None = None) -> None:
        self.now = now or (lambda: datetime.now(UTC))
        self.sent: list[Sent] = []
        self.events: list[StoredWrite] = []
        self.lost_acks = 0
        self.is_running = True
        self.buckets: dict[str, list[StoredWrite]] = {}
        self.objects: dict[str, dict[str, bytes]] = {}
        self.object_signatures: dict[str, str] = {}
        self.object_times: dict[str, datetime] = {}
        self.object_revisions: dict[str, int] = {}
        self.due: dict[str, Sent] = {}
        self.schedule_index: list[str] = []
        self._sequences: dict[str, int] = {}
        self._interests: dict[MemorySubscription, None] = {}
        self._links: list[MemoryConnection] = []
        self._denied: list[tuple[str, str]] = []

    def link(self) -> MemoryConnection:
        """Return the connection of one process."""
        link = MemoryConnection(self)
        self._links.append(link)
        return link

    def stop(self) -> None:
        """Stop the broker. Its streams are kept."""
        self.is_running = False
        for link in self._links:
            link.changed()

    def start(self) -> None:
        """Start the broker again. Subscriptions are kept, and `on_connect` hooks are called."""
        self.is_running = True
        for link in self._links:
            link.changed()

    def make_anew(self) -> None:
        """Replace the broker with an empty one. Connections and streams are lost, and sequences start at 1 again."""
        self.stop()
        for writes in (self.events, *self.buckets.values()):
            writes.clear()
        for objects in self.objects.values():
            objects.clear()
        self.due.clear()
        self.schedule_index.clear()
        self._sequences.clear()
        self.start()

    def deny(self, identity: str, pattern: str) -> None:
        """Forbid an identity to publish to, read from or subscribe to subjects that match the pattern."""
        self._denied.append((identity, pattern))

    def inject(self, subject: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Deliver a message unchanged, without checking permissions. The header `Nats-Stream` marks a reply of a direct get."""
        headers = {SENT: "1"} if headers is None else headers
        self.sent.append(Sent(subject, body, headers))
        copied = "Nats-Stream" in headers
        if any(subject_matches(pattern, subject) for pattern in stored_patterns()):
            self.store(EVENTS_STREAM, self.events, subject, body, copied=copied, headers=headers)
        if subject.startswith("$KV."):
            _, bucket, key = subject.split(".", 2)
            self.store(f"KV_{bucket}", self.buckets.setdefault(bucket, []), key, body, copied=copied)
        self.deliver(Sent(subject, body, headers))

    def fire(self, subject: str, body: bytes) -> None:
        """Deliver a due scheduled request in the way in which the broker republishes it, and store it under its own subject."""
        due = due_subject(subject)
        protocol, scope, token = parse_scheduled(subject)
        schedule = schedule_subject(protocol, scope, decode_token(token or "one") or token)
        if token and schedule not in self.schedule_index:
            self.schedule_index.append(schedule)
        written = self.store(SCHEDULES_STREAM, [], due, body)
        headers = {
            "Nats-Scheduler": schedule,
            "Nats-Stream": SCHEDULES_STREAM,
            "Nats-Subject": due,
            "Nats-Sequence": str(written.sequence),
            "Nats-Time-Stamp": written.time.isoformat(),
        }
        self.due[subject] = Sent(subject, body, headers)
        self.inject(subject, body, headers)

    # --- used by the ports ---

    def check(self, identity: str, subject: str, size: int = 0) -> None:
        """Raise the broker's error if it refuses this operation."""
        if not self.is_running:
            raise BusUnavailableError("memory: the broker is unavailable")
        if any(identity == who and subject_matches(pattern, subject) for who, pattern in self._denied):
            raise BusDeniedError(f"{subject}: the broker does not allow {identity} to use it")
        if size > MAX_PAYLOAD_BYTES:
            raise ProtocolError(
                f"{subject}: a message of {size} bytes: the broker accepts at most {MAX_PAYLOAD_BYTES}"
            )

    def publish(self, message: Sent) -> None:
        """Deliver a message to all subscribers in order, in a later iteration of the event loop."""
        self.sent.append(message)
        self.deliver(message)

    def deliver(self, message: Sent) -> None:
        """Deliver a message like `publish`, but do not add it to `sent`."""
        loop = asyncio.get_running_loop()
        for interest in list(self._interests):
            if subject_matches(interest.pattern, message.subject):
                loop.call_soon(self._hand_over, interest, message)

    def _hand_over(self, interest: MemorySubscription, message: Sent) -> None:
        if interest in self._interests and self.is_running:
            interest.on_message(message)

    def subscribe(self, pattern: str, on_message: Callable[[Sent], None]) -> MemorySubscription:
        """Subscribe to a pattern."""
        interest = MemorySubscription(pattern, on_message)
        self._interests[interest] = None
        return interest

    def unsubscribe(self, interest: MemorySubscription) -> None:
        """End a subscription."""
        self._interests.pop(interest, None)

    def store(
        self,
        stream: str,
        writes: list[StoredWrite],
        subject: str,
        body: bytes,
        *,
        message_id: str = "",
        expires: datetime | None = None,
        copied: bool = False,
        signature: str = "",
        note: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> StoredWrite:
        """Append a message to a stream. If there is a stored message with the same ID, return it instead."""
        for write in writes:
            if message_id and write.message_id == message_id:
                return write
        self._sequences[stream] = self._sequences.get(stream, 0) + 1
        write = StoredWrite(
            subject=subject,
            body=body,
            sequence=self._sequences[stream],
            time=self.now(),
            message_id=message_id,
            expires=expires,
            copied=copied,
            signature=signature,
            note=note,
            headers=headers or {},
        )
        writes.append(write)
        return write

    def newest_sequence(self, stream: str) -> int:
        """Return the last sequence of a stream, even if its message was removed; 0 if there never was a message."""
        return self._sequences.get(stream, 0)

    def acknowledge(self) -> None:
        """Acknowledge a write, unless this acknowledgement is dropped."""
        if self.lost_acks:
            self.lost_acks -= 1
            raise BusUnavailableError("memory: no answer from the broker in 5 s")


class MemoryConnection:
    """Implements the `BrokerConnection` port."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._up = asyncio.Event()
        self._hooks: dict[object, Callable[[], None]] = {}
        self.since = time.monotonic()
        if broker.is_running:
            self._up.set()

    @property
    def connected(self) -> bool:
        """See `BrokerConnection.connected`."""
        return self._up.is_set()

    async def wait_connected(self) -> None:
        """See `BrokerConnection.wait_connected`."""
        await self._up.wait()

    def on_connect(self, hook: Callable[[], None]) -> Callable[[], None]:
        """See `BrokerConnection.on_connect`."""
        key = object()
        self._hooks[key] = hook
        return lambda: self._hooks.pop(key, None) and None

    def changed(self) -> None:
        """Update the connection after the broker has started or stopped."""
        if self._broker.is_running == self.connected:
            return
        self.since = time.monotonic()
        if not self._broker.is_running:
            self._up.clear()
            return
        self._up.set()
        for hook in list(self._hooks.values()):
            hook()
