"""
The entries of all nodes, in the order of the nodes' names. For a long list, only some of the entries are in memory at the same
time.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self

from msgspec import Struct

from ccm_agent.bus.subjects import is_node
from ccm_agent.model.ids import natural
from ccm_agent.model.ports import KeyReader, KeyValueEntry
from ccm_ctl.fleet.nodes.entry_parts import EntryParts, TornFileError

log = logging.getLogger(__name__)

KINDS = ("node", "presence")

INSERTED_MOST = 1_000
"""Up to this many names are inserted into a sorted list one by one. For more names, the list is sorted again."""


class CachedEntries(Struct, frozen=True, kw_only=True):
    """
    Entries in a file that are still the newest.

    Attributes:
        parts: The file.
        places: Their places in the file, by key.
        bucket: The bucket from which entries of an incomplete part are read again.
        remove: Removes the file, because a part of it is incomplete.
    """

    parts: EntryParts
    places: dict[str, int]
    bucket: KeyReader
    remove: Callable[[], None]


class StoredNodes:
    """
    The entries of all nodes, in memory or in a file.

    Attributes:
        names: The nodes that have entries, in natural order.
    """

    def __init__(self, entries: dict[str, KeyValueEntry], cached: CachedEntries | None = None) -> None:
        """
        Store the entries.

        Args:
            entries: The entries in memory, by key. Entries without a value are deletions.
            cached: The other entries, or None.
        """
        self._entries = entries
        self._cached = cached
        known = _cached_names(cached) if cached is not None else []
        self.names = add_names(known, (_name(key) for key, entry in entries.items() if entry.value))

    async def read(self, names: Iterable[str], *, is_last: bool = False) -> list[KeyValueEntry]:
        """
        Return the entries of some nodes, in the order of the names. `is_last`: they are not read again, so they are forgotten.

        Raises:
            BusError: The file is incomplete, and the broker does not answer.
        """
        keys = [f"{kind}.{name}" for name in names for kind in KINDS]
        if self._cached is None:
            found = self._find(keys)
        else:
            try:
                found = await asyncio.to_thread(self._find, keys)
            except TornFileError as err:
                found = await self._read_again(keys, str(err))
        if is_last:
            for key in keys:
                self._entries.pop(key, None)
        return [entry for entry in found if entry.value]

    def entries(self, is_kept: Callable[[KeyValueEntry], bool]) -> Iterator[KeyValueEntry]:
        """
        Yield all entries that `is_kept` accepts, including deletions, in the order for a file.

        Raises:
            TornFileError: The cache file is incomplete.
        """
        places = self._cached.places if self._cached is not None else {}
        names = {_name(key) for keys in (places, self._entries) for key in keys}
        for name in sorted(names, key=natural):
            yield from filter(is_kept, self._find([f"{kind}.{name}" for kind in KINDS]))

    def close(self) -> None:
        """Close the file."""
        if self._cached is not None:
            self._cached.parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _find(self, keys: Sequence[str]) -> list[KeyValueEntry]:
        found = []
        for key in keys:
            entry = self._entries.get(key)
            if entry is None and self._cached is not None and key in self._cached.places:
                entry = self._cached.parts.read(self._cached.places[key])
            if entry is not None:
                found.append(entry)
        return found

    async def _read_again(self, keys: Sequence[str], reason: str) -> list[KeyValueEntry]:
        """Read entries from the broker."""
        assert self._cached is not None
        log.debug("a part of the cached nodes is read again", extra={"reason": reason})
        await asyncio.to_thread(self._cached.remove)
        return await self._cached.bucket.matching(list(keys))


async def read_stored(bucket: KeyReader) -> StoredNodes:
    """
    Return the entries of all nodes, without a file.

    Raises:
        BusError: The broker does not answer.
    """
    found = await bucket.matching([f"{kind}.>" for kind in KINDS])
    return StoredNodes({entry.key: entry for entry in found})


def add_names(known: list[str], others: Iterable[str]) -> list[str]:
    """Return names in natural order after adding others, without duplicates. Names that are not valid node names are left out."""
    added = {name for name in others if is_node(name)}.difference(known)
    if len(added) > INSERTED_MOST:
        return sorted([*known, *added], key=natural)
    for name in added:
        insort(known, name, key=natural)
    return known


def _cached_names(cached: CachedEntries) -> list[str]:
    """Return the names of nodes whose newest entries are in the file, in the order of the file."""
    index = cached.parts.index
    keys = (key for place, key in enumerate(index.keys) if place not in index.deleted)
    return list(filter(is_node, dict.fromkeys(_name(key) for key in keys if key in cached.places)))


def _name(key: str) -> str:
    return key.partition(".")[2]
