"""Tars that no honest program writes."""

from __future__ import annotations

import tarfile

import pytest


def header(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> bytes:
    """One header of a tar, whatever size it claims."""
    one = tarfile.TarInfo(name)
    one.type = kind
    block = bytearray(one.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)  # type: ignore[attr-defined]
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def attributes(text: bytes) -> bytes:
    """A header of attributes for the file after it, with these in it."""
    return header("attributes", tarfile.XHDTYPE, len(text)) + text + b"\0" * (-len(text) % 512)


def record(key: str, value: str) -> bytes:
    """One attribute, as pax has it: its own length comes first."""
    rest = f" {key}={value}\n".encode()
    length = len(rest) + 1
    while len(str(length)) + len(rest) != length:
        length += 1
    return str(length).encode() + rest


def holes(blocks: int) -> bytes:
    """A file with holes, whose map has so many more blocks."""
    block = bytearray(header("s", tarfile.GNUTYPE_SPARSE))
    block[482] = 1
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    more = (b"%011o\0%011o\0" % (1, 1)) * 21 + b"\1"
    return bytes(block) + more.ljust(512, b"\0") * blocks


HOLD_UPS = [
    pytest.param(
        attributes(b"1" * 300_000) + header("a"),
        "a header contains a number of more than 256 digits",
        id="a number that takes an hour to search",
    ),
    pytest.param(
        attributes(record("comment", "1" * 257)) + header("a"),
        "a header contains a number of more than 256 digits",
        id="in a value",
    ),
    pytest.param(
        header("a", tarfile.XHDTYPE, (1 << 20) + 1),
        "a header claims 1048577 bytes",
        id="attributes without end",
    ),
    pytest.param(
        b"".join(attributes(record("comment", "x")) for _ in range(9)) + header("a"),
        "more than 8 headers precede one entry",
        id="attributes of attributes",
    ),
    pytest.param(
        header("a", tarfile.XGLTYPE, (64 << 10) + 1),
        "a header claims 65537 bytes",
        id="attributes for all that comes",
    ),
    pytest.param(
        header("l", tarfile.GNUTYPE_LONGNAME, 4098),
        "a header claims 4098 bytes for a name",
        id="a name without end",
    ),
    pytest.param(
        holes(5000),
        "its files have more than 100000 holes",
        id="holes without end",
    ),
    pytest.param(
        attributes(record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0"))
        + header("a", size=512)
        + b"100001\n".ljust(512, b"\0"),
        "its files have more than 100000 holes",
        id="holes in the content",
    ),
    pytest.param(
        attributes(record("GNU.sparse.map", "1,1," * 110_000 + "1,1")) + header("a"),
        "its files have more than 100000 holes",
        id="holes in an attribute",
    ),
    pytest.param(
        header("a") + header("d", tarfile.DIRTYPE, -512),
        "a header claims a size below zero",
        id="a folder",
    ),
    pytest.param(
        header("a") + header("s", tarfile.GNUTYPE_SPARSE, -512),
        "a header claims a size below zero",
        id="with holes",
    ),
    pytest.param(
        header("a") + header("l", tarfile.GNUTYPE_LONGNAME, -512),
        "a header claims a size below zero",
        id="a name",
    ),
    pytest.param(
        header("a") + attributes(record("size", "-2048")) + header("b"),
        "a header claims a size below zero",
        id="in an attribute",
    ),
]
"""Headers that would hold up whoever reads them, and why each is refused."""
