"""
The records and presences of all nodes, from a cache. A command reads only the changes since the previous command.

The result is the same as that of a full read. The current keys of the stream are also read, because keys that expired or were
purged leave no message. A stream that was restored from a backup has different messages at the same sequences. Such a stream
is recognized by the time of its first later message and by the newest unchanged entry.
"""

from __future__ import annotations

import asyncio
import logging
from operator import attrgetter

from msgspec import Struct

from ccm_agent.model.errors import BusError
from ccm_agent.model.ports import BucketKeys, KeyChanges, KeyValueEntry
from ccm_ctl.fleet.nodes.entry_parts import EntryParts, TornFileError
from ccm_ctl.fleet.nodes.inventory_file import InventoryFile
from ccm_ctl.fleet.nodes.stored_nodes import KINDS, CachedEntries, StoredNodes

log = logging.getLogger(__name__)

LEAST_ENTRIES = 2_000
"""With fewer entries than this, reading them is faster than maintaining a file."""

REWRITE_SHARE = 50
"""
The file is written again if more than one in this many entries has changed. From this share on, reading the changes costs as much
as writing the file.
"""

ADDED_MOST = 1_000
"""The maximum number of keys that are read by name because a lagging replica did not return them."""

_revision = attrgetter("revision")


class CachedNodes:
    """Reads the entries of all nodes with the help of a cache file."""

    def __init__(self, bucket: KeyChanges, file: InventoryFile, *, least: int = LEAST_ENTRIES) -> None:
        """
        Store the bucket and the file.

        Args:
            bucket: CCM_NODES.
            file: The cache file.
            least: With fewer entries, no file is written.
        """
        self._bucket = bucket
        self._file = file
        self._least = least

    async def read(self) -> StoredNodes:
        """
        Return the newest entries of all nodes.

        Raises:
            BusError: The broker does not answer.
        """
        known = await asyncio.to_thread(self._file.open)
        if known is None:
            return await self._read_all()
        try:
            return await self._read_on(known)
        except _ForeignError as err:
            log.debug("the cached nodes are not used", extra={"reason": str(err)})
            known.close()
            await asyncio.to_thread(self._file.remove)
            return await self._read_all()
        except BaseException:
            known.close()
            raise

    async def _read_on(self, known: EntryParts) -> StoredNodes:
        """
        Return the newest entries. Unchanged entries stay in the file.

        Raises:
            _ForeignError: The cached entries are from another stream.
            BusError: The broker does not answer.
        """
        changes = [await self._read_since(kind, known) for kind in KINDS]
        entries, places = dict[str, KeyValueEntry](), dict[str, int]()
        for one in changes:
            entries |= one.entries
            places |= one.places
        cached = CachedEntries(parts=known, places=places, bucket=self._bucket, remove=self._file.remove)
        stored = StoredNodes(entries, cached)
        if sum(one.count for one in changes) * REWRITE_SHARE >= len(entries) + len(places):
            # the next command continues after the newest cached entry, so all earlier changes must have been read
            limits = {kind: one.up_to for kind, one in zip(KINDS, changes, strict=True)}
            await self._keep(known.index.created, stored, len(entries) + len(places), limits)
        return stored

    async def _read_all(self) -> StoredNodes:
        found = await self._bucket.matching([f"{kind}.>" for kind in KINDS], deletions=True)
        stored = StoredNodes({entry.key: entry for entry in found})
        if len(found) >= self._least:
            try:
                keys = await self._bucket.list_keys(f"{KINDS[0]}.>")
            except BusError as err:
                log.debug("the nodes are not cached", extra={"reason": str(err)})
            else:
                await self._keep(keys.created, stored, len(found))
        return stored

    async def _read_since(self, kind: str, known: EntryParts) -> _Changes:
        """
        Return the changes to the cached entries of a kind, including deletions. Keys that are read by name may have later
        revisions than `up_to`.

        Raises:
            _ForeignError: The cached entries are from another stream.
            BusError: The broker does not answer.
        """
        index, pattern = known.index, f"{kind}.>"
        prefix = pattern[:-1]
        mine = {key: place for place, key in enumerate(index.keys) if key.startswith(prefix)}
        if not mine:
            raise _ForeignError(f"it has no entry of the kind {kind}")
        last = max(mine.values(), key=index.revisions.__getitem__)
        up_to = index.revisions[last]
        changes = await self._bucket.changes(pattern, up_to, index.created_at(last))
        try:
            keys = await self._bucket.list_keys(pattern)
        except BusError as err:
            raise _ForeignError(f"the keys cannot be listed: {err}") from err
        _check_stream(keys, index.created, up_to)
        for one in changes:
            if one.revision <= up_to and (one.key not in mine or await _entry(known, mine[one.key]) != one):
                raise _ForeignError("the stream was restored and written to")
        new = {one.key: one for one in changes if one.revision > up_to and one.key in keys.keys}
        left = mine.keys() & new.keys() | mine.keys() - keys.keys
        kept = {key: place for key, place in mine.items() if key not in left} if left else mine
        if kept:
            newest = max(kept.values(), key=index.revisions.__getitem__)
            await self._check_stored(await _entry(known, newest))
        added = keys.keys.difference(kept, new)
        if len(added) > ADDED_MOST:
            raise _ForeignError("it lacks entries")
        new |= {one.key: one for one in await self._bucket.matching(sorted(added), deletions=True)}
        return _Changes(
            entries=new,
            places=kept,
            count=len(new) + len(mine) - len(kept),
            up_to=max((up_to, *map(_revision, changes))),
        )

    async def _check_stored(self, entry: KeyValueEntry) -> None:
        """Check that an entry is in the stream. If the newest unchanged entry is in the stream, so are the earlier ones."""
        try:
            stored = await self._bucket.newest(entry.key)
        except BusError as err:
            raise _ForeignError(f"{entry.key} cannot be read: {err}") from err
        if stored != entry:
            raise _ForeignError(f"the stream has another {entry.key}")

    async def _keep(
        self, created: str, stored: StoredNodes, count: int, limits: dict[str, int] | None = None
    ) -> None:
        """Write the entries to the file, up to the revision limit of their kind, or all of them without `limits`."""

        def is_kept(entry: KeyValueEntry) -> bool:
            return not limits or entry.revision <= limits[entry.key.partition(".")[0]]

        if count < self._least:
            await asyncio.to_thread(self._file.remove)
        else:
            await asyncio.to_thread(self._file.write, created, stored.entries(is_kept))


class _Changes(Struct, frozen=True, kw_only=True):
    """
    The changes to the cached entries of a kind.

    Attributes:
        entries: The changed and added entries, by key.
        places: The places of the unchanged entries, by key.
        count: The number of changed entries.
        up_to: The revision up to which all changes were read.
    """

    entries: dict[str, KeyValueEntry]
    places: dict[str, int]
    count: int
    up_to: int


class _ForeignError(Exception):
    """The cached entries are not from an earlier state of this stream. The text contains the reason."""


def _check_stream(keys: BucketKeys, created: str, revision: int) -> None:
    if keys.created != created or keys.revision < revision or keys.history != 1:
        raise _ForeignError("the stream was recreated or restored")


async def _entry(known: EntryParts, place: int) -> KeyValueEntry:
    try:
        return await asyncio.to_thread(known.read, place)
    except TornFileError as err:
        raise _ForeignError(str(err)) from err
