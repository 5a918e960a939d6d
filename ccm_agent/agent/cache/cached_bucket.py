"""
Buckets whose documents outlive the broker: what was read once is kept on disk, and stands when it cannot be read again.

Reads alone go through here. A document whose stamp is wrong is never kept; the last right one stands, and the refusal is told.
So it is with a key that was deleted: whoever reads here was told by name which document it needs, and as long as that is so the
key is missing by accident. (Where the absence of a key says something, as with assigned facts, it is not read through this.)
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from ccm_agent.agent.cache.revision_guard import RevisionGuard
from ccm_agent.agent.cache.state_file import load_state, save_state
from ccm_agent.bus.subjects import encode_token
from ccm_agent.hiera.sources import read_stamp
from ccm_agent.model.errors import BusDeniedError, BusError, FileError, ProtocolError, RevisionGoneError
from ccm_agent.model.ports import Entry, KeyValue

log = logging.getLogger(__name__)


_LASTING = (ProtocolError, BusDeniedError, RevisionGoneError)
"""Why a document cannot be read until an operator does something."""


class _Kept(Struct, kw_only=True):
    key: str
    value: bytes
    revision: int
    created: datetime


class CachedBucket:
    """A bucket, as `KeyValue`, that answers from disk while the broker does not."""

    def __init__(
        self,
        inner: KeyValue,
        bucket: str,
        revision_guard: RevisionGuard,
        folder: Path,
        on_refused: Callable[[str, str], None],
        *,
        demand_stamps: bool | None = None,
    ) -> None:
        """
        Nothing is read yet.

        Args:
            inner: The bucket on the broker.
            bucket: Its name.
            stamps: Numbers of documents.
            folder: Where documents are kept.
            on_refused: Told of a document that is refused or gone: which, and why; once until that changes.
            demand_stamps: A document without a stamp is refused too; None: where signatures are demanded.
        """
        self._inner = inner
        self._bucket = bucket
        self._revision_guard = revision_guard
        self._folder = folder
        self._pins = folder / "pinned" / encode_token(bucket)
        self._on_refused = on_refused
        self._demand_stamps = demand_stamps
        # when it was written, too: a rebuilt broker counts from 1 again
        self._kept: dict[str, tuple[int, datetime]] = {}
        self._told: dict[str, str] = {}
        self._used_pins: set[str] | None = None
        self._dropping = asyncio.Lock()

    async def get(self, key: str, at_least: int = 0) -> Entry | None:
        """See `KeyValue.get`; the last good entry while the newest one cannot be had or is gone, None if there was none."""
        path = self._folder / encode_token(self._bucket) / f"{encode_token(key)}.json"
        entry: Entry | None = None
        trouble: BusError | None = None
        try:
            entry = await self._inner.get(key, at_least)
            if entry is not None:
                self._check(entry)
        except BusError as err:
            trouble = err
        if entry is not None and trouble is None:
            self._told.pop(key, None)
            if self._kept.get(key) != (entry.revision, entry.created):
                await self._keep(path, entry)
            return entry
        kept = await asyncio.to_thread(_read, path, key)
        if trouble is None:
            if kept is None:
                return None
            trouble = ProtocolError(
                f"kv://{self._bucket}/{key} was deleted; put a document there, {{}} for none"
            )
        self._tell(key, trouble)
        if kept is None:
            raise trouble
        log.warning(
            "the last good document stands", extra={"key": f"{self._bucket}/{key}", "reason": str(trouble)}
        )
        return Entry(key=key, value=kept.value, revision=kept.revision, created=kept.created)

    def _tell(self, key: str, trouble: BusError) -> None:
        # not that the broker is away, which ends by itself
        if isinstance(trouble, _LASTING) and self._told.get(key) != str(trouble):
            self._told[key] = str(trouble)
            self._on_refused(f"{self._bucket}/{key}", str(trouble))

    def _check(self, entry: Entry) -> None:
        if read_stamp(entry.value) is not None:
            self._revision_guard.check(self._bucket, entry)
        elif self._refuses_plain:
            raise ProtocolError(
                f"kv://{self._bucket}/{entry.key} is not stamped, and this node demands it: "
                "write it with `ccmctl data put`"
            )

    @property
    def _refuses_plain(self) -> bool:
        return self._revision_guard.refuses_plain if self._demand_stamps is None else self._demand_stamps

    async def _keep(self, path: Path, entry: Entry) -> None:
        if await _store(path, entry):
            self._kept[entry.key] = (entry.revision, entry.created)

    async def as_of(self, key: str, revision: int) -> Entry | None:
        """See `KeyValue.as_of`; what was read once is not asked for again, for the past does not change."""
        await self.drop_unused()
        path = self._pins / f"{revision}" / f"{encode_token(key)}.json"
        kept = await asyncio.to_thread(load_state, path, _Kept)
        if kept is not None and kept.key == key and kept.revision <= revision:
            return Entry(key=key, value=kept.value, revision=kept.revision, created=kept.created)
        entry = await self._inner.as_of(key, revision)
        if entry is not None:
            if read_stamp(entry.value) is not None or self._refuses_plain:
                self._revision_guard.author(self._bucket, entry)
            await _store(path, entry)
        return entry

    def forget_pins(self, used: Collection[int]) -> None:
        """Use nothing that is kept of the past, but for these revisions of the bucket; `drop_unused` takes it from the disk."""
        names = {f"{revision}" for revision in used}
        self._used_pins = names if self._used_pins is None else self._used_pins & names

    @property
    def has_unused(self) -> bool:
        """Something may be on disk that is used no more."""
        return self._used_pins is not None

    async def drop_unused(self) -> None:
        """Take from the disk what is used no more."""
        async with self._dropping:
            if self._used_pins is not None:
                used, self._used_pins = self._used_pins, None
                await asyncio.to_thread(_drop_others, self._pins, used)

    async def newest(self, key: str, at_least: int = 0) -> Entry | None:
        """See `KeyValue.newest`."""
        return await self._inner.newest(key, at_least)

    async def matching(
        self,
        patterns: Sequence[str],
        *,
        obeyed: bool = False,
        at_least: int = 0,
        deletions: bool = False,
    ) -> list[Entry]:
        """See `KeyValue.matching`."""
        return await self._inner.matching(patterns, obeyed=obeyed, at_least=at_least, deletions=deletions)

    async def put(self, key: str, value: bytes, *, ttl_s: int | None = None) -> int:
        """See `KeyValue.put`."""
        return await self._inner.put(key, value, ttl_s=ttl_s)

    async def update(self, key: str, value: bytes, revision: int, *, ttl_s: int | None = None) -> int:
        """See `KeyValue.update`."""
        return await self._inner.update(key, value, revision, ttl_s=ttl_s)

    async def delete(self, key: str, *, number: int = 0) -> None:
        """See `KeyValue.delete`."""
        await self._inner.delete(key, number=number)

    async def pokes(self, pattern: str, on_poke: Callable[[str, int], None]) -> Callable[[], Awaitable[None]]:
        """See `KeyValue.pokes`."""
        return await self._inner.pokes(pattern, on_poke)


def _read(path: Path, key: str) -> _Kept | None:
    kept = load_state(path, _Kept)
    return kept if kept is not None and kept.key == key else None


async def _store(path: Path, entry: Entry) -> bool:
    kept = _Kept(key=entry.key, value=entry.value, revision=entry.revision, created=entry.created)
    try:
        await save_state(path, kept)
    except FileError as err:
        log.warning("a document is not kept on disk", extra={"reason": str(err)})
        return False
    return True


def _drop_others(folder: Path, names: set[str]) -> None:
    try:
        others = [path for path in folder.iterdir() if path.name not in names]
    except OSError:
        return
    for path in others:
        shutil.rmtree(path, ignore_errors=True)
