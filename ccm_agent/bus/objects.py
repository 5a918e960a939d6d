"""
Bundles in an object store, in the layout that all NATS clients share (ADR-20).

The meta message of a name has the subject of its chunks and their digest. A read takes one direct get for the meta message and
one for each page of chunks; content is returned only after its digest is verified.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import secrets
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.bus.change_notices import NoticeLimit, notice_revision
from ccm_agent.bus.signing import SIGNATURE_HEADER
from ccm_agent.bus.streams import (
    EXPECTED_SEQUENCE,
    RetryWindow,
    call,
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
from ccm_agent.model.untrusted_json import decode_foreign

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ccm_agent.bus.connection import Connection
    from ccm_agent.bus.messages import Message
    from ccm_agent.bus.signatory import Signatory
    from ccm_agent.bus.streams import Stored

log = logging.getLogger(__name__)

CHUNK_BYTES = 128 * 1024
"""The chunk size of other clients; a chunk must fit into one message."""

WINDOW = 8
"""The number of unacknowledged chunks: one at a time would cost a round trip each."""

_DIGEST = "SHA-256="


class _Meta(Struct, omit_defaults=True):
    """The meta message of an object; fields as in NATS ADR-20."""

    name: str = ""
    bucket: str = ""
    nuid: str = ""
    size: int = 0
    chunks: int = 0
    digest: str = ""
    mtime: str = ""
    deleted: bool = False
    options: dict[str, Any] = {}


class _UnfinishedError(ProtocolError):
    """Some chunks of the object are missing."""


class NatsObjects:
    """The `Objects` port on a broker: one object store."""

    def __init__(self, connection: Connection, bucket: str, signatory: Signatory | None = None) -> None:
        """
        Take an object store.

        Args:
            connection: Where it is.
            bucket: Its name.
            signatory: Signs stored objects; None: they are not signed.
        """
        self.bucket = bucket
        self._connection = connection
        self._stream = f"OBJ_{bucket}"
        self._signatory = signatory

    async def all(self) -> list[StoredObject]:
        """See `Objects.all`."""
        found = []
        for stored in await read_newest(self._connection, self._stream, [f"$O.{self.bucket}.M.*"]):
            name = _decode_name(stored.subject.rpartition(".")[2])
            try:
                meta = _decode_meta(name, self.bucket, stored)
            except ProtocolError:
                meta = _Meta()
            if meta is not None:
                found.append(
                    StoredObject(
                        name=name,
                        digest=_hex(meta.digest),
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
        meta = await self._meta(name)
        if meta is None:
            raise NotFoundError(f"{name}: not in {self.bucket}; it was removed, or never stored there")
        if meta.size > limit_bytes:
            raise ProtocolError(f"{name}: {meta.size} bytes, more than the {limit_bytes} that are taken")
        chunks: list[bytes] = []
        digest, size = hashlib.sha256(), 0
        if meta.size:
            async for stored in read_all(self._connection, self._stream, self._chunks(meta.nuid)):
                size += len(stored.body)
                if size > meta.size:
                    break
                digest.update(stored.body)
                chunks.append(stored.body)
        if size < meta.size:
            raise _UnfinishedError(f"{name}: {self.bucket} holds {size} of its {meta.size} bytes")
        if size > meta.size or digest.hexdigest() != _hex(meta.digest):
            raise ProtocolError(f"{name}: what {self.bucket} holds has another digest than it says; refused")
        return b"".join(chunks)

    async def put(self, name: str, content: bytes) -> None:
        """See `Objects.put`."""
        digest = hashlib.sha256(content).digest()
        patience = RetryWindow()
        while True:
            sequence, before = await self._described(name)
            if before is None or before.size != len(content) or _hex(before.digest) != digest.hex():
                break
            try:
                await self._renew(name, before, sequence)
            except RevisionError:  # it was removed or stored meanwhile
                if await patience.pause():
                    continue
                break
            return
        nuid = secrets.token_hex(11)
        pieces = [content[at : at + CHUNK_BYTES] for at in range(0, len(content), CHUNK_BYTES)]
        try:
            await self._store_chunks(nuid, pieces)
            meta = _Meta(
                name=name,
                bucket=self.bucket,
                nuid=nuid,
                size=len(content),
                chunks=len(pieces),
                digest=_DIGEST + base64.urlsafe_b64encode(digest).decode(),
                options={"max_chunk_size": CHUNK_BYTES},
            )
            body = msgspec.json.encode(meta)
            subject = self._meta_subject(name)
            signature = self._signatory.object(subject, digest.hex()) if self._signatory else {}
            # Without a rollup, because permission for it allows erasing all objects.
            await store(self._connection, subject, body, signature)
        except BusError:
            await self._purge(self._chunks(nuid))
            raise
        if before is not None:
            await self._purge(self._chunks(before.nuid))
            await self._purge(subject, keep=1)

    async def _renew(self, name: str, meta: _Meta, sequence: int) -> None:
        """
        Store the description of an object again, so that the object is as young as one that was stored just now.

        Raises:
            RevisionError: The description with this sequence is not the newest any more: its chunks may be gone.
        """
        subject = self._meta_subject(name)
        signature = self._signatory.object(subject, _hex(meta.digest)) if self._signatory else {}
        headers = {EXPECTED_SEQUENCE: str(sequence), **signature}
        await store(self._connection, subject, msgspec.json.encode(meta), headers)

    async def remove(self, name: str, revision: int) -> bool:
        """See `Objects.remove`."""
        sequence, meta = await self._described(name)
        if meta is None or sequence != revision:
            return False
        subject = self._meta_subject(name)
        # Only up to this revision: a description that is stored meanwhile stays, and `_renew` fails after this.
        await call(self._connection, f"STREAM.PURGE.{self._stream}", {"filter": subject, "seq": revision + 1})
        newer = await self._described_since(name, revision)
        if newer is None or newer.nuid != meta.nuid:
            await self._purge(self._chunks(meta.nuid))
        return newer is None

    async def _described_since(self, name: str, revision: int) -> _Meta | None:
        """
        The description that was stored after a revision that was just purged, if there is one.

        Raises:
            BusUnavailableError: A replica still has what was purged.
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
        for subject, count in (info["state"].get("subjects") or {}).items():
            if count > 1:
                await call(self._connection, f"STREAM.PURGE.{self._stream}", {"filter": subject, "keep": 1})

    async def digest(self, name: str, at_least: int = 0) -> str | None:
        """See `Objects.digest`."""
        meta = await self._meta(name, at_least)
        return None if meta is None else _hex(meta.digest)

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
            [notification_subject(self.bucket, _token(name))], on_notification
        )

        async def stop() -> None:
            limit.close()
            await self._connection.unsubscribe(made)

        return stop

    async def _meta(self, name: str, at_least: int = 0) -> _Meta | None:
        return (await self._described(name, at_least))[1]

    async def _described(self, name: str, at_least: int = 0) -> tuple[int, _Meta | None]:
        """The sequence and the content of the newest description of an object; 0 and None if nothing is stored."""
        stored = await read_last(self._connection, self._stream, self._meta_subject(name), at_least)
        return (0, None) if stored is None else (stored.sequence, _decode_meta(name, self.bucket, stored))

    async def _store_chunks(self, nuid: str, pieces: list[bytes]) -> None:
        """Store chunks with several in flight; the broker keeps the order of one connection."""
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
        return f"$O.{self.bucket}.M.{_token(name)}"

    def _chunks(self, nuid: str) -> str:
        return f"$O.{self.bucket}.C.{nuid}"


def _decode_meta(name: str, bucket: str, stored: Stored) -> _Meta | None:
    """
    Decode the description of an object; None if there is no such object any more.

    Raises:
        ProtocolError: It is not the description of a plain object.
    """
    if not stored.body or stored.copied:
        return None  # a copied meta message is not valid: `put` writes a new one
    try:
        meta = decode_foreign(stored.body, _Meta)
    except msgspec.MsgspecError as err:
        raise ProtocolError(f"{name}: its description in {bucket} cannot be read: {err}") from err
    if meta.deleted:
        return None
    if not meta.nuid.isalnum() or meta.size < 0 or "link" in meta.options:
        raise ProtocolError(f"{name}: its description in {bucket} is not one of a plain object")
    return meta


def _token(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _decode_name(token: str) -> str:
    """The name of an object by the token of its subject; the token itself if it is not an encoded name."""
    try:
        return base64.urlsafe_b64decode(token).decode()
    except ValueError:
        return token


def _hex(digest: str) -> str:
    """Convert `SHA-256=<base64>` to hex; "" for other text."""
    try:
        return base64.urlsafe_b64decode(digest.removeprefix(_DIGEST)).hex()
    except ValueError:
        return ""
