"""
The format of the cache file of nodes: parts with entries, followed by an index with the digest of each part.

A part is decoded only when one of its entries is needed. Therefore a long list of nodes can show its first rows quickly, and does
not need memory for all nodes.
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import IO

import msgspec
from msgspec import Struct

from ccm_agent.model.ports import KeyValueEntry

AT_ONCE = 500
"""The number of entries in one part."""

SIZE_LIMIT_BYTES = 1 << 30
"""The maximum size of a part. It is more than AT_ONCE entries of the largest size that the broker allows."""

_MAGIC = b"ccm nodes 4\n"
_DIGEST = hashlib.sha256
_DIGEST_BYTES = 32
_SIZE_BYTES = 8
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNIT = timedelta(microseconds=1)

_PART = msgspec.msgpack.Decoder(list[KeyValueEntry])


class TornFileError(Exception):
    """The file is incomplete. The error text names the missing part."""


class Part(Struct, frozen=True, gc=False):
    """The position of a part, and its digest."""

    offset: int
    size_bytes: int
    digest: bytes


class _StoredIndex(Struct, frozen=True, array_like=True):
    """The stored form of the index. The numbers are in the order of the entries' keys, 8 bytes each."""

    created: str
    parts: list[Part]
    keys: str
    revisions: bytes
    moments: bytes
    deleted: list[int]


class EntryIndex(Struct, frozen=True, kw_only=True):
    """
    The information about entries that is available without decoding them. Each entry has a place, counted from 0.

    Attributes:
        created: When the stream was created, in the broker's format. Another stream has other entries.
        keys: Their keys, by place.
        revisions: Their revisions, by place.
        moments: When they were written, by place, in microseconds since 1970.
        deleted: The places of deletions.
        parts: The parts of the file, each with the next AT_ONCE entries.
    """

    created: str
    keys: list[str]
    revisions: array[int]
    moments: array[int]
    deleted: frozenset[int]
    parts: list[Part]

    def created_at(self, place: int) -> datetime:
        """Return the time at which an entry was written."""
        return _EPOCH + self.moments[place] * _UNIT


class EntryParts:
    """An open file of entries. It stays readable if another command replaces the file."""

    def __init__(self, file: IO[bytes]) -> None:
        """
        Read the index.

        Raises:
            TornFileError: The file is incomplete, or from another version.
            OSError: The file cannot be read.
        """
        self._file = file
        self.index = _read_index(file)
        self._number, self._part = -1, list[KeyValueEntry]()

    def read(self, place: int) -> KeyValueEntry:
        """
        Return the entry at a place.

        Raises:
            TornFileError: The part of the entry is incomplete.
        """
        number, position = divmod(place, AT_ONCE)
        if number != self._number:
            self._part, self._number = self._read_part(number), number
        return self._part[position]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read_part(self, number: int) -> list[KeyValueEntry]:
        index, part = self.index, self.index.parts[number]
        first = number * AT_ONCE
        try:
            body = _read(self._file, part.offset, part.size_bytes, part.digest)
            found = _PART.decode(body)
        except (OSError, ValueError, OverflowError) as err:  # errors of msgspec are ValueErrors
            raise TornFileError(f"part {number}: {err}") from err
        if [one.key for one in found] != index.keys[first : first + AT_ONCE]:
            raise TornFileError(f"part {number} has other entries than the index")
        return found


def write_parts(created: str, entries: Iterable[KeyValueEntry]) -> Iterator[bytes]:
    """
    Yield the content of a file with these entries.

    Raises:
        ValueError: A key cannot be stored.
    """
    yield _MAGIC
    keys, revisions, moments = list[str](), array("Q"), array("q")
    deleted, parts, offset = list[int](), list[Part](), len(_MAGIC)
    rest = iter(entries)
    while some := list(islice(rest, AT_ONCE)):
        body = msgspec.msgpack.encode(some)
        parts.append(Part(offset, len(body), _DIGEST(body).digest()))
        offset += len(body)
        deleted += [len(keys) + place for place, one in enumerate(some) if not one.value]
        keys += [one.key for one in some]
        revisions.extend(one.revision for one in some)
        moments.extend((one.created - _EPOCH) // _UNIT for one in some)
        yield body
    if any("\n" in key for key in keys):
        raise ValueError("a key has several lines")
    stored = _StoredIndex(created, parts, "\n".join(keys), revisions.tobytes(), moments.tobytes(), deleted)
    index = msgspec.msgpack.encode(stored)
    yield index
    yield len(index).to_bytes(_SIZE_BYTES)
    yield _DIGEST(index).digest()


def _read_index(file: IO[bytes]) -> EntryIndex:
    trailer_bytes = _SIZE_BYTES + _DIGEST_BYTES
    end = file.seek(0, os.SEEK_END) - trailer_bytes
    file.seek(0)
    if file.read(len(_MAGIC)) != _MAGIC or end < len(_MAGIC):
        raise TornFileError("it is from another version")
    file.seek(end)
    trailer = file.read(trailer_bytes)
    size_bytes = int.from_bytes(trailer[:_SIZE_BYTES])
    try:
        body = _read(file, end - size_bytes, size_bytes, trailer[_SIZE_BYTES:])
        stored = msgspec.msgpack.decode(body, type=_StoredIndex)
        keys = stored.keys.split("\n") if stored.keys else []
        revisions, moments = array("Q", stored.revisions), array("q", stored.moments)
    except (ValueError, OverflowError) as err:
        raise TornFileError(f"the index: {err}") from err
    if not len(keys) == len(revisions) == len(moments) or len(stored.parts) != -(-len(keys) // AT_ONCE):
        raise TornFileError("the index does not fit together")
    return EntryIndex(
        created=stored.created,
        keys=keys,
        revisions=revisions,
        moments=moments,
        deleted=frozenset(stored.deleted),
        parts=stored.parts,
    )


def _read(file: IO[bytes], offset: int, size_bytes: int, digest: bytes) -> bytes:
    if not (offset >= 0 and 0 <= size_bytes <= SIZE_LIMIT_BYTES):
        raise ValueError("it is not in the file")
    file.seek(offset)
    body = file.read(size_bytes)
    if _DIGEST(body).digest() != digest:
        raise ValueError("it is torn")
    return body
