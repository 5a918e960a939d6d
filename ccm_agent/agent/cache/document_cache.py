"""
Caches documents on disk, and uses them if the newest one cannot be read from the broker or the web server.

Only reads use this cache. A document with an invalid stamp is never stored; the last good one is used, and the refusal is
published. A deleted key is handled the same way: the configuration or a request names the document, so the key is missing by
accident. (If the absence of a key has a meaning, as with assigned facts, the key is not read through this cache.)
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shutil
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from ccm_agent.agent.trust.revision_guard import RevisionGuard
from ccm_agent.bus.forwarding_bucket import ForwardingReader
from ccm_agent.bus.subjects import encode_token, parse_kv_url
from ccm_agent.hiera.sources import plain_refused, read_stamp
from ccm_agent.model.errors import (
    BusDeniedError,
    BusError,
    DownloadError,
    ProtocolError,
    RevisionGoneError,
)
from ccm_agent.model.ports import Download, KeyReader, KeyValueEntry, Transfer, Transferred
from ccm_agent.model.secret import mask_url
from ccm_agent.storage.state_file import StateFile

log = logging.getLogger(__name__)


_LASTING = (ProtocolError, BusDeniedError, RevisionGoneError)
"""Errors that remain until an operator acts."""


class _StoredEntry(Struct, kw_only=True):
    key: str
    value: bytes
    revision: int
    created: datetime


class CachedBucket(ForwardingReader):
    """A bucket, as `KeyReader`, that answers from disk while the broker is unavailable."""

    def __init__(
        self,
        inner: KeyReader,
        bucket: str,
        revision_guard: RevisionGuard,
        folder: Path,
        on_refused: Callable[[str, str], None],
        *,
        demand_stamps: bool | None = None,
    ) -> None:
        """
        Args:
            inner: The bucket on the broker.
            bucket: The name of the bucket.
            revision_guard: Checks the numbers of documents.
            folder: The folder of the stored documents.
            on_refused: Called once for a document that is refused or missing, with the reason, until that changes.
            demand_stamps: Whether a document without a stamp is also refused. None: only if signatures are currently required,
                or if the key had a stamped document and no signature can distinguish the new one from a copy.
        """
        super().__init__(inner)
        self._bucket = bucket
        self._revision_guard = revision_guard
        self._folder = folder
        self._pins = folder / "pinned" / encode_token(bucket)
        self._on_refused = on_refused
        self._demand_stamps = demand_stamps
        # The time of the write is also stored, because revisions of a rebuilt broker start at 1 again.
        self._kept: dict[str, tuple[int, datetime]] = {}
        self._reported: dict[str, str] = {}
        self._used_pins: set[str] | None = None
        self._numbers: dict[tuple[int, str], int] = {}
        self._dropping = asyncio.Lock()

    async def get(self, key: str, at_least: int = 0) -> KeyValueEntry | None:
        """
        See `KeyReader.get`. Returns the last good entry if the newest one is unavailable or missing; None if there was none.
        """
        path = self._folder / encode_token(self._bucket) / f"{encode_token(key)}.json"
        entry: KeyValueEntry | None = None
        trouble: BusError | None = None
        try:
            entry = await self._inner.get(key, at_least)
            if entry is not None:
                await self._check(entry)
        except BusError as err:
            trouble = err
        if entry is not None and trouble is None:
            self._reported.pop(key, None)
            if self._kept.get(key) != (entry.revision, entry.created):
                await self._keep(path, entry)
            return entry
        kept = await asyncio.to_thread(_read, path, key)
        if trouble is None:
            if kept is None:
                return None
            trouble = ProtocolError(
                f"kv://{self._bucket}/{key} was deleted; store a document there, `{{}}` for none"
            )
        self._report(key, trouble)
        if kept is None:
            raise trouble
        log.warning(
            "the last good document is used", extra={"key": f"{self._bucket}/{key}", "reason": str(trouble)}
        )
        return KeyValueEntry(key=key, value=kept.value, revision=kept.revision, created=kept.created)

    def _report(self, key: str, trouble: BusError) -> None:
        # Do not report that the broker is unavailable, because that does not need an operator.
        if isinstance(trouble, _LASTING) and self._reported.get(key) != str(trouble):
            self._reported[key] = str(trouble)
            self._on_refused(f"{self._bucket}/{key}", str(trouble))

    async def _check(self, entry: KeyValueEntry) -> None:
        if read_stamp(entry.value) is not None:
            await self._revision_guard.prepare(self._bucket, [entry.key])
            self._revision_guard.check(self._bucket, entry)
        elif self._refuses_plain:
            raise plain_refused(self._bucket, entry.key, "this node accepts only documents from `ccmctl`")
        elif self._demand_stamps is None and self._revision_guard.suspects_copy(self._bucket, entry.key):
            # No node can create a stamp, but any node can cause content from elsewhere to be copied here (ADR 12).
            raise plain_refused(
                self._bucket,
                entry.key,
                "the previous document was written by `ccmctl`, so this one may be a copy made by a node",
            )

    @property
    def _refuses_plain(self) -> bool:
        return self._revision_guard.refuses_plain if self._demand_stamps is None else self._demand_stamps

    async def _keep(self, path: Path, entry: KeyValueEntry) -> None:
        if await _store_entry(path, entry):
            self._kept[entry.key] = (entry.revision, entry.created)

    async def as_of(self, key: str, revision: int) -> KeyValueEntry | None:
        """See `KeyReader.as_of`. A stored result is not requested again, because earlier revisions do not change."""
        await self.drop_unused()
        path = self._pins / f"{revision}" / f"{encode_token(key)}.json"
        kept = await asyncio.to_thread(StateFile(path, _StoredEntry).load)
        is_kept = kept is not None and kept.key == key and kept.revision <= revision
        if kept is not None and is_kept and self._is_pinned(key, revision, kept.value):
            return KeyValueEntry(key=key, value=kept.value, revision=kept.revision, created=kept.created)
        entry = await self._inner.as_of(key, revision)
        if entry is not None:
            if read_stamp(entry.value) is not None or self._refuses_plain:
                self._revision_guard.check_pinned(self._bucket, entry)
            if not self._is_pinned(key, revision, entry.value):
                raise ProtocolError(
                    f"kv://{self._bucket}/{key}: at revision {revision} the broker's document is not the one with number "
                    f"{self._numbers[revision, key]}, which was assigned; assign again with --refresh"
                )
            await _store_entry(path, entry)
        return entry

    def pin_numbers(self, revision: int, numbers: Mapping[str, int]) -> None:
        """For a revision of the bucket, accept only documents with these numbers, by key."""
        self._numbers.update({(revision, key): number for key, number in numbers.items()})

    def _is_pinned(self, key: str, revision: int, value: bytes) -> bool:
        """Whether a document has the assigned number; True if that number is unknown."""
        wanted = self._numbers.get((revision, key))
        stamped = read_stamp(value)
        return wanted is None or (stamped.number if stamped is not None else 0) == wanted

    def forget_pins(self, used: Collection[int]) -> None:
        """Keep only the earlier revisions of the bucket that are in use; `drop_unused` removes the others from the disk."""
        names = {f"{revision}" for revision in used}
        self._used_pins = names if self._used_pins is None else self._used_pins & names
        self._numbers = {pin: number for pin, number in self._numbers.items() if pin[0] in used}

    @property
    def has_unused(self) -> bool:
        """Whether unused files may be on disk."""
        return self._used_pins is not None

    async def drop_unused(self) -> None:
        """Remove unused files from the disk."""
        async with self._dropping:
            if self._used_pins is not None:
                used, self._used_pins = self._used_pins, None
                await asyncio.to_thread(_drop_others, self._pins, used)


def _read(path: Path, key: str) -> _StoredEntry | None:
    kept = StateFile(path, _StoredEntry).load()
    return kept if kept is not None and kept.key == key else None


async def _store_entry(path: Path, entry: KeyValueEntry) -> bool:
    kept = _StoredEntry(key=entry.key, value=entry.value, revision=entry.revision, created=entry.created)
    return await StateFile(path, _StoredEntry).save(kept)


def _drop_others(folder: Path, names: set[str]) -> None:
    try:
        others = [path for path in folder.iterdir() if path.name not in names]
    except OSError:
        return
    for path in others:
        shutil.rmtree(path, ignore_errors=True)


class CachedBuckets:
    """Opens buckets for Hiera; the last good documents are used while the broker is unavailable."""

    def __init__(
        self,
        bucket: Callable[[str], KeyReader],
        revision_guard: RevisionGuard,
        folder: Path,
        on_refused: Callable[[str, str], None],
        *,
        demand_stamps: bool | None,
    ) -> None:
        """
        See `CachedBucket` for the arguments.

        Args:
            bucket: Returns a bucket of the broker, given its name.
        """
        self._bucket = bucket
        self._revision_guard = revision_guard
        self._folder = folder
        self._on_refused = on_refused
        self._demand_stamps = demand_stamps
        self._open: dict[str, CachedBucket] = {}

    async def open(self, name: str) -> CachedBucket:
        """Return a bucket by name."""
        if name not in self._open:
            self._open[name] = CachedBucket(
                self._bucket(name),
                name,
                self._revision_guard,
                self._folder,
                self._on_refused,
                demand_stamps=self._demand_stamps,
            )
        return self._open[name]

    async def fetch_pinned(self, url: str, pins: dict[str, int], numbers: Mapping[str, int]) -> None:
        """
        Ensure that the pinned revision of a document is on disk, if the document is pinned.

        Args:
            url: The URL of the document.
            pins: The pinned revisions by bucket.
            numbers: The numbers of pinned documents, by key; a document with another number is refused. Other keys are not
                checked.

        Raises:
            BusError: The document cannot be read.
        """
        name, key = parse_kv_url(url) or ("", "")
        if pins.get(name):
            bucket = await self.open(name)
            bucket.pin_numbers(pins[name], numbers)
            await bucket.as_of(key, pins[name])

    async def forget_pins(self, name: str, used: Collection[int]) -> None:
        """Keep only these earlier revisions of a bucket."""
        (await self.open(name)).forget_pins(used)

    @property
    def has_unused(self) -> bool:
        """Whether unused files may be on disk."""
        return any(each.has_unused for each in self._open.values())

    async def drop_unused(self) -> None:
        """Remove unused files from the disk."""
        for each in list(self._open.values()):
            await each.drop_unused()


FETCH_S = 60.0
"""The time limit of a fetch. A server that sends a byte from time to time must not prevent a run from starting."""


class _StoredDownload(Struct, kw_only=True):
    url: str
    content: bytes
    sha256: str
    etag: str = ""
    last_modified: str = ""


class CachedDownload:
    """A `Download` for small documents that answers from disk while the server is unavailable. It forwards `save`."""

    def __init__(self, inner: Download, folder: Path) -> None:
        """
        Args:
            inner: Downloads from the web.
            folder: The folder of the stored documents.
        """
        self._inner = inner
        self._folder = folder

    async def fetch(self, transfer: Transfer) -> Transferred:
        """See `Download.fetch`. Returns the last good document if the newest one is unavailable or has not changed."""
        name = mask_url(transfer.url)
        path = self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"
        kept = await asyncio.to_thread(StateFile(path, _StoredDownload).load)
        if kept is not None and (kept.url != name or hashlib.sha256(kept.content).hexdigest() != kept.sha256):
            kept = None
        asked = transfer
        if kept is not None:
            asked = Transfer(
                url=transfer.url,
                headers=transfer.headers,
                username=transfer.username,
                password=transfer.password,
                etag=kept.etag,
                last_modified=kept.last_modified,
                limit_bytes=transfer.limit_bytes,
            )
        try:
            done = await self._fetch(asked)
        except DownloadError as err:
            if kept is None:
                raise
            log.warning("the last good document is used", extra={"url": name, "reason": str(err)})
            return _answer(kept)
        if kept is not None and (done.is_unchanged or done.sha256 == kept.sha256):
            return _answer(kept)
        await self._keep(path, name, done)
        return done

    async def save(
        self, transfer: Transfer, path: str, on_progress: Callable[[int, int], None] | None = None
    ) -> Transferred:
        return await self._inner.save(transfer, path, on_progress)

    async def _fetch(self, transfer: Transfer) -> Transferred:
        try:
            async with asyncio.timeout(FETCH_S):
                return await self._inner.fetch(transfer)
        except TimeoutError:
            raise DownloadError(
                f"{mask_url(transfer.url)}: not fetched in {FETCH_S:g} s; check the server and the network"
            ) from None

    async def _keep(self, path: Path, name: str, done: Transferred) -> None:
        kept = _StoredDownload(
            url=name,
            content=done.content,
            sha256=done.sha256,
            etag=done.etag,
            last_modified=done.last_modified,
        )
        await StateFile(path, _StoredDownload).save(kept)


def _answer(kept: _StoredDownload) -> Transferred:
    return Transferred(
        content=kept.content,
        size_bytes=len(kept.content),
        sha256=kept.sha256,
        etag=kept.etag,
        last_modified=kept.last_modified,
    )
