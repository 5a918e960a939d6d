"""
The bus ports of agents and controllers with a broker in memory, without a server.

The broker has the project's streams and buckets, and delivers messages on the running event loop. Tests can make it fail: they
can stop it, drop acknowledgements, or deny subjects. The suites in tests/contract run against it and against nats-server.

    broker = MemoryBroker()
    node, operator = MemoryBus(broker, "web1"), MemoryBus(broker, "op")
    await node.requests.subscribe(["all", "node.web1"], handle)
    broker.stop()                      # from now on all calls raise BusUnavailableError
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ccm_agent.bus.connection.messages import SENT
from ccm_agent.bus.events import EVENTS_STREAM, build_event, check_delivered
from ccm_agent.bus.layout import NOTIFYING
from ccm_agent.bus.requests import validate_request
from ccm_agent.bus.schedule_index import INDEX_SUBJECT, own_subjects
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.bus.signatures.verified import Authored
from ccm_agent.bus.subjects import (
    check_key,
    due_subject,
    key_subject,
    notification_subject,
    parse_event,
    parse_request,
    request_pattern,
    stored_patterns,
    subject_matches,
)
from ccm_agent.model.errors import (
    BusDeniedError,
    BusUnavailableError,
    ProtocolError,
    RevisionError,
    RevisionGoneError,
    UsageError,
)
from ccm_agent.model.ports import IncomingRequest, KeyValueEntry, Published, StoredEvent
from ccm_agent.testing.memory_broker import MemoryBroker, Sent, StoredWrite
from ccm_agent.testing.memory_objects import MemoryObjects

if TYPE_CHECKING:
    from ccm_agent.bus.signatures.signatory import Signatory
    from ccm_agent.bus.signatures.verified import Base
    from ccm_agent.model.ports import BrokerConnection, Events

__all__ = ["MemoryBroker", "MemoryBus", "MemoryKeyValue", "MemoryObjects"]

HISTORY = {"CCM_NODES": 1, "CCM_RUNS": 1, "CCM_SLOTS": 1}
"""The number of revisions that are kept for a key, by bucket. Other buckets keep 20."""

WRITTEN_BY_TEST = (Authored.from_arguments(),)
"""The origin of documents and requests that tests send through these ports."""

Stop = Callable[[], Awaitable[None]]


class MemoryBus:
    """
    A client's connection to the broker, with all ports.

    Attributes:
        link, requests, events: The ports with these names.
    """

    def __init__(self, broker: MemoryBroker, identity: str, signatory: Signatory | None = None) -> None:
        """
        Connect.

        Args:
            broker: The broker.
            identity: The name of the client.
            signatory: Signs requests and documents; None if they are not signed.
        """
        self.broker = broker
        self.identity = identity
        self.signatory = signatory
        self.link: BrokerConnection = broker.link()
        self.requests = MemoryRequests(self)
        self.events: Events = MemoryEvents(self)

    def bucket(self, name: str) -> MemoryKeyValue:
        """Return an object with the `KeyValue` and `KeyHistory` ports of a bucket."""
        return MemoryKeyValue(self, name)

    def objects(self, name: str) -> MemoryObjects:
        """Return the `Objects` port of a store."""
        return MemoryObjects(self.broker, self.identity, name, self.signatory, self.subscribe)

    def check(self, subject: str, size: int = 0) -> None:
        """Raise the broker's error if it refuses this operation."""
        self.broker.check(self.identity, subject, size)

    def subscribe(self, pattern: str, on_message: Callable[[Sent], None]) -> Stop:
        """Subscribe to a pattern. Return a function that ends the subscription."""
        if self.broker.is_running:
            self.check(pattern)
        interest = self.broker.subscribe(pattern, on_message)

        async def stop() -> None:
            self.broker.unsubscribe(interest)

        return stop


class MemoryKeyValue:
    """Implements the `KeyValue` and `KeyHistory` ports."""

    def __init__(self, bus: MemoryBus, bucket: str) -> None:
        self.bucket = bucket
        self._bus = bus
        self._broker = bus.broker
        self._writes = bus.broker.buckets.setdefault(bucket, [])

    async def get(self, key: str, at_least: int = 0) -> KeyValueEntry | None:
        """See `KeyValue.get`."""
        entry = self._newest(check_key(key))
        return entry if entry is not None and entry.value else None

    async def as_of(self, key: str, revision: int) -> KeyValueEntry | None:
        """See `KeyValue.as_of`."""
        self._check(check_key(key))
        kept = [write for write in self._living() if write.subject == key]
        older = [write for write in kept if write.sequence <= revision and not write.copied]
        if kept and not older:
            raise RevisionGoneError(f"{key}: no revision up to {revision} is stored")
        return self._entry(older[-1]) if older and older[-1].body else None

    async def newest(self, key: str, at_least: int = 0) -> KeyValueEntry | None:
        """See `KeyValue.newest`."""
        return self._newest(check_key(key))

    async def matching(
        self,
        patterns: Sequence[str],
        *,
        obeyed: bool = False,
        at_least: int = 0,
        deletions: bool = False,
    ) -> list[KeyValueEntry]:
        """See `KeyValue.matching`."""
        self._check(">")
        newest = {write.subject: write for write in self._living()}
        found = [w for key, w in sorted(newest.items()) if any(subject_matches(p, key) for p in patterns)]
        for write in found:
            if obeyed and write.copied:
                raise self._copied(write.subject)
        return [self._entry(write) for write in found if (write.body or deletions) and not write.copied]

    async def put(self, key: str, value: bytes, *, ttl_s: int | None = None) -> int:
        """See `KeyValue.put`."""
        return self._write(key, value, self._expiry(key, ttl_s))

    async def update(
        self, key: str, value: bytes, revision: int, *, ttl_s: int | None = None, signature: str | None = None
    ) -> int:
        """See `SignedStore.update`. Without a signature, the bus signs the document."""
        entry = self._newest(check_key(key))
        has = entry.revision if entry is not None and (entry.value or revision) else 0
        if has != revision:
            raise RevisionError(f"{key}: it has changed since it was read; read it again")
        return self._write(key, value, self._expiry(key, ttl_s), signature=signature)

    async def update_among(self, key: str, value: bytes, pattern: str, revision: int) -> int:
        """See `NatsKeyValue.update_among`."""
        found = await self.matching([pattern], deletions=True)
        if max((one.revision for one in found), default=0) != revision:
            raise RevisionError(f"{key}: it has changed since it was read; read it again")
        return self._write(key, value)

    async def store_signed(self, key: str, value: bytes, revision: int, signature: str) -> int:
        """See `SignedStore.store_signed`."""
        entry = self._newest(check_key(key))
        if (entry.revision if entry is not None else 0) != revision:
            raise RevisionError(f"{key}: it has changed since it was read; read it again")
        return self._write(key, value, signature=signature)

    async def purge_before(self, key: str, revision: int) -> None:
        """See `IndexBucket.purge_before`."""
        self._check(check_key(key))
        for write in [each for each in self._writes if each.subject == key and each.sequence < revision]:
            self._writes.remove(write)

    async def delete(
        self, key: str, *, number: int = 0, note: str = "", signature: str | None = None
    ) -> None:
        """See `SignedStore.delete`. Without a signature, the bus signs the deletion."""
        self._write(key, b"", number=number, note=note, signature=signature)

    async def watch_changes(self, pattern: str, on_change: Callable[[str, int], None]) -> Stop:
        """See `KeyValue.watch_changes`."""
        prefix = notification_subject(self.bucket, "")

        def on_notification(message: Sent) -> None:
            on_change(message.subject.removeprefix(prefix), int(message.headers["Nats-Sequence"]))

        return self._bus.subscribe(notification_subject(self.bucket, pattern), on_notification)

    async def keys(self, prefix: str = "") -> list[str]:
        """See `KeyHistory.keys`."""
        return [entry.key for entry in await self.entries(prefix)]

    async def entries(self, prefix: str = "") -> list[KeyValueEntry]:
        """See `KeyHistory.entries`."""
        return [entry for entry in await self.matching([">"]) if entry.key.startswith(prefix)]

    async def history(self, key: str) -> list[KeyValueEntry]:
        """See `KeyHistory.history`."""
        self._check(check_key(key))
        return [self._entry(write) for write in self._living() if write.subject == key and not write.copied]

    async def revision(self) -> int:
        """See `KeyHistory.revision`."""
        self._check(">")
        return self._broker.newest_sequence(f"KV_{self.bucket}")

    async def now(self) -> datetime:
        """See `KeyHistory.now`."""
        self._check(">")
        return self._broker.now()

    def _expiry(self, key: str, ttl_s: int | None) -> datetime | None:
        if ttl_s is not None and ttl_s < 1:
            raise UsageError(f"{key}: the lifetime of a key must be at least 1 s, not {ttl_s}")
        return None if ttl_s is None else self._broker.now() + timedelta(seconds=ttl_s)

    def _check(self, key: str, size: int = 0) -> None:
        self._bus.check(key_subject(self.bucket, key), size)

    def _living(self) -> list[StoredWrite]:
        now = self._broker.now()
        return [write for write in self._writes if write.expires is None or write.expires > now]

    def _newest(self, key: str) -> KeyValueEntry | None:
        self._check(key)
        found = [write for write in self._living() if write.subject == key]
        if found and found[-1].copied:
            raise ProtocolError(
                f"{key}: refused: the entry in {self.bucket} was not written by a client but copied there"
            )
        return self._entry(found[-1]) if found else None

    def _copied(self, key: str) -> ProtocolError:
        return ProtocolError(
            f"{key}: refused: the entry in {self.bucket} was not written by a client but copied there"
        )

    def _entry(self, write: StoredWrite) -> KeyValueEntry:
        return KeyValueEntry(
            key=write.subject,
            value=write.body,
            revision=write.sequence,
            created=write.time,
            signature=write.signature,
            note=write.note,
        )

    def _write(
        self,
        key: str,
        value: bytes,
        expires: datetime | None = None,
        number: int = 0,
        signature: str | None = None,
        note: str = "",
    ) -> int:
        self._check(check_key(key), len(value))
        write = self._broker.store(
            f"KV_{self.bucket}",
            self._writes,
            key,
            value,
            expires=expires,
            signature=self._signature(key, value, number, note) if signature is None else signature,
            note=note,
        )
        older = [each for each in self._writes if each.subject == key]
        for each in older[: -HISTORY.get(self.bucket, 20)]:
            self._writes.remove(each)
        if self.bucket in NOTIFYING:
            notice = Sent(notification_subject(self.bucket, key), b"", {"Nats-Sequence": str(write.sequence)})
            self._broker.deliver(notice)
        self._broker.acknowledge()
        return write.sequence

    def _signature(self, key: str, value: bytes, number: int, note: str) -> str:
        signatory = self._bus.signatory
        if signatory is None:
            return ""
        headers = (
            signatory.document(self.bucket, key, value, WRITTEN_BY_TEST)
            if value
            else signatory.deletion(self.bucket, key, WRITTEN_BY_TEST, number, note)
        )
        return headers[SIGNATURE_HEADER]


class MemoryRequests:
    """Implements the `Requests` port."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self._scopes: dict[str, Stop] = {}
        self._on_request: Callable[[IncomingRequest], None] | None = None
        self._on_refused: Callable[[str, ProtocolError], None] | None = None

    async def publish(
        self,
        subject: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        base: Sequence[Base] = WRITTEN_BY_TEST,
    ) -> None:
        """See `NatsRequests.publish`."""
        parse_request(subject)
        self._bus.check(subject, len(body))
        signatory = self._bus.signatory
        signature = signatory.request(subject, body, base) if signatory else {}
        self._bus.broker.publish(Sent(subject, body, {SENT: "1", **signature, **(headers or {})}))

    async def last_due(self, subject: str) -> IncomingRequest | None:
        """See `Requests.last_due`."""
        due = due_subject(subject)
        self._bus.check(due)
        found = self._bus.broker.due.get(subject)
        return None if found is None else validate_request(subject, found.body, found.headers)

    async def own_subjects(self, scopes: Collection[str]) -> list[str]:
        """See `Requests.own_subjects`."""
        self._bus.check(INDEX_SUBJECT)
        return own_subjects(self._bus.broker.schedule_index, scopes)

    async def subscribe(
        self,
        scopes: Sequence[str],
        on_request: Callable[[IncomingRequest], None],
        on_refused: Callable[[str, ProtocolError], None] | None = None,
    ) -> None:
        """See `Requests.subscribe`."""
        self._on_request, self._on_refused = on_request, on_refused
        denied = None
        for scope in scopes:
            if scope not in self._scopes:
                try:
                    self._scopes[scope] = self._bus.subscribe(request_pattern(scope), self._receive)
                except BusDeniedError as err:
                    denied = err
        for scope in [scope for scope in self._scopes if scope not in scopes]:
            await self._scopes.pop(scope)()
        if denied is not None:
            raise denied

    def _receive(self, message: Sent) -> None:
        try:
            incoming = validate_request(message.subject, message.body, message.headers)
        except ProtocolError as err:
            if self._on_refused is not None:
                self._on_refused(message.subject, err)
            return
        if self._on_request is not None:
            self._on_request(incoming)


class MemoryEvents:
    """Implements the `Events` port."""

    def __init__(self, bus: MemoryBus) -> None:
        self.dropped = 0
        self._bus = bus
        self._broker = bus.broker

    async def publish(
        self, subject: str, message_id: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> Published:
        """See `Events.publish`."""
        parse_event(subject)
        self._bus.check(subject, len(body))
        if not any(subject_matches(pattern, subject) for pattern in stored_patterns()):
            raise BusUnavailableError(f"{subject}: no stream stores this subject")
        all_headers = {**(headers or {}), "Nats-Msg-Id": message_id}
        self._broker.publish(Sent(subject, body, all_headers))
        before = self._broker.newest_sequence(EVENTS_STREAM)
        write = self._broker.store(
            EVENTS_STREAM, self._broker.events, subject, body, message_id=message_id, headers=all_headers
        )
        self._broker.acknowledge()
        return Published(sequence=write.sequence, is_duplicate=write.sequence <= before)

    async def announce(self, subject: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """See `Events.announce`."""
        parse_event(subject)
        try:
            self._bus.check(subject, len(body))
        except BusDeniedError:
            return
        self._broker.publish(Sent(subject, body, {SENT: "1", **(headers or {})}))

    async def follow(self, subject: str, on_event: Callable[[StoredEvent], None]) -> Stop:
        """See `Events.follow`."""

        def receive(message: Sent) -> None:
            try:
                check_delivered(message.subject, message.headers)
            except ProtocolError:
                self.dropped += 1
                return
            on_event(build_event(message.subject, message.body, message.headers))

        return self._bus.subscribe(subject, receive)

    async def read(self, subject: str, from_sequence: int = 1) -> list[StoredEvent]:
        """See `Events.read`."""
        self._bus.check(subject)
        found = []
        for write in self._broker.events:
            if write.sequence >= from_sequence and subject_matches(subject, write.subject):
                self.dropped += write.copied
                found.append(write)
        return [
            build_event(write.subject, write.body, write.headers, write.sequence, write.time)
            for write in found
            if not write.copied
        ]

    async def scan(self, subject: str, since: datetime | None = None) -> AsyncIterator[StoredEvent]:
        """See `Events.scan`."""
        for event in await self.read(subject):
            if since is None or event.time is None or event.time >= since:
                yield event

    async def oldest(self) -> datetime | None:
        """See `Events.oldest`."""
        return min((write.time for write in self._broker.events), default=None)

    async def newest(self, patterns: Sequence[str]) -> list[StoredEvent]:
        """See `Events.newest`."""
        found = [event for pattern in patterns for event in await self.read(pattern)]
        newest = {event.subject: event for event in sorted(found, key=lambda event: event.sequence)}
        return sorted(newest.values(), key=lambda event: event.sequence)
