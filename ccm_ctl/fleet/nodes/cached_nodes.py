"""
The records and presences of all nodes, of which a command reads only what changed since the last one.

The result equals a whole read. Keys that expired or were purged leave no message, so the keys that the stream has now are read,
too. A stream that was put back to a backup has other messages at the same sequences: the time of its first later message and
the newest entry that did not change show that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from operator import attrgetter

from ccm_agent.model.errors import BusError
from ccm_agent.model.ports import KeyChanges, KeyValueEntry
from ccm_ctl.fleet.nodes.inventory_file import InventoryFile, KnownEntries

log = logging.getLogger(__name__)

KINDS = ("node", "presence")

LEAST_ENTRIES = 2_000
"""Fewer entries are read faster than a file is kept."""

REWRITE_SHARE = 50
"""The file is written again when one entry of this number has changed: reading these costs as much as writing it."""

ADDED_MOST = 1_000
"""The most keys that are read by name, because a replica that lagged did not return them."""

_revision = attrgetter("revision")


class CachedNodes:
    """Reads the entries of all nodes with the help of a file."""

    def __init__(self, bucket: KeyChanges, file: InventoryFile, *, least: int = LEAST_ENTRIES) -> None:
        """
        Take a bucket.

        Args:
            bucket: CCM_NODES.
            file: What was read before, and where it is kept.
            least: Fewer entries are not kept.
        """
        self._bucket = bucket
        self._file = file
        self._least = least

    async def read(self) -> list[KeyValueEntry]:
        """
        The newest entries of all nodes, as `matching` of the bucket returns them.

        Raises:
            BusError: The broker does not answer.
        """
        known = await asyncio.to_thread(self._file.read)
        if known is None:
            return await self._read_all()
        changed = 0
        found: dict[str, KeyValueEntry] = {}
        kept: dict[str, KeyValueEntry] = {}
        try:
            for kind in KINDS:
                mine = {key: entry for key, entry in known.entries.items() if key.startswith(f"{kind}.")}
                count, up_to, now = await self._read_since(kind, mine, known.created)
                changed += count
                found |= now
                # the next command reads on from the newest kept one, so earlier changes must have been read
                kept |= {key: entry for key, entry in now.items() if entry.revision <= up_to}
        except _ForeignError as err:
            log.debug("the cached nodes are not used", extra={"reason": str(err)})
            await asyncio.to_thread(self._file.remove)
            return await self._read_all()
        if changed * REWRITE_SHARE >= len(found):
            await self._keep(known.created, kept)
        return _present(found.values())

    async def _read_all(self) -> list[KeyValueEntry]:
        found = await self._bucket.matching([f"{kind}.>" for kind in KINDS], deletions=True)
        if len(found) >= self._least:
            try:
                keys = await self._bucket.list_keys(f"{KINDS[0]}.>")
            except BusError as err:
                log.debug("the nodes are not cached", extra={"reason": str(err)})
            else:
                await self._keep(keys.created, {entry.key: entry for entry in found})
        return _present(found)

    async def _read_since(
        self, kind: str, known: dict[str, KeyValueEntry], created: str
    ) -> tuple[int, int, dict[str, KeyValueEntry]]:
        """
        How many entries of a kind are not the known ones, up to which revision all were read, and the entries by key.

        Deletions are included. Keys that are read by name may have later revisions.

        Raises:
            _ForeignError: The known ones are not of this stream.
            BusError: The broker does not answer.
        """
        if not known:
            raise _ForeignError(f"it has no entry of the kind {kind}")
        last, pattern = max(known.values(), key=_revision), f"{kind}.>"
        changes = await self._bucket.changes(pattern, last.revision, last.created)
        try:
            keys = await self._bucket.list_keys(pattern)
        except BusError as err:
            raise _ForeignError(f"the keys cannot be listed: {err}") from err
        if keys.created != created or keys.revision < last.revision or keys.history != 1:
            raise _ForeignError("the stream was made again, or put back")
        if any(one.revision <= last.revision and known.get(one.key) != one for one in changes):
            raise _ForeignError("the stream was put back and written to")
        new = {one.key: one for one in changes if one.revision > last.revision and one.key in keys.keys}
        up_to = max((last.revision, *map(_revision, changes)))
        kept = {key: entry for key, entry in known.items() if key in keys.keys and key not in new}
        if kept:
            await self._check_stored(max(kept.values(), key=_revision))
        added = keys.keys - kept.keys() - new.keys()
        if len(added) > ADDED_MOST:
            raise _ForeignError("it lacks entries")
        new |= {one.key: one for one in await self._bucket.matching(sorted(added), deletions=True)}
        return len(new) + len(known) - len(kept), up_to, kept | new

    async def _check_stored(self, entry: KeyValueEntry) -> None:
        """If the newest of the entries that did not change is in the stream, so are the earlier ones."""
        try:
            stored = await self._bucket.newest(entry.key)
        except BusError as err:
            raise _ForeignError(f"{entry.key} cannot be read: {err}") from err
        if stored != entry:
            raise _ForeignError(f"the stream has another {entry.key}")

    async def _keep(self, created: str, found: dict[str, KeyValueEntry]) -> None:
        if len(found) < self._least:
            await asyncio.to_thread(self._file.remove)
        else:
            await asyncio.to_thread(self._file.write, KnownEntries(created=created, entries=found))


class _ForeignError(Exception):
    """The cached entries are not an earlier state of this stream; the text says why."""


def _present(entries: Iterable[KeyValueEntry]) -> list[KeyValueEntry]:
    """The entries that are there, as `matching` returns them."""
    return sorted((entry for entry in entries if entry.value), key=attrgetter("key"))
