"""Which documents an assignment reads, and as what."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from ccm_agent.bus.signatures.signing import SignatureError
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.wire import Assignment
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.assignments.pinned_data import absent_data, check_pinned, read_documents, reads
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.trust.stored_snapshot import StoredSnapshot
from ccm_ctl.fleet.trust.verified_reader import open_reader
from tests.support.controller import fleet_on
from tests.support.signed_desk import NEW, OLD, Crew, SignedDesk


def assignment(*data: str, revision: int = 0) -> Assignment:
    bundle = Bundle(digest="d", size_bytes=1)
    return Assignment(name="web", scope="all", bundle=bundle, data=list(data), data_revision=revision)


@pytest.mark.parametrize(
    ("url", "key", "is_read"),
    [
        ("kv://CCM_DATA/common", "common", True),
        ("kv://CCM_DATA/common", "common2", False),
        ("kv://CCM_DATA/role/{{ lookup('facts.role') }}", "role/web", True),
        ("kv://CCM_DATA/role/${ Facts.role }/x", "role/web/x", True),
        ("kv://CCM_DATA/role/${ Facts.role }/x", "role/web", False),
        ("kv://OTHER/common", "common", False),
        ("https://example.net/common", "common", False),
    ],
)
def test_a_document_is_read_that_a_url_names_or_may_name(url: str, key: str, is_read: bool) -> None:
    assert reads(assignment("file:///x", url), key) is is_read


async def test_documents_are_read_as_they_were() -> None:
    bucket = MemoryBus(MemoryBroker(), "op").bucket("CCM_DATA")
    for key in ("a", "b", "a"):
        await bucket.put(key, b"data: {}")
    await bucket.delete("b")
    urls = (
        "kv://CCM_DATA/a",
        "kv://CCM_DATA/b",
        "kv://CCM_DATA/c",
        "kv://CCM_DATA/{{ x }}",
        "kv://CCM_DATA/..",
    )

    found = {
        revision: await read_documents(bucket, assignment(*urls, revision=revision))
        for revision in (1, 3, 4, 0)
    }

    assert found == {1: {"a": 1}, 3: {"a": 3, "b": 2}, 4: {"a": 3}, 0: {"a": 3}}
    assert await absent_data(bucket, assignment(*urls, revision=3)) == ["c"]
    assert await absent_data(bucket, assignment(*urls)) == []


def two_revisions(folder: Path) -> SignedDesk:
    """A desk with two revisions of the data common, which the snapshot names."""
    desk = SignedDesk(Crew())
    for word in (OLD, NEW):
        (folder / word).write_text(f"data: {{word: {word}}}\n")
        assert desk.ccmctl("data", "put", "common", str(folder / word), "--yes").code == 0
    desk.confirm()
    return desk


def fleet_of(desk: SignedDesk) -> Fleet:
    return fleet_on(MemoryBus(desk.broker, "anna", desk.signatory), desk.crew.trust)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("", ""),
        ("unsigned", "revision 3 is not verified: it is not signed"),
        ("a signer without the right", "is not verified: lou signed it, but may not write there"),
        ("newer revisions withheld", "revision 1 is not verified: the fleet's snapshot lists number"),
        ("an erased history", "no revision is stored"),
    ],
)
def test_data_is_pinned_only_if_it_is_verified_and_the_newest(tmp_path: Path, kind: str, reason: str) -> None:
    desk = two_revisions(tmp_path)
    if kind:
        desk.forge("CCM_DATA", "common", kind)
    revision = max((one.sequence for one in desk.writes("CCM_DATA", "common")), default=1)
    pins = assignment("kv://CCM_DATA/common", revision=revision)
    fleet = fleet_of(desk)

    if reason:
        with pytest.raises(SignatureError, match=reason):
            asyncio.run(check_pinned(fleet, pins))
    else:
        assert list(asyncio.run(check_pinned(fleet, pins))) == ["common"]


def test_made_up_revisions_do_not_hide_that_newer_ones_are_withheld(tmp_path: Path) -> None:
    desk = two_revisions(tmp_path)
    desk.forge("CCM_DATA", "common", "unsigned")  # with a number above those of the genuine ones

    async def judge() -> list[tuple[list[bool], bool]]:
        fleet = fleet_of(desk)
        old, new, high = await fleet.data.history("common")
        low = replace(old, signature="")
        found = []
        for entries in ([old, new], [old, new, low], [old, low], [old, high, low]):
            snapshot = StoredSnapshot(fleet, await open_reader(fleet))
            judged, gap = await snapshot.judge_history("CCM_DATA", "common", entries)
            found.append(([not one.reason for one in judged], bool(gap)))
        return found

    assert asyncio.run(judge()) == [
        ([True, True], False),
        ([True, True, False], False),
        ([False, False], True),
        ([False, False, False], True),
    ]
