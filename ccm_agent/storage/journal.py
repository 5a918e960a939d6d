"""
Journals: append-only files of checksummed records. A journal stays usable if the process is killed at any byte.

The spool and the request log consist of journals. A record consists of a magic word, the length and CRC-32 of its payload, and
the payload. Bytes after the last whole record are called a torn tail, which `open` truncates. Damaged bytes between records are
skipped. `append` writes to the page cache on the event loop. This takes 1 µs, while switching to a thread takes 100 µs (ADR 20).
The record survives if the process is killed. To survive a power loss, it must be flushed with `flush`, which must be called in a
thread.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from ccm_agent.model.errors import FileError

MAGIC = b"\xc3\xc3J1"
_HEAD = struct.Struct(">4sII")
RECORD_LIMIT_BYTES = 4 << 20
"""The maximum length of a record. A larger length indicates damage, because the agent's records are far smaller."""


class Read(Struct, frozen=True, kw_only=True):
    """
    The content of a journal.

    Attributes:
        records: The offset and payload of each whole record, in order.
        end: The end of the last whole record.
        damaged_bytes: The number of bytes before `end` that do not belong to a whole record. The torn tail is not included.
        damaged_to: The end of the last damaged range of bytes; -1 if there is none.
        torn_bytes: The number of bytes after the last whole record.
    """

    records: list[tuple[int, bytes]]
    end: int
    damaged_bytes: int = 0
    damaged_to: int = -1
    torn_bytes: int = 0


def read_records(data: bytes) -> Read:
    """Find the whole records in the content of a file. No I/O. Takes linear time, even for a damaged file."""
    records: list[tuple[int, bytes]] = []
    at = end = damaged = 0
    damaged_to = -1
    while at + _HEAD.size <= len(data):
        magic, length, crc = _HEAD.unpack_from(data, at)
        payload = data[at + _HEAD.size : at + _HEAD.size + length] if length <= RECORD_LIMIT_BYTES else b""
        if magic == MAGIC and len(payload) == length and zlib.crc32(payload) == crc:
            if at > end:
                damaged, damaged_to = damaged + at - end, at
            records.append((at, payload))
            at += _HEAD.size + length
            end = at
            continue
        at = data.find(MAGIC, at + 1)
        if at < 0:
            break
    return Read(
        records=records,
        end=end,
        damaged_bytes=damaged,
        damaged_to=damaged_to,
        torn_bytes=len(data) - end,
    )


def encode_record(payload: bytes) -> bytes:
    """Encode a payload as a record."""
    return _HEAD.pack(MAGIC, len(payload), zlib.crc32(payload)) + payload


class Journal:
    """
    A journal file that is open for appending.

    Attributes:
        path: The file.
        size: The total size of the whole records, in bytes.
    """

    def __init__(self, path: Path) -> None:
        """Store the path. Call `open` before use, in a thread, because it blocks."""
        self.path = path
        self.size = 0
        self._fd = -1
        self._is_dirty = False

    def open(self) -> Read:
        """
        Open the file, truncate its torn tail and return its records. A missing file is created with mode 0600. Blocking.

        Raises:
            FileError: The file cannot be opened or read.
        """
        try:
            # O_NOFOLLOW is a precaution, because root would write elsewhere through a symlink. Only the agent can write to the
            # folder.
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self.path, flags, 0o600)
            read = read_records(_read_all(self._fd))
            if read.torn_bytes:
                os.ftruncate(self._fd, read.end)
        except OSError as err:
            raise FileError(
                f"{self.path}: cannot open: {err.strerror}; check the owner of the state folder"
            ) from err
        self.size = read.end
        return read

    def append(self, payload: bytes) -> int:
        """
        Write a record and return its offset. The record survives if the process is killed, but may not survive a power loss.

        Raises:
            FileError: The disk is full or failing. The file is unchanged.
        """
        record = encode_record(payload)
        offset = self.size
        try:
            written = os.write(self._fd, record)
            if written != len(record):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as err:
            self._cut_back()
            raise FileError(f"{self.path}: cannot write: {err.strerror}; check the free disk space") from err
        self.size += written
        self._is_dirty = True
        return offset

    def flush(self) -> None:
        """
        Flush all appended records to disk, so that they survive a power loss. Blocking.

        Raises:
            FileError: The disk is failing.
        """
        if not self._is_dirty:
            return
        self._is_dirty = False
        try:
            os.fdatasync(self._fd)
        except OSError as err:
            raise FileError(f"{self.path}: cannot flush: {err.strerror}") from err

    def read_at(self, offset: int) -> bytes:
        """
        Return the payload of the record at an offset from `append` or `open`. Blocking.

        Raises:
            FileError: The record can no longer be read.
        """
        try:
            magic, length, crc = _HEAD.unpack(os.pread(self._fd, _HEAD.size, offset))
            payload = os.pread(self._fd, length, offset + _HEAD.size)
        except (OSError, struct.error) as err:
            raise FileError(f"{self.path}: cannot read the record at {offset}: {err}") from err
        if magic != MAGIC or zlib.crc32(payload) != crc:
            raise FileError(f"{self.path}: the record at {offset} is damaged")
        return payload

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remove(self) -> None:
        """Close the file and remove it. Blocking."""
        self.close()
        self.path.unlink(missing_ok=True)

    def _cut_back(self) -> None:
        # a partial record would be reported as damage; truncating works even on a full disk
        try:
            os.ftruncate(self._fd, self.size)
        except OSError:
            # leave the damage, which readers skip, and append later records after it
            self.size = os.lseek(self._fd, 0, os.SEEK_END)


def make_private_folder(folder: Path) -> None:
    """
    Create a folder and its missing parents, accessible only to their owner. Blocking.

    `Path.mkdir` would create parents with the default mode, so that other users could list them.

    Raises:
        OSError: A folder cannot be created.
    """
    for one in (*reversed(folder.parents), folder):
        if not one.is_dir():
            one.mkdir(mode=0o700, exist_ok=True)


def replace_file(path: Path, content: Iterable[bytes]) -> None:
    """
    Replace a file atomically. Its mode is 0600. After a power loss, the file has either the old or the new content. Blocking.

    Raises:
        OSError: Writing failed. The file is unchanged.
    """
    fresh = path.with_name(path.name + ".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
        try:
            for part in content:
                file.write(part)
            file.flush()
            os.fdatasync(file.fileno())
        except OSError:
            # remove the partial file, because it would occupy space on a full disk
            fresh.unlink(missing_ok=True)
            raise
    fresh.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk, so that file names survive a power loss. Blocking."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _read_all(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    parts = []
    at = 0
    while at < size:
        part = os.pread(fd, min(size - at, 1 << 20), at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)
