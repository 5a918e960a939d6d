"""Which descriptions of objects count."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ccm_agent.bus.object_descriptions import (
    ObjectCandidates,
    ObjectInfo,
    decode_meta,
    digest_field,
    is_digest,
)
from ccm_agent.bus.streams import Stored
from ccm_agent.model.errors import ProtocolError
from tests.support.controller import NOW


def stored(*, copied: bool = False, empty: bool = False, **others: Any) -> Stored:
    """A description of three bytes, with other fields."""
    body = msgspec.json.encode({"name": "site", "bucket": "B", "nuid": "abc1", "size": 3, **others})
    return Stored(subject="$O.B.M.c2l0ZQ==", body=b"" if empty else body, sequence=1, time=NOW, copied=copied)


def test_an_object_is_described_unless_the_description_is_empty_copied_or_of_a_deletion() -> None:
    assert decode_meta("site", "B", stored()) == ObjectInfo(name="site", bucket="B", nuid="abc1", size=3)
    assert [
        decode_meta("site", "B", one)
        for one in (stored(empty=True), stored(copied=True), stored(deleted=True))
    ] == [None, None, None]


@pytest.mark.parametrize(
    "others",
    [
        pytest.param({"nuid": "*"}, id="chunks of every object"),
        pytest.param({"nuid": ""}, id="no chunks"),
        pytest.param({"size": -1}, id="a negative size"),
        pytest.param({"options": {"link": {}}}, id="a link"),
        pytest.param({"size": "3"}, id="of another type"),
    ],
)
def test_a_description_of_something_else_than_a_plain_object_is_refused(others: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        decode_meta("site", "B", stored(**others))


def test_candidates_for_a_digest_have_that_digest_and_are_not_too_large() -> None:
    def described(nuid: str, digest: str, size: int = 3) -> ObjectInfo:
        return ObjectInfo(nuid=nuid, size=size, digest=digest_field(bytes.fromhex(digest)))

    copies = ObjectCandidates("0a" * 32, 3)
    for one in (
        None,
        described("other", "0b" * 32),
        described("large", "0a" * 32, 4),
        described("one", "0a" * 32),
        described("one", "0a" * 32),
    ):
        copies.add(one)

    assert [one.nuid for one in copies] == ["one"]


def test_a_digest_is_64_digits_of_hex() -> None:
    names = ["0a" * 32, "0a" * 31, "0A" * 32, f"{'0a' * 32}\n", "site"]

    assert [is_digest(name) for name in names] == [True, False, False, False, False]
