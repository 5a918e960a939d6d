"""
Buckets: keys and values, read by direct get and watched by notifications.

A key with an empty value is absent, whether it was deleted, expired or written empty.

Copies are never returned. A client can set the subject of a key as the reply subject of a direct get. The broker then stores
the reply under this key: an old revision, or the value of another key. A reader of one key gets an error and keeps its last
value. A list of keys omits the copy.

This module creates no consumers. A watcher reads all keys, and then each key that is named in a notification. After a lost
connection, it reads all keys again.
"""

from __future__ import annotations

import base64
import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ccm_agent.bus.change_notices import NoticeLimit, notice_revision
from ccm_agent.bus.signatures.signing import CERTIFICATE_HEADER, SIGNATURE_HEADER
from ccm_agent.bus.streams import (
    EXPECTED_SEQUENCE,
    Stored,
    call,
    parse_time,
    read_all,
    read_as_of,
    read_first,
    read_last,
    read_newest_as,
    store,
)
from ccm_agent.bus.subjects import check_key, key_subject, notification_subject
from ccm_agent.model.errors import BusUnavailableError, ProtocolError, RevisionError, UsageError
from ccm_agent.model.limited_log import LimitedLog
from ccm_agent.model.ports import BucketKeys, KeyValueEntry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.connection.messages import Message

log = logging.getLogger(__name__)

_OPERATION = "KV-Operation"
_NOTE = "Ccm-Note"
_NOTE_LIMIT = 16 * 1024
_EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
_EXPECTED_STREAM = "Nats-Expected-Stream"
_WRITTEN_TO = "Ccm-Bucket"
"""Header with the stream that a client wrote to. A mirror keeps it, and drops all headers that begin with `Nats-Expected-`."""

_SOURCE = "Nats-Stream-Source"
"""Header of a message that the broker copied from a source: the name of the source, a space, and more."""

OURS = frozenset(
    ("CCM_NODES", "CCM_FACTS", "CCM_ASSIGNMENTS", "CCM_RUNS", "CCM_NODE_DATA", "CCM_SECRETS", "CCM_SLOTS")
)
"""Buckets to which only this project's programs write."""

LISTED_TWICE = 1_000
"""The number of keys that two successive lists share. No key is missed unless more keys than this are removed in between."""


class NatsKeyValue:
    """One bucket of the broker: `KeyValue` for agents, `KeyHistory` for the controller."""

    def __init__(self, connection: Connection, bucket: str) -> None:
        """
        Create the port for one bucket of a broker.

        Args:
            connection: The connection to the broker.
            bucket: The name of the bucket.
        """
        self.bucket = bucket
        self._connection = connection
        self._stream = f"KV_{bucket}"
        self._limited = LimitedLog(log)

    async def get(self, key: str, at_least: int = 0) -> KeyValueEntry | None:
        """See `KeyValue.get`."""
        entry = await self.newest(key, at_least)
        return entry if entry is not None and entry.value else None

    async def as_of(self, key: str, revision: int) -> KeyValueEntry | None:
        """See `KeyValue.as_of`."""
        subject = key_subject(self.bucket, check_key(key))
        stored = await read_as_of(self._connection, self._stream, subject, revision, self._is_foreign)
        if stored is None:
            return None
        entry = self._entry(stored)
        return entry if entry.value else None

    async def matching(
        self,
        patterns: Sequence[str],
        *,
        obeyed: bool = False,
        at_least: int = 0,
        deletions: bool = False,
    ) -> list[KeyValueEntry]:
        """See `KeyValue.matching`."""

        def build(stored: Stored) -> KeyValueEntry | Stored:
            return stored if self._is_foreign(stored) else self._entry(stored)

        subjects = [key_subject(self.bucket, pattern) for pattern in patterns]
        entries = []
        for each in await read_newest_as(self._connection, self._stream, subjects, build, at_least):
            if isinstance(each, KeyValueEntry):
                entries += [each] if each.value or deletions else []
            elif obeyed:
                self._refuse_copy(each)
            else:
                self._is_copy(each)
        return sorted(entries, key=lambda entry: entry.key)

    async def put(self, key: str, value: bytes, *, ttl_s: int | None = None) -> int:
        """See `KeyValue.put`."""
        return await self._write(key, value, _ttl(key, ttl_s))

    async def update(
        self, key: str, value: bytes, revision: int, *, ttl_s: int | None = None, signature: str = ""
    ) -> int:
        """See `SignedStore.update`."""
        headers = {**_ttl(key, ttl_s), **_signed(signature)}
        try:
            return await self._write(key, value, {**headers, EXPECTED_SEQUENCE: str(revision)})
        except RevisionError:
            if revision:
                raise
        # For the broker, a deleted key still exists: its newest message marks the deletion.
        deleted = await self.newest(key)
        if deleted is None or deleted.value:
            raise RevisionError(f"{key}: already exists in {self.bucket}; read it, then update that revision")
        return await self._write(key, value, {**headers, EXPECTED_SEQUENCE: str(deleted.revision)})

    async def update_among(self, key: str, value: bytes, pattern: str, revision: int) -> int:
        """
        Write a key only if the newest entry of all keys that match a pattern has this revision (0: there is no entry).

        Raises:
            RevisionError: The newest entry has another revision; nothing was written.
        """
        among = {EXPECTED_SEQUENCE: str(revision), _EXPECTED_SUBJECT: key_subject(self.bucket, pattern)}
        return await self._write(key, value, among)

    async def store_signed(self, key: str, value: bytes, revision: int, signature: str) -> int:
        """See `SignedStore.store_signed`."""
        return await self._write(key, value, {EXPECTED_SEQUENCE: str(revision), **_signed(signature)})

    async def purge_before(self, key: str, revision: int) -> None:
        """See `IndexBucket.purge_before`."""
        question = {"filter": key_subject(self.bucket, check_key(key)), "seq": revision}
        await call(self._connection, f"STREAM.PURGE.{self._stream}", question)

    async def delete(self, key: str, *, number: int = 0, note: str = "", signature: str = "") -> None:
        """See `SignedStore.delete`; the number is in the signature."""
        # The note is a header because older agents verify a deletion with an empty body.
        noted = {_NOTE: base64.urlsafe_b64encode(note.encode()).decode()} if note else {}
        await self._write(key, b"", {_OPERATION: "DEL", **noted, **_signed(signature)})

    async def watch_changes(
        self, pattern: str, on_change: Callable[[str, int], None]
    ) -> Callable[[], Awaitable[None]]:
        """See `KeyValue.watch_changes`."""
        prefix = notification_subject(self.bucket, "")
        limit = NoticeLimit(on_change)

        def on_notification(message: Message) -> None:
            key = message.subject.removeprefix(prefix)
            if revision := notice_revision(message.headers, self._stream, key_subject(self.bucket, key)):
                limit.receive(key, revision)

        made = await self._connection.subscribe([notification_subject(self.bucket, pattern)], on_notification)

        async def stop() -> None:
            limit.close()
            await self._connection.unsubscribe(made)

        return stop

    async def keys(self, prefix: str = "") -> list[str]:
        """See `KeyHistory.keys`."""
        return [entry.key for entry in await self.entries(prefix)]

    async def entries(self, prefix: str = "") -> list[KeyValueEntry]:
        """See `KeyHistory.entries`."""
        return [entry for entry in await self.matching([_pattern(prefix)]) if entry.key.startswith(prefix)]

    async def history(self, key: str) -> list[KeyValueEntry]:
        """See `KeyHistory.history`."""
        subject = key_subject(self.bucket, check_key(key))
        found = [each async for each in read_all(self._connection, self._stream, subject)]
        return [self._entry(each) for each in found if not self._is_copy(each)]

    async def list_keys(self, pattern: str) -> BucketKeys:
        """See `KeyChanges.list_keys`."""
        keys, offset = set[str](), 0
        prefix, filtered = key_subject(self.bucket, ""), key_subject(self.bucket, pattern)
        while True:  # the broker lists a limited number of subjects per reply, sorted
            question = {"subjects_filter": filtered, "offset": offset}
            info = await call(self._connection, f"STREAM.INFO.{self._stream}", question)
            listed = {subject.removeprefix(prefix) for subject in info["state"].get("subjects") or ()}
            if keys and not listed & keys:
                raise BusUnavailableError(f"{self.bucket}: too many keys were removed while they were listed")
            has_more = offset + len(listed) < info.get("total", 0) and not listed <= keys
            keys |= listed
            if not has_more:
                return BucketKeys(
                    keys=keys,
                    created=str(info["created"]),
                    revision=int(info["state"]["last_seq"]),
                    history=int(info["config"].get("max_msgs_per_subject", 0)),
                )
            offset += max(len(listed) - LISTED_TWICE, 1)

    async def changes(self, pattern: str, after: int, since: datetime) -> list[KeyValueEntry]:
        """See `KeyChanges.changes`."""
        subject = key_subject(self.bucket, pattern)
        first = await read_first(self._connection, self._stream, subject, start_time=since)
        # A later entry is also in the changes. If a lagging replica omits it there, adding it here would hide a gap.
        found = [first] if first is not None and first.sequence <= after else []
        found += [each async for each in read_all(self._connection, self._stream, subject, after + 1)]
        entries = ((self._entry(each), self._is_copy(each)) for each in found)
        return [replace(entry, value=b"") if is_copy else entry for entry, is_copy in entries]

    async def revision(self) -> int:
        """See `KeyHistory.revision`."""
        # Ask the leader, because a replica may not have the newest write yet.
        info = await call(self._connection, f"STREAM.INFO.{self._stream}")
        return int(info["state"]["last_seq"])

    async def now(self) -> datetime:
        """See `KeyHistory.now`."""
        info = await call(self._connection, f"STREAM.INFO.{self._stream}")
        return parse_time(info["ts"])

    async def newest(self, key: str, at_least: int = 0) -> KeyValueEntry | None:
        """See `KeyValue.newest`."""
        subject = key_subject(self.bucket, check_key(key))
        stored = await read_last(self._connection, self._stream, subject, at_least)
        if stored is None:
            return None
        self._refuse_copy(stored)
        return self._entry(stored)

    def _refuse_copy(self, stored: Stored) -> None:
        if self._is_foreign(stored):
            raise ProtocolError(
                f"{self._entry(stored).key}: refused: the entry in {self.bucket} was not written by a client but copied there "
                "by a redirected read or answer; remove it and write it again"
            )

    def _is_copy(self, stored: Stored) -> bool:
        is_foreign = self._is_foreign(stored)
        if is_foreign:
            self._limited.warning("a copied entry is skipped", extra={"subject": stored.subject})
        return is_foreign

    def _is_foreign(self, stored: Stored) -> bool:
        """
        Whether the entry was not written by a client: it is a copy, or a reply of the broker that was redirected here (ADR 12).

        Other programs write values without headers, but not to buckets in `OURS`. They do not write empty values; they delete a
        key with a header.
        """
        is_written = stored.headers.get(_WRITTEN_TO) == self._stream
        has_headers = is_written or _EXPECTED_STREAM in stored.headers or _OPERATION in stored.headers
        return stored.copied or (not has_headers and (self.bucket in OURS or not stored.body))

    async def _write(self, key: str, value: bytes, headers: dict[str, str]) -> int:
        subject = key_subject(self.bucket, check_key(key))
        headers = {_EXPECTED_STREAM: self._stream, _WRITTEN_TO: self._stream, **headers}
        return (await store(self._connection, subject, value, headers)).sequence

    def _entry(self, stored: Stored) -> KeyValueEntry:
        return KeyValueEntry(
            key=stored.subject.removeprefix(key_subject(self.bucket, "")),
            value=b"" if _OPERATION in stored.headers else stored.body,
            revision=stored.sequence,
            created=stored.time,
            signature=stored.headers.get(SIGNATURE_HEADER, ""),
            certificate=stored.headers.get(CERTIFICATE_HEADER, ""),
            note=decode_note(stored.headers.get(_NOTE, "")) if _OPERATION in stored.headers else "",
            copied_from=stored.headers.get(_SOURCE, "").partition(" ")[0],
        )


def decode_note(header: str) -> str:
    """Decode the note of a deletion in its header; "" if it cannot be read."""
    if len(header) > _NOTE_LIMIT:
        return ""
    try:
        return base64.b64decode(header, altchars=b"-_", validate=True).decode()
    except ValueError:
        return ""


def _ttl(key: str, ttl_s: int | None) -> dict[str, str]:
    if ttl_s is None:
        return {}
    if ttl_s < 1:
        raise UsageError(f"{key}: the lifetime of a key must be at least 1 s, not {ttl_s}")
    return {"Nats-TTL": str(ttl_s)}


def _signed(signature: str) -> dict[str, str]:
    return {SIGNATURE_HEADER: signature} if signature else {}


def _pattern(prefix: str) -> str:
    """Return the narrowest pattern of whole tokens that covers a prefix."""
    tokens = prefix.rpartition(".")[0]
    return f"{tokens}.>" if tokens else ">"
