"""Headers that are made to hold up whoever reads them; where they get through, these tests do not end in time."""

from __future__ import annotations

import io
import tarfile

import pytest

from ccm_agent.model.formats.tar_reader import Tar, members
from tests.support.tars import HOLD_UPS, attributes, header, record


def names(plain: bytes) -> list[str]:
    with Tar(io.BytesIO(plain + b"\0" * 1024), 100) as archive:
        return [member.name for member in members(archive)]


@pytest.mark.parametrize(("plain", "sentence"), HOLD_UPS)
def test_an_endless_schedule_is_refused(plain: bytes, sentence: str) -> None:
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


def test_many_attributes_in_a_compressed_archive_do_not_make_it_be_read_from_its_beginning() -> None:
    """Seeking back in a compressed stream does that: 200 kB of archive held the reader up for hours."""
    rewinds = 0

    class Plain(io.BytesIO):
        def seek(self, position: int, whence: int = 0, /) -> int:
            nonlocal rewinds
            rewinds += whence == 0 and position < self.tell()
            return super().seek(position, whence)

    plain = b"".join(attributes(record("comment", "x" * 20_000)) + header(f"f{n}") for n in range(20))

    with Tar(Plain(plain + b"\0" * 1024), 100) as archive:
        assert len(list(members(archive))) == 20
    assert rewinds == 0


def test_more_headers_than_there_may_be_are_not_read() -> None:
    plain = b"".join(header(f"f{n}") for n in range(101))

    with pytest.raises(tarfile.ReadError) as caught:
        names(plain)

    assert str(caught.value) == "it contains more than 100 headers"


def test_an_archive_releases_returned_entries() -> None:
    long = "g" * 300
    plain = attributes(record("uname", long) + record("comment", "x")) + header("a") + header("b")

    with Tar(io.BytesIO(plain + b"\0" * 1024), 100) as archive:
        found = list(members(archive))

    assert [(one.name, one.uname, one.pax_headers) for one in found] == [("a", "", {}), ("b", "", {})]


def test_a_file_with_holes_is_read() -> None:
    content = b"begin".ljust(512, b"x")
    block = bytearray(header("s", tarfile.GNUTYPE_SPARSE, 512))
    block[386:410] = b"%011o\0%011o\0" % (4096, 512)
    block[483:495] = b"%011o\0" % 8192
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)

    with Tar(io.BytesIO(bytes(block) + content + b"\0" * 1024), 100) as archive:
        (member,) = members(archive)
        file = archive.extractfile(member)
        assert file is not None
        assert file.read() == b"\0" * 4096 + content + b"\0" * 3584
