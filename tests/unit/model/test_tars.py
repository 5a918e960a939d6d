"""Headers that are made to hold up whoever reads them; where they get through, these tests do not end in time."""

from __future__ import annotations

import io
import tarfile

import pytest

from ccm_agent.model.tars import Header, members
from tests.support.tars import header


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


def names(plain: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(plain + b"\0" * 1024), mode="r:", tarinfo=Header) as archive:
        return [member.name for member in members(archive)]


@pytest.mark.parametrize(
    ("plain", "sentence"),
    [
        pytest.param(
            attributes(b"1" * 300_000) + header("a"),
            "a header holds a number of more than 256 digits",
            id="a number that takes an hour to search",
        ),
        pytest.param(
            attributes(record("comment", "1" * 257)) + header("a"),
            "a header holds a number of more than 256 digits",
            id="in a value",
        ),
        pytest.param(
            header("a", tarfile.XHDTYPE, (1 << 20) + 1),
            "a header claims 1048577 bytes",
            id="attributes without end",
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
    ],
)
def test_what_would_take_for_ever_is_refused(plain: bytes, sentence: str) -> None:
    with pytest.raises(tarfile.ReadError) as caught:
        names(plain)

    assert str(caught.value) == sentence


def test_an_honest_archive_is_read() -> None:
    long = "n" * 300
    plain = (
        attributes(record("path", long) + record("SCHILY.xattr.user.serial", "9" * 200))
        + header("short", size=3)
        + b"abc".ljust(512, b"\0")
        + header("d", tarfile.DIRTYPE)
    )

    assert names(plain) == [long, "d"]
