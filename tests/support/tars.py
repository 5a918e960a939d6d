"""Tars that no honest program writes."""

from __future__ import annotations

import tarfile


def header(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> bytes:
    """One header of a tar, whatever size it claims."""
    one = tarfile.TarInfo(name)
    one.type = kind
    block = bytearray(one.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)  # type: ignore[attr-defined]
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)
