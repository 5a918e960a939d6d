"""Headers that are made to hold up whoever reads them; where they get through, these tests do not end in time."""

from __future__ import annotations

import io
import tarfile

import pytest

from ccm_agent.model.tars import Header, members
from tests.support.tars import HOLD_UPS, attributes, header, record


def names(plain: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(plain + b"\0" * 1024), mode="r:", tarinfo=Header) as archive:
        return [member.name for member in members(archive)]


@pytest.mark.parametrize(("plain", "sentence"), HOLD_UPS)
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
