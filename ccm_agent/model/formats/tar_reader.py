"""
Read tar archives from untrusted sources. Their headers cannot block the reader or exhaust its memory.

Python's `tarfile` trusts headers: some versions parse pax headers with patterns that take quadratic time in the
length of a number. With CVE-2024-6232 a megabyte of digits blocks the process for an hour, including all its
threads. Some versions also loop forever on a header with a negative size (CVE-2025-8194). Hosts keep their
installed Python, so such archives are refused here. `tarfile` also keeps every entry with all its attributes in
memory. It does not limit the names, attributes and holes that precede an entry.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any, Protocol

PAX_BYTES = 1 << 20
"""Limit of one header's attributes. Legitimate headers contain paths and extended attributes."""
GLOBAL_BYTES = 64 << 10
"""
Limit of global attributes, which `tarfile` copies to each following entry. A legitimate use is the id of a
commit.
"""
NAME_BYTES = 4096
"""The maximum length of a path on Linux, PATH_MAX."""
HEADERS_OF_ENTRY = 3
"""The maximum number of headers of one entry: a long name, a long target, and its own header."""
NESTED = 8
"""Limit of headers that precede an entry's own header. Legitimate archives have at most three."""
HOLES = 100_000
"""Limit of the holes of all files in an archive."""
HOLES_IN_BLOCK = 21
OWNER_CHARACTERS = 256
"""Limit of a user or group name. A longer name is ignored, and the number is used."""

DIGITS = 256
"""Limit of a number's digits."""

TAR_ERRORS = (
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    ValueError,
    ArithmeticError,
    LookupError,
    RecursionError,
)
"""Errors of the standard library for a damaged or malicious tar, in addition to OSError."""

_TO_DIGITS = bytes(0x31 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))


class Plain(Protocol):
    """The plain bytes of a tar, such as an open file; seeking back may be slow."""

    def read(self, size: int = -1, /) -> bytes: ...
    def seek(self, position: int, whence: int = os.SEEK_SET, /) -> int: ...
    def tell(self) -> int: ...


class _Stream:
    """
    A stream with push-back.

    Seeking back has the same effect, but it reads a compressed stream from its beginning again. Each header is
    inspected before `tarfile` reads it, so everything before it would be decompressed again.
    """

    name = ""

    def __init__(self, plain: Plain) -> None:
        self._plain = plain
        self._again = b""

    def read(self, size: int = -1) -> bytes:
        if not self._again:
            return self._plain.read(size)
        if size < 0:
            size = len(self._again)
        data, self._again = self._again[:size], self._again[size:]
        return data + (self._plain.read(size - len(data)) if len(data) < size else b"")

    def put_back(self, data: bytes) -> None:
        """Push data back. It is read again before the following data."""
        self._again = data + self._again

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        self._again = b""
        return self._plain.seek(position, whence)

    def tell(self) -> int:
        return self._plain.tell() - len(self._again)


class Header(tarfile.TarInfo):
    """A tar header."""

    def _proc_member(self, archive: Any) -> Any:
        archive.count_header()
        if self.size < 0:
            raise tarfile.ReadError("a header claims a size below zero")
        return super()._proc_member(archive)  # type: ignore[misc]

    def _proc_pax(self, archive: Any) -> Any:
        limit_bytes = GLOBAL_BYTES if self.type == tarfile.XGLTYPE else PAX_BYTES
        if self.size > limit_bytes:
            raise tarfile.ReadError(f"a header claims {self.size} bytes")
        data = archive.fileobj.read(self._block(self.size))  # type: ignore[attr-defined]
        if b"1" * (DIGITS + 1) in data[: self.size].translate(_TO_DIGITS):
            raise tarfile.ReadError(f"a header contains a number of more than {DIGITS} digits")
        archive.fileobj.put_back(data)
        return archive.nested(super()._proc_pax)  # type: ignore[misc]

    def _proc_gnulong(self, archive: Any) -> Any:
        if self.size > NAME_BYTES + 1:
            raise tarfile.ReadError(f"a header claims {self.size} bytes for a name")
        return archive.nested(super()._proc_gnulong)  # type: ignore[misc]

    def _proc_sparse(self, archive: Any) -> Any:
        blocks = []
        _, goes_on, _ = self._sparse_structs  # type: ignore[attr-defined]
        while goes_on:
            block = archive.fileobj.read(tarfile.BLOCKSIZE)
            if len(block) < tarfile.BLOCKSIZE:
                raise tarfile.ReadError("a sparse map is truncated")
            archive.count_holes(HOLES_IN_BLOCK)
            blocks.append(block)
            goes_on = bool(block[504])
        archive.fileobj.put_back(b"".join(blocks))
        return super()._proc_sparse(archive)  # type: ignore[misc]

    def _proc_gnusparse_10(self, next: Any, pax_headers: Any, archive: Any) -> Any:
        data = archive.fileobj.read(tarfile.BLOCKSIZE)
        archive.count_holes(int(data.partition(b"\n")[0]))
        archive.fileobj.put_back(data)
        return super()._proc_gnusparse_10(next, pax_headers, archive)  # type: ignore[misc]


class Tar(tarfile.TarFile):
    """
    A tar archive to read.

    Args:
        plain: The uncompressed bytes of the archive.
        limit_headers: The maximum number of headers. More headers are an error.

    Raises:
        OSError: The archive cannot be read.
        TAR_ERRORS: The file is not a tar, or it is damaged or malicious.
    """

    tarinfo = Header

    def __init__(self, plain: Plain, limit_headers: int) -> None:
        self._limit_headers = limit_headers
        self._headers = 0
        self._nested = 0
        self._holes = 0
        super().__init__(fileobj=_Stream(plain), mode="r", errorlevel=1)  # type: ignore[arg-type]

    def count_header(self) -> None:
        """Count a header, and check the limit."""
        self._headers += 1
        if self._headers > self._limit_headers:
            raise tarfile.ReadError(f"it contains more than {self._limit_headers} headers")

    def count_holes(self, holes: int) -> None:
        """Count holes, and check the limit."""
        self._holes += holes
        if self._holes > HOLES:
            raise tarfile.ReadError(f"its files have more than {HOLES} holes")

    def nested(self, process: Any) -> Any:
        """Process the header that follows a preceding header."""
        self._nested += 1
        if self._nested > NESTED:
            raise tarfile.ReadError(f"more than {NESTED} headers precede one entry")
        try:
            return process(self)
        finally:
            self._nested -= 1


def members(archive: Tar) -> Iterator[tarfile.TarInfo]:
    """
    Yield the entries of an archive, at increasing positions. The archive does not store them.

    Raises:
        tarfile.ReadError: An entry points backwards.
        TAR_ERRORS: The archive is damaged.
    """
    while (member := archive.next()) is not None:
        if member.size < 0 or archive.offset <= member.offset:
            raise tarfile.ReadError("a header claims a size below zero")
        archive.members.clear()  # type: ignore[attr-defined]
        member.pax_headers = {}
        archive.count_holes(len(getattr(member, "sparse", None) or ()))
        for owner in ("uname", "gname"):
            if len(getattr(member, owner)) > OWNER_CHARACTERS:
                setattr(member, owner, "")
        yield member
