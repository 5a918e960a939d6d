"""
Headers of a tar that nobody vouches for, read so that they cannot hold up whoever reads them.

Python's `tarfile` trusts headers: some of its versions search those of pax with patterns that take the square of a number's
length (CVE-2024-6232: a megabyte of digits holds the process for an hour, with every other thread in it), and follow one whose
size is below zero back to where they were (CVE-2025-8194). Hosts keep the Python that they have, so it is refused here.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any

PAX_BYTES = 1 << 20
"""Of one header's attributes; what honest ones hold is paths and extended attributes."""

DIGITS = 256
"""No honest number is longer."""

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
"""What the standard library raises for a tar that is damaged or made to do harm, besides OSError."""

_TO_DIGITS = bytes(0x31 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))


class Header(tarfile.TarInfo):
    """A header; give it to `tarfile.open` as `tarinfo`."""

    def _proc_member(self, archive: Any) -> Any:
        if self.size < 0:
            raise tarfile.ReadError("a header claims a size below zero")
        return super()._proc_member(archive)  # type: ignore[misc]

    def _proc_pax(self, archive: Any) -> Any:
        if self.size > PAX_BYTES:
            raise tarfile.ReadError(f"a header claims {self.size} bytes")
        place = archive.fileobj.tell()
        if b"1" * (DIGITS + 1) in archive.fileobj.read(self.size).translate(_TO_DIGITS):
            raise tarfile.ReadError(f"a header holds a number of more than {DIGITS} digits")
        archive.fileobj.seek(place)
        return super()._proc_pax(archive)  # type: ignore[misc]


def members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """
    The entries of an archive that was opened with `Header`, each further on in it than the one before.

    Raises:
        tarfile.ReadError: One leads back; or any of TAR_ERRORS, for what is damaged.
    """
    for member in archive:
        if member.size < 0 or archive.offset <= member.offset:
            raise tarfile.ReadError("a header claims a size below zero")
        yield member
