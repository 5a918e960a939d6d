"""
Bundles in an object store, in the layout that all NATS clients share (ADR-20).

The meta message of a name contains the subject of its chunks and their digest. A read takes one direct get for the meta message
and one for each page of chunks; content is returned only after its digest is verified.

An object that is named by its digest is written once (ADR 114). The broker keeps stored messages and appends later ones. Only
operators with `--admin` can remove messages. If the newest description does not lead to content with the digest in the name,
readers and writers search for one that does. So a client that may only upload can neither replace such an object nor occupy its
name.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from ccm_agent.bus.change_notices import NoticeLimit, notice_revision
from ccm_agent.bus.connection.broker_errors import read_only
from ccm_agent.bus.object_descriptions import (
    ObjectCandidates,
    ObjectInfo,
    decode_meta,
    decode_name,
    digest_field,
    encode_name,
    is_digest,
    readable_meta,
)
from ccm_agent.bus.retry_window import RetryWindow
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.bus.streams import (
    EXPECTED_SEQUENCE,
    call,
    parse_time,
    read_all,
    read_last,
    read_newest,
    store,
)
from ccm_agent.bus.subjects import notification_subject
from ccm_agent.model.errors import (
    BusDeniedError,
    BusError,
    BusUnavailableError,
    NotFoundError,
    ProtocolError,
    RevisionError,
)
from ccm_agent.model.ports import StoredObject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.connection.messages import Message
    from ccm_agent.bus.signatures.signatory import Signatory
    from ccm_agent.bus.signatures.verified import Base

log = logging.getLogger(__name__)

CHUNK_BYTES = 128 * 1024
"""The chunk size of other clients; a chunk must fit into one message."""

WINDOW = 8
"""The number of unacknowledged chunks: one at a time would cost a round trip each."""

UPLOADS = 5
"""The maximum attempts of an upload. It is repeated on another subject if another client stored chunks between its own."""

FIND_LIMIT_BYTES = 64 << 20
"""The largest bundle."""

UPLOAD_S = 3600
"""Chunks without a description are not removed before this time: their upload may be in progress."""


class _UnfinishedError(ProtocolError):
    """Some chunks of the object are missing."""


class NatsObjects:
    """The `Objects` port on a broker: one object store."""

    def __init__(
        self,
        connection: Connection,
        bucket: str,
        signatory: Signatory | None = None,
        base: Sequence[Base] = (),
    ) -> None:
        """
        Create the port for an object store.

        Args:
            connection: The connection to the broker.
            bucket: The name of the object store.
            signatory: Signs stored objects; None: they are not signed.
            base: The bases of the stored objects, for their signatures.
        """
        self.bucket = bucket
        self._connection = connection
        self._stream = f"OBJ_{bucket}"
        self._signatory = signatory
        self._base = base

    async def all(self) -> list[StoredObject]:
        """See `Objects.all`."""
        found = []
        for stored in await read_newest(self._connection, self._stream, [f"$O.{self.bucket}.M.*"]):
            name = decode_name(stored.subject.rpartition(".")[2])
            try:
                meta = decode_meta(name, self.bucket, stored)
            except ProtocolError:
                meta = ObjectInfo()
            if meta is not None:
                found.append(
                    StoredObject(
                        name=name,
                        digest=meta.hex_digest,
                        size_bytes=meta.size,
                        time=stored.time,
                        revision=stored.sequence,
                    )
                )
        return found

    async def get(self, name: str, limit_bytes: int) -> bytes:
        """See `Objects.get`."""
        patience = RetryWindow()
        while True:
            try:
                return await self._get(name, limit_bytes)
            except (NotFoundError, _UnfinishedError):
                # A replica may lag; a single server has all chunks or none.
                server = self._connection.server
                if server is None or not server.cluster or not await patience.pause():
                    raise

    async def _get(self, name: str, limit_bytes: int) -> bytes:
        try:
            return await self._read_newest(name, limit_bytes)
        except (NotFoundError, ProtocolError):
            found = await self._find_copy(name, limit_bytes) if is_digest(name) else None
            if found is None:
                raise
            return found[1]

    async def _read_newest(self, name: str, limit_bytes: int) -> bytes:
        meta = await self._meta(name)
        if meta is None:
            raise NotFoundError(f"{name}: not in {self.bucket}; it was removed or never stored")
        return await self._read(name, meta, limit_bytes)

    async def _read(self, name: str, meta: ObjectInfo, limit_bytes: int) -> bytes:
        """Return the content of a description."""
        if meta.size > limit_bytes:
            raise ProtocolError(f"{name}: too large: {meta.size} bytes; at most {limit_bytes} are accepted")
        chunks: list[bytes] = []
        digest, size = hashlib.sha256(), 0
        if meta.size:
            async for stored in read_all(self._connection, self._stream, self._chunks(meta.nuid)):
                size += len(stored.body)
                if size > meta.size:
                    break
                digest.update(stored.body)
                chunks.append(stored.body)
                if size == meta.size and is_digest(name):
                    break  # others can only append
        if size < meta.size:
            raise _UnfinishedError(f"{name}: {self.bucket} contains only {size} of its {meta.size} bytes")
        if size > meta.size or digest.hexdigest() != meta.hex_digest:
            raise ProtocolError(f"{name}: refused: the content in {self.bucket} does not match its digest")
        if is_digest(name) and digest.hexdigest() != name:
            raise ProtocolError(f"{name}: refused: the content in {self.bucket} does not match this digest")
        return b"".join(chunks)

    async def _find_copy(self, name: str, limit_bytes: int) -> tuple[ObjectInfo, bytes] | None:
        """Find a description of a digest that leads to the content with that digest. Returns it with the content."""
        for meta in await self._candidates(name, limit_bytes):
            try:
                return meta, await self._read(name, meta, limit_bytes)
            except ProtocolError:
                continue
        return None

    async def _candidates(self, name: str, limit_bytes: int) -> ObjectCandidates:
        copies = ObjectCandidates(name, limit_bytes)
        async for stored in read_all(self._connection, self._stream, self._meta_subject(name)):
            copies.add(readable_meta(name, self.bucket, stored))
        return copies

    async def put(self, name: str, content: bytes) -> None:
        """See `Objects.put`."""
        digest = hashlib.sha256(content).digest()
        if is_digest(name) and name != digest.hex():
            raise ProtocolError(f"{name}: not stored: the name is not the digest of the content")
        patience = RetryWindow()
        while True:
            sequence, before = await self._find_stored(name, content)
            if before is None or before.size != len(content) or before.hex_digest != digest.hex():
                break
            try:
                await self._renew(name, before, sequence)
            except RevisionError:  # it was removed or stored meanwhile
                if await patience.pause():
                    continue
                break
            return
        pieces = [content[at : at + CHUNK_BYTES] for at in range(0, len(content), CHUNK_BYTES)]
        nuid = await self._upload(pieces)
        try:
            meta = ObjectInfo(
                name=name,
                bucket=self.bucket,
                nuid=nuid,
                size=len(content),
                chunks=len(pieces),
                digest=digest_field(digest),
                options={"max_chunk_size": CHUNK_BYTES},
            )
            body = msgspec.json.encode(meta)
            subject = self._meta_subject(name)
            signature = self._signatory.object(subject, digest.hex(), self._base) if self._signatory else {}
            # Store it without a rollup, because permission for rollups allows erasing all objects.
            await store(self._connection, subject, body, signature)
        except BusError:
            await self._purge(self._chunks(nuid))
            raise
        if before is not None:
            await self._purge(subject, keep=1)
            await self._remove_chunks({before.nuid})

    async def _find_stored(self, name: str, content: bytes) -> tuple[int, ObjectInfo | None]:
        """
        Return the sequence of the newest description of an object, and the valid description.

        For a digest, the valid description leads to the content. Its chunks are read, because any client could have stored it.
        """
        if not is_digest(name):
            return await self._described(name)
        subject = self._meta_subject(name)
        stored = await read_last(self._connection, self._stream, subject)
        if stored is None:
            return 0, None
        newest = readable_meta(name, self.bucket, stored)
        if newest is not None and newest.size == len(content):
            try:
                await self._read(name, newest, len(content))
            except ProtocolError:
                pass
            else:
                return stored.sequence, newest
        found = await self._find_copy(name, len(content))
        return stored.sequence, found[0] if found is not None else None

    async def _upload(self, pieces: list[bytes]) -> str:
        """
        Store chunks on a subject without other chunks, and return the last token of that subject.

        Raises:
            BusUnavailableError: Another client stored chunks between them each time.
        """
        for _ in range(UPLOADS):
            nuid = secrets.token_hex(11)
            try:
                await self._store_chunks(nuid, pieces)
                if len(pieces) < 2 or await self._are_alone(nuid, pieces):
                    return nuid
            except BusError:
                await self._purge(self._chunks(nuid))
                raise
            log.warning("another client stored chunks during an upload", extra={"bucket": self.bucket})
        raise BusUnavailableError(
            f"{self.bucket}: another client stored chunks between those of this upload, {UPLOADS} times; stop that client"
        )

    async def _are_alone(self, nuid: str, pieces: list[bytes]) -> bool:
        """Whether no other chunk is stored between these chunks. Later chunks are harmless."""
        digest, count = hashlib.sha256(), 0
        async for stored in read_all(self._connection, self._stream, self._chunks(nuid)):
            digest.update(stored.body)
            count += 1
            if count == len(pieces):
                break
        # A lagging replica has fewer chunks, but those are in order.
        return count < len(pieces) or digest.digest() == hashlib.sha256(b"".join(pieces)).digest()

    async def _renew(self, name: str, meta: ObjectInfo, sequence: int) -> None:
        """
        Store the description of an object again, so that the object has the age of a new one.

        Raises:
            RevisionError: The description with this sequence is no longer the newest, so its chunks may have been removed.
        """
        subject = self._meta_subject(name)
        signature = self._signatory.object(subject, meta.hex_digest, self._base) if self._signatory else {}
        headers = {EXPECTED_SEQUENCE: str(sequence), **signature}
        await store(self._connection, subject, msgspec.json.encode(meta), headers)

    async def remove(self, name: str, revision: int) -> bool:
        """See `Objects.remove`."""
        self._refuse_mirror(await call(self._connection, f"STREAM.INFO.{self._stream}"))
        sequence, meta = await self._described(name)
        if meta is None or sequence != revision:
            return False
        subject = self._meta_subject(name)
        nuids = {meta.nuid}
        async for stored in read_all(self._connection, self._stream, subject):
            if (older := readable_meta(name, self.bucket, stored)) is not None:
                nuids.add(older.nuid)
        # Purge only up to this revision: a description stored meanwhile stays, and `_renew` fails after this.
        await call(self._connection, f"STREAM.PURGE.{self._stream}", {"filter": subject, "seq": revision + 1})
        newer = await self._described_since(name, revision)
        await self._remove_chunks(nuids - ({newer.nuid} if newer is not None else set()))
        return newer is None

    def _refuse_mirror(self, info: dict[str, Any]) -> None:
        """
        Check that the stream is not the mirror of a site. The center may still have the object. If it used it again, it would
        store only the description, and the site would lack the chunks.
        """
        if info["config"].get("mirror"):
            raise read_only(self._stream, is_write=False)

    async def _described_since(self, name: str, revision: int) -> ObjectInfo | None:
        """
        Return the description that was stored after a purged revision; None if there is none.

        Raises:
            BusUnavailableError: A replica still has the purged messages.
        """
        patience = RetryWindow()
        while True:
            sequence, meta = await self._described(name)
            if not sequence or sequence > revision:
                return meta
            if not await patience.pause():
                raise BusUnavailableError(f"{name}: a replica of {self.bucket} lags behind; try again")

    async def trim(self) -> None:
        """See `Objects.trim`."""
        question = {"subjects_filter": f"$O.{self.bucket}.M.*"}
        info = await call(self._connection, f"STREAM.INFO.{self._stream}", question)
        self._refuse_mirror(info)
        for subject, count in (info["state"].get("subjects") or {}).items():
            if count > 1 and await self._is_newest_good(decode_name(subject.rpartition(".")[2])):
                await call(self._connection, f"STREAM.PURGE.{self._stream}", {"filter": subject, "keep": 1})
        await self._remove_unreferenced()

    async def _is_newest_good(self, name: str) -> bool:
        """Whether the newest description may replace earlier ones. For a digest, a genuine description is first stored again."""
        if not is_digest(name):
            return True
        subject = self._meta_subject(name)
        stored = await read_last(self._connection, self._stream, subject)
        found = await self._find_copy(name, FIND_LIMIT_BYTES)
        if stored is None or found is None:
            return False
        newest = readable_meta(name, self.bucket, stored)
        if newest is not None and (newest.nuid, newest.size) == (found[0].nuid, found[0].size):
            return newest.hex_digest == name
        try:
            await self._renew(name, found[0], stored.sequence)
        except (RevisionError, BusDeniedError):
            return (
                False  # another command stored it meanwhile, or this operator may not store bundles: keep all
            )
        return True

    async def _remove_unreferenced(self) -> None:
        """Remove chunks of unfinished uploads, and chunks of removed descriptions."""
        question = {"subjects_filter": f"$O.{self.bucket}.C.*"}
        info = await call(self._connection, f"STREAM.INFO.{self._stream}", question)
        oldest = parse_time(info["ts"]) - timedelta(seconds=UPLOAD_S)
        subjects = set(info["state"].get("subjects") or {})
        for subject in subjects - {self._chunks(nuid) for nuid in await self._referenced()}:
            stored = await read_last(self._connection, self._stream, subject)
            if stored is not None and stored.time < oldest:
                await self._purge(subject)

    async def _referenced(self) -> set[str]:
        """Return the chunk subjects in all descriptions; any client can describe chunks of another object."""
        found = set()
        async for stored in read_all(self._connection, self._stream, f"$O.{self.bucket}.M.*"):
            if (meta := readable_meta(stored.subject, self.bucket, stored)) is not None:
                found.add(meta.nuid)
        return found

    async def _remove_chunks(self, nuids: Iterable[str]) -> None:
        """Remove the chunks of removed descriptions, except those that another description names."""
        for nuid in set(nuids) - await self._referenced():
            await self._purge(self._chunks(nuid))

    async def digest(self, name: str, at_least: int = 0) -> str | None:
        """See `Objects.digest`."""
        if not is_digest(name):
            meta = await self._meta(name, at_least)
            return None if meta is None else meta.hex_digest
        subject = self._meta_subject(name)
        stored = await read_last(self._connection, self._stream, subject, at_least)
        if stored is None:
            return None
        newest = readable_meta(name, self.bucket, stored)
        if newest is not None and newest.hex_digest == name:
            return name
        return name if any(True for _ in await self._candidates(name, FIND_LIMIT_BYTES)) else None

    async def signature(self, name: str) -> tuple[str, str]:
        """See `Objects.signature`."""
        subject = self._meta_subject(name)
        stored = await read_last(self._connection, self._stream, subject)
        return subject, stored.headers.get(SIGNATURE_HEADER, "") if stored is not None else ""

    async def watch_changes(
        self, name: str, on_change: Callable[[int], None]
    ) -> Callable[[], Awaitable[None]]:
        """See `Objects.watch_changes`."""
        subject = self._meta_subject(name)
        limit = NoticeLimit(lambda _key, revision: on_change(revision))

        def on_notification(message: Message) -> None:
            if revision := notice_revision(message.headers, self._stream, subject):
                limit.receive(name, revision)

        made = await self._connection.subscribe(
            [notification_subject(self.bucket, encode_name(name))], on_notification
        )

        async def stop() -> None:
            limit.close()
            await self._connection.unsubscribe(made)

        return stop

    async def _meta(self, name: str, at_least: int = 0) -> ObjectInfo | None:
        return (await self._described(name, at_least))[1]

    async def _described(self, name: str, at_least: int = 0) -> tuple[int, ObjectInfo | None]:
        """Return the sequence and the content of the newest description of an object; 0 and None if nothing is stored."""
        stored = await read_last(self._connection, self._stream, self._meta_subject(name), at_least)
        return (0, None) if stored is None else (stored.sequence, decode_meta(name, self.bucket, stored))

    async def _store_chunks(self, nuid: str, pieces: list[bytes]) -> None:
        """Store chunks, several at a time; the broker keeps the order of one connection."""
        subject = self._chunks(nuid)
        for at in range(0, len(pieces), WINDOW):
            try:
                async with asyncio.TaskGroup() as group:
                    for place, piece in enumerate(pieces[at : at + WINDOW], at):
                        group.create_task(store(self._connection, subject, piece), name=f"chunk:{place}")
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None

    async def _purge(self, subject: str, keep: int = 0) -> None:
        """Remove unreferenced chunks; a failure only wastes space."""
        question = {"filter": subject} | ({"keep": keep} if keep else {})
        try:
            await call(self._connection, f"STREAM.PURGE.{self._stream}", question)
        except BusDeniedError:
            log.debug(
                "a replaced object stays in its store: purging needs --admin", extra={"subject": subject}
            )
        except BusError as err:
            log.warning("a replaced object could not be removed", extra={"error": str(err)})

    def _meta_subject(self, name: str) -> str:
        return f"$O.{self.bucket}.M.{encode_name(name)}"

    def _chunks(self, nuid: str) -> str:
        return f"$O.{self.bucket}.C.{nuid}"
