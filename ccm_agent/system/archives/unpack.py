"""
Unpacks untrusted archives as root.

The first pass reads the whole archive, verifies its checksums, and refuses forbidden entries before anything is written. The
second pass writes below an open directory through descriptors. Symlinks in the archive or in the target directory cannot lead
outside.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import posixpath
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from typing import IO, cast

from msgspec.structs import replace

from ccm_agent.model.errors import FileError
from ccm_agent.model.formats.tar_reader import HEADERS_OF_ENTRY, TAR_ERRORS, Tar, members
from ccm_agent.model.ports import Packed
from ccm_agent.system.accounts import LARGEST_ID
from ccm_agent.system.archives.archive_entries import ArchiveEntry, Reader, tar_entry, zip_entry
from ccm_agent.system.atomic_write import make_sure_of_room, new_file, write_all
from ccm_agent.system.commit_marker import marker_written_last
from ccm_agent.system.file_inspection import why_unread
from ccm_agent.system.threads import CancelFlag, Threads
from ccm_agent.system.trees.directory import Directory
from ccm_agent.system.trees.tree import OpenTree, open_tree, replacing

HONEST_RATIO = 200
"""The maximum ratio of unpacked to packed size if the unpacked size exceeds HONEST_BYTES."""
HONEST_BYTES = 1 << 30
HONEST_ENTRIES = 20_000
ENTRY_BYTES = 32
"""
The minimum compressed size of each entry beyond the first HONEST_ENTRIES. Names, sizes, times and checksums of real entries
differ, so they need this space.
"""
HEADER_BYTES = 1 << 20
"""The maximum size of an entry's name and attributes. tarfile would read any size that a header claims into memory."""
COPY_BYTES = 1 << 20
PACKED_BYTES = 1 << 40
"""The maximum size of an archive."""

PATH_MAX = 4096
LEVELS_MAX = 500
"""The maximum depth of a path. Each level is an open directory while an entry is written, and a process may open 1,024 files."""
YEARS_S = 1 << 40
"""The maximum absolute time: about 35,000 years. Later times are refused. File systems round times that they cannot store."""

BROKEN = (
    *TAR_ERRORS,
    zipfile.BadZipFile,
    struct.error,
    lzma.LZMAError,
    OSError,
    NotImplementedError,
    RuntimeError,
)
"""Errors that the standard library raises for a damaged or unusual archive."""


class Unpacker:
    """Unpacks in its own threads; see the `Unpack` port."""

    def __init__(self) -> None:
        self._threads = Threads("unpack", 2)

    async def unpack(self, packed: Packed, into: str) -> int:
        stop = CancelFlag()
        return await self._threads.call(unpack, packed, into, stop, on_cancel=stop.set)


def unpack(packed: Packed, into: str, stop: CancelFlag) -> int:
    """Unpack an archive, blocking; see `Unpack.unpack`."""
    with open_tree(into) as tree, _opened(packed, tree, stop) as (source, size_bytes):
        entries = _checked(packed, source, stop, size_bytes)
        _refuse_too_large(packed, entries, tree)
        with marker_written_last(tree, entries, packed.proof) as written:
            for entry in written:
                stop.check()
                with _reported(packed, f"entry {entry.name!r}"):
                    _write(tree, entry, source, stop)
            for entry in reversed(written):
                # set mode and time of directories last, because writing into them needs write permission and changes the time
                if entry.kind == "directory":
                    tree.set_directory(entry.name, entry)
    return len(entries)


class _Source:
    """An open archive of any format. Call `finish` after reading all entries, to check that the archive is complete."""

    def __init__(
        self, entries: Callable[[], Iterator[ArchiveEntry]], read: Reader, finish: Callable[[], None]
    ) -> None:
        self.entries = entries
        self.read = read
        self.finish = finish


@contextmanager
def _opened(packed: Packed, tree: OpenTree, stop: CancelFlag) -> Iterator[tuple[_Source, int]]:
    """Yield the open archive and its file size."""
    with _reported(packed, "archive"):
        fd = os.open(packed.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as opened, _vouched(packed, opened, tree, stop) as file:
        with _reported(packed, "archive"):
            source = _zip(packed, file) if packed.kind == "zip" else _tar(packed, file)
        yield source, os.fstat(file.fileno()).st_size


@contextmanager
def _vouched(packed: Packed, file: IO[bytes], tree: OpenTree, stop: CancelFlag) -> Iterator[IO[bytes]]:
    """Verify the file's checksum and yield the file, or a private copy if other users may write to the original."""
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode):
        raise FileError(f"{packed.path}: is not a regular file")
    if not packed.sha256:
        yield file
        return
    if packed.size_bytes not in (-1, found.st_size):
        raise _changed(packed)
    if why := why_unread(found, PACKED_BYTES):
        raise FileError(f"{packed.path}: cannot be read: {why}", errno=errno.EFBIG)
    with ExitStack() as stack:
        copy = None
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            copy = stack.enter_context(tree.nameless_file())
        digest = sha256()
        with _reported(packed, "archive"):
            if copy:
                make_sure_of_room(copy.fileno(), found.st_size)
            left = found.st_size
            while block := file.read(min(COPY_BYTES, left + 1)):
                stop.check()
                left -= len(block)
                if left < 0:
                    raise _changed(packed)
                digest.update(block)
                if copy:
                    copy.write(block)
        if digest.hexdigest() != packed.sha256:
            raise _changed(packed)
        checked = copy or file
        checked.seek(0)
        yield checked


def _changed(packed: Packed) -> FileError:
    return FileError(
        f"{packed.path}: does not match its checksum: another process changed it; nothing was unpacked"
    )


def _zip(packed: Packed, file: IO[bytes]) -> _Source:
    # ZipFile loads the whole central directory, and needs ten times its size in memory
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    if end and end[zipfile._ECD_SIZE] > packed.limit_entries * zipfile.sizeCentralDir:  # type: ignore[attr-defined]
        raise FileError(f"contains more than {packed.limit_entries} entries")
    archive = zipfile.ZipFile(file)
    return _Source(
        lambda: map(zip_entry, archive.infolist()), lambda entry: archive.open(entry.raw), lambda: None
    )


def _tar(packed: Packed, file: IO[bytes]) -> _Source:
    size_bytes = os.fstat(file.fileno()).st_size
    headers = HEADERS_OF_ENTRY * _limit_entries(packed, size_bytes)
    stream = _Bounded(_inflating(packed.kind, file), _limit(packed, size_bytes) + headers * tarfile.BLOCKSIZE)
    # no `with`, because the stream must stay open with the source; `_opened` closes the file
    archive = Tar(stream, headers)

    def finish() -> None:
        # tarfile treats an unreadable header as the end of the archive
        stream.seek(archive.offset)
        if stream.read(tarfile.BLOCKSIZE).strip(b"\0"):
            raise tarfile.ReadError("a header is damaged")
        stream.drain()

    return _Source(lambda: map(tar_entry, members(archive)), lambda entry: _member(archive, entry), finish)


def _inflating(kind: str, file: IO[bytes]) -> IO[bytes]:
    """Return a stream of the decompressed tar. A `.tar.gz` must be gzip. A `.tar` may also be compressed, as for tar(1)."""
    head = file.read(6)
    file.seek(0)
    if kind == "tar.gz" or head.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=file, mode="rb"))
    if head.startswith(b"BZh"):
        return bz2.BZ2File(file)
    if head.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMAFile(file)
    return file


def _member(archive: tarfile.TarFile, entry: ArchiveEntry) -> IO[bytes]:
    content = archive.extractfile(entry.raw)
    if content is None:
        raise FileError(f"entry {entry.name!r} has no content")
    return content


class _Bounded:
    """The decompressed stream of a tar, which limits its size and the size of headers."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self.name = ""

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > HEADER_BYTES + COPY_BYTES:
            raise tarfile.ReadError(f"a header claims {size} bytes")
        if self._stream.tell() > self._limit:
            raise tarfile.ReadError(f"it unpacks to more than {self._limit} bytes")
        return self._stream.read(size)

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET and position > self._limit:
            raise tarfile.ReadError(f"it unpacks to more than {self._limit} bytes")
        return self._stream.seek(position, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def drain(self) -> None:
        """Read to the end, because a compressed stream ends with its checksum."""
        while self.read(COPY_BYTES):
            pass


def _limit(packed: Packed, size_bytes: int) -> int:
    return packed.limit_bytes or max(HONEST_BYTES, HONEST_RATIO * size_bytes)


def _limit_entries(packed: Packed, size_bytes: int) -> int:
    return min(packed.limit_entries, HONEST_ENTRIES + size_bytes // ENTRY_BYTES)


def _checked(packed: Packed, source: _Source, stop: CancelFlag, source_bytes: int) -> list[ArchiveEntry]:
    """Read and check all entries, and return them. A forbidden entry is an error."""
    limit, limit_entries = _limit(packed, source_bytes), _limit_entries(packed, source_bytes)
    entries: list[ArchiveEntry] = []
    total = 0
    with _reported(packed, "archive"):
        for number, entry in enumerate(source.entries()):
            stop.check()
            if number >= limit_entries:
                raise FileError(f"contains more than {limit_entries} entries")
            if entry.name in ("", "."):
                continue  # the entry of the top directory, as in archives of `tar -C dir .`
            refuse(entry)
            total += entry.size_bytes
            if total > limit:
                raise FileError(f"unpacks to more than {limit} bytes")
            if entry.kind == "file":
                _read_through(source, entry, stop)
            elif entry.kind == "symlink" and not entry.link:
                entry = _with_target(source, entry)
                refuse(entry)
            if packed.drop_special_bits and entry.mode >= 0:
                entry = replace(entry, mode=entry.mode & 0o777)
            entries.append(entry)
        source.finish()
    return entries


def _with_target(source: _Source, entry: ArchiveEntry) -> ArchiveEntry:
    """Set a symlink's target. In a zip, it is the content of the entry."""
    with source.read(entry) as content:
        target = content.read(os.pathconf("/", "PC_PATH_MAX")).decode(errors="surrogateescape")
    return replace(entry, link=target)


def _read_through(source: _Source, entry: ArchiveEntry, stop: CancelFlag) -> None:
    left = entry.size_bytes
    with source.read(entry) as content:
        while block := content.read(COPY_BYTES):
            stop.check()
            left -= len(block)
            if left < 0:
                raise FileError(f"entry {entry.name!r} contains more data than its header states")
    if left:
        raise FileError(f"entry {entry.name!r} is truncated: {left} bytes are missing")


def refuse(entry: ArchiveEntry) -> None:
    """
    Refuse a forbidden entry.

    Raises:
        FileError: The entry is outside the target, links outside, or is not a file, directory or link.
    """
    what = f"entry {entry.name!r}"
    if len(entry.name) > PATH_MAX or len(entry.link) > PATH_MAX:
        raise FileError(f"an entry has a name of more than {PATH_MAX} characters: {entry.name[:80]!r}")
    if entry.name.count("/") > LEVELS_MAX:
        raise FileError(f"an entry is more than {LEVELS_MAX} directories deep: {entry.name[:80]!r}")
    if not -YEARS_S < entry.mtime < YEARS_S or entry.uid > LARGEST_ID or entry.gid > LARGEST_ID:
        raise FileError(f"{what} has a time or an owner that is out of range")
    if "\0" in entry.name or "\0" in entry.link:
        raise FileError(f"{what} has a NUL in its name")
    if entry.name.startswith("/"):
        raise FileError(f"{what} has an absolute name")
    if ".." in entry.name.split("/"):
        raise FileError(f"{what} leads outside the target directory")
    if entry.kind == "other":
        raise FileError(f"{what} is not a file, directory or link")
    if entry.kind == "hardlink" and not is_within(entry.link):
        raise FileError(f"{what} is a hardlink to {entry.link!r}, which is outside the target directory")
    if (
        entry.kind == "symlink"
        and entry.link
        and not is_within(posixpath.join(posixpath.dirname(entry.name), entry.link))
    ):
        raise FileError(f"{what} is a symlink to {entry.link!r}, which is outside the target directory")


def is_within(path: str) -> bool:
    """Whether a path stays below the root of the archive. Symlinks are not resolved."""
    clean = posixpath.normpath(path)
    return not clean.startswith("/") and clean != ".." and not clean.startswith("../")


def _refuse_too_large(packed: Packed, entries: list[ArchiveEntry], tree: OpenTree) -> None:
    needed = sum(entry.size_bytes for entry in entries)
    free = tree.free_bytes()
    if needed > free:
        raise FileError(
            f"{packed.path}: unpacks to {needed} bytes, but {tree.path} has only {free} free; free some space",
            errno=errno.ENOSPC,
        )


def _write(tree: OpenTree, entry: ArchiveEntry, source: _Source, stop: CancelFlag) -> None:
    if entry.kind == "directory":
        tree.make_directory(entry.name)
        return
    if entry.kind == "hardlink":
        tree.link(entry.name, entry.link)
        return
    with tree.parent(entry.name) as (parent, name):
        if entry.kind == "symlink":
            tree.symlink(parent, name, entry)
            return
        with new_file(Directory(parent, name, entry.name)) as new, source.read(entry) as content:
            while block := content.read(COPY_BYTES):
                stop.check()
                write_all(new.fd, block)
            tree.set_attributes(new.fd, entry)
            with replacing(entry.name):
                new.replace()


@contextmanager
def _reported(packed: Packed, what: str) -> Iterator[None]:
    """Convert errors about the archive to FileError with the archive's path."""
    try:
        yield
    except FileError as err:
        if err.message.startswith(packed.path):
            raise
        raise FileError(f"{packed.path}: {err.message}", errno=err.errno) from err
    except InterruptedError:
        raise
    except BROKEN as err:
        said = err.strerror if isinstance(err, OSError) and err.strerror else str(err)
        number = err.errno if isinstance(err, OSError) and err.errno else 0
        raise FileError(f"{packed.path}: {what} cannot be unpacked: {said}", errno=number) from err
