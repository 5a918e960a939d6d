"""Documents of one node as an operator stores and sees them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.node_data import NodeData, read_index_entry, slot_key
from ccm_agent.bus.signatures.signatory import Signatory
from ccm_agent.bus.signatures.signing import SignatureError, SignatureKind, verify
from ccm_agent.bus.signatures.verified import Unverified, Verified
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.errors import RevisionError, RevisionGoneError
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import NodeRecord
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.assignments.pinned_data import lost_data, read_documents
from ccm_ctl.fleet.data.documents import numbers_for
from ccm_ctl.fleet.data.node_data import REUSE_AFTER, OperatorData
from ccm_ctl.fleet.trust.verified_reader import Judged, VerifiedReader
from tests.support.controller import fleet_on
from tests.support.signing import OWN, OwnSignatory, new_key

KEY = "node/db1"


async def judge(entries: Sequence[KeyValueEntry]) -> list[Judged]:
    """Everything is verified, as in unsigned operation."""
    return VerifiedReader(None, FakeClock(), is_demanded=False).history("CCM_DATA", entries)


class Site:
    """A broker, an operator's data, and the same data as the node has them."""

    def __init__(self, signatory: Signatory | None = None) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.broker = MemoryBroker(now=lambda: self.now)
        self.bus = MemoryBus(self.broker, "op", signatory)
        self.index = self.bus.bucket("CCM_DATA")
        self.texts = self.bus.bucket("CCM_NODE_DATA")
        self.data = OperatorData(self.index, self.texts, self.bus.bucket("CCM_NODES"), signatory)
        self.node = NodeData(self.index, self.texts)

    async def put(self, *bodies: str, key: str = KEY) -> list[int]:
        """Write a document several times, and return its revisions."""
        entry = await self.data.newest(key)
        revision = entry.revision if entry is not None and entry.value else 0
        revisions = []
        for body in bodies:
            number = await self.index.revision() + 1
            value = msgspec.json.encode(Stamped(bucket="CCM_DATA", key=key, number=number, body=body))
            revision = await self.data.write(key, value, revision, OWN)
            revisions.append(revision)
        return revisions

    async def announce(self, *, own_data: bool) -> None:
        """What the node says of itself."""
        record = msgspec.json.encode(NodeRecord(node="db1", own_data=own_data))
        await self.bus.bucket("CCM_NODES").put("node.db1", record)

    def stored(self) -> list[bytes]:
        """What every node can read."""
        return [write.body for write in self.broker.buckets["CCM_DATA"]]


def body(value: bytes) -> Any:
    return msgspec.json.decode(value, type=Stamped).body


async def test_text_is_in_no_bucket_that_every_node_reads() -> None:
    site = Site()

    await site.put("secret one", "secret two")

    assert len(site.stored()) == 2
    assert not any(b"secret" in each for each in site.stored())
    assert body((await site.node.get(KEY)).value) == "secret two"  # type: ignore[union-attr]


@pytest.mark.parametrize("key", ["common", "node/all", "node/DB1", "role/node/db1"])
async def test_document_whose_key_names_no_node_is_stored_as_before(key: str) -> None:
    site = Site()

    await site.put("text", key=key)

    assert [body(each) for each in site.stored()] == ["text"]


async def test_signature_is_for_the_documents_own_bucket_and_key() -> None:
    signing = new_key()
    site = Site(OwnSignatory(signing, lambda: 1_000_000))

    await site.put("text")
    entry = await site.node.get(KEY)

    assert entry is not None
    claims = verify(
        entry.signature, SignatureKind.DOCUMENT, key_subject("CCM_DATA", KEY), entry.value, now_ms=1_000_000
    )
    assert claims.key == signing.public_key


async def test_every_revision_that_is_kept_can_be_read_and_slots_are_used_again() -> None:
    site = Site()
    revisions: list[int] = []
    for number in range(60):
        revisions += await site.put(f"text {number}")
        site.now += REUSE_AFTER + timedelta(seconds=1)

    past = [await site.node.as_of(KEY, revision) for revision in revisions[-20:]]

    assert [body(entry.value) for entry in past if entry] == [f"text {number}" for number in range(40, 60)]
    assert [body(entry.value) for entry in await site.data.history(KEY)] == [
        f"text {number}" for number in range(40, 60)
    ]
    assert len(await site.texts.keys()) == 21
    with pytest.raises(RevisionGoneError):
        await site.node.as_of(KEY, revisions[-21])


async def test_slot_that_another_operator_is_using_is_not_overwritten() -> None:
    site = Site()
    first = await site.texts.store_signed(slot_key(KEY, 0), b"of another operator", 0, "")

    await site.put("mine")
    there = await site.texts.newest(slot_key(KEY, 0))

    assert there is not None
    assert (there.revision, there.value) == (first, b"of another operator")
    assert body((await site.node.get(KEY)).value) == "mine"  # type: ignore[union-attr]


async def test_writing_over_another_revision_is_refused() -> None:
    site = Site()
    [first, _second] = await site.put("one", "two")

    with pytest.raises(RevisionError):
        await site.data.write(KEY, b"{}", first, OWN)

    assert body((await site.node.get(KEY)).value) == "two"  # type: ignore[union-attr]


async def test_node_that_cannot_read_apart_keeps_its_document_where_it_was() -> None:
    site = Site()
    await site.announce(own_data=False)

    await site.put("public")

    assert await site.data.is_kept_apart(KEY) is False
    assert [body(each) for each in site.stored()] == ["public"]
    assert await site.data.exposed() == {KEY: 1}


async def test_all_documents_are_listed_alike() -> None:
    site = Site()
    await site.put("of db1")
    await site.put("of all", key="common")
    await site.put("of web1", key="node/web1")

    listed = {entry.key: body(entry.value) for entry in await site.data.entries()}
    some = [entry.key for entry in await site.data.entries("node/")]

    assert listed == {"common": "of all", KEY: "of db1", "node/web1": "of web1"}
    assert (some, await site.data.keys("node/")) == ([KEY, "node/web1"], [KEY, "node/web1"])


@pytest.mark.parametrize("is_interrupted", [False, True], ids=["once", "again after an interruption"])
async def test_move_keeps_pinned_revisions_and_leaves_nothing_behind(is_interrupted: bool) -> None:
    site = Site()
    await site.announce(own_data=False)
    public = await site.put("secret 0", "secret 1")
    await site.index.delete(KEY)
    deleted = await site.index.revision()
    public += await site.put("secret 2")
    await site.announce(own_data=True)
    public += await site.put("secret 3")
    before = [(entry.revision, entry.value) for entry in await site.data.history(KEY)]
    if is_interrupted:
        unpurged: Any = _WithoutPurge(site.index)
        await OperatorData(unpurged, site.texts, site.bus.bucket("CCM_NODES"), None).protect(KEY, judge)
        assert await site.data.exposed() == {KEY: 3}
        public += await site.put("secret 4")
        before = [(entry.revision, entry.value) for entry in await site.data.history(KEY)]

    await site.data.protect(KEY, judge)
    moved = await site.data.history(KEY)

    assert await site.data.exposed() == {}
    assert not any(b"secret" in each for each in site.stored())
    assert [(entry.revision, entry.value) for entry in moved][: len(before)] == before
    for revision, text in zip(public, ["0", "1", "2", "3", "4"], strict=False):
        entry = await site.node.as_of(KEY, revision)
        assert entry is not None
        assert (entry.revision, body(entry.value)) == (revision, f"secret {text}")
    assert await site.node.as_of(KEY, deleted) is None
    newest = await site.node.get(KEY)
    assert newest is not None
    assert body(newest.value) == f"secret {len(public) - 1}"


class _WithoutPurge:
    """A bucket whose purge is never reached."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def purge_before(self, key: str, revision: int) -> None:
        """Remove nothing."""


async def test_deleted_document_is_moved_and_stays_deleted() -> None:
    site = Site()
    await site.announce(own_data=False)
    [revision] = await site.put("secret")
    await site.index.delete(KEY)
    await site.announce(own_data=True)

    await site.data.protect(KEY, judge)
    was = await site.node.as_of(KEY, revision)

    assert await site.data.exposed() == {}
    assert not any(b"secret" in each for each in site.stored())
    assert await site.node.get(KEY) is None
    assert was is not None
    assert body(was.value) == "secret"


async def test_moved_document_keeps_its_signature_and_its_number() -> None:
    site = Site(OwnSignatory(new_key(), lambda: 1_000_000))
    await site.announce(own_data=False)
    await site.put("text")
    before = await site.data.newest(KEY)
    await site.announce(own_data=True)

    await site.data.protect(KEY, judge)
    after = await site.node.get(KEY)
    index = read_index_entry((await site.index.get(KEY)) or pytest.fail("no index entry"))

    assert before is not None
    assert after is not None
    assert index is not None
    assert (after.signature, after.value) == (before.signature, before.value)
    assert index.number == msgspec.json.decode(before.value, type=Stamped).number


async def test_only_verified_revisions_are_moved_and_none_below_a_forged_one() -> None:
    site = Site()
    await site.announce(own_data=False)
    revisions = await site.put("genuine", "forged", "genuine again")
    await site.announce(own_data=True)

    def forging(forged: bytes) -> Callable[[Sequence[KeyValueEntry]], Awaitable[list[Judged]]]:
        async def judged(entries: Sequence[KeyValueEntry]) -> list[Judged]:
            return [
                Unverified(value=one, reason="it is not signed")
                if forged in one.value
                else Verified(value=one)
                for one in entries
            ]

        return judged

    with pytest.raises(SignatureError, match="revision 3 is not verified: it is not signed"):
        await site.data.protect(KEY, forging(b"again"))
    assert await site.data.exposed() == {KEY: 3}
    await site.data.protect(KEY, forging(b"forged"))

    assert await site.data.exposed() == {}
    kept = [await site.node.as_of(KEY, revision) for revision in revisions]
    assert [body(one.value) if one is not None else None for one in kept] == [
        "genuine",
        "genuine",
        "genuine again",
    ]


async def test_pins_of_assignments_find_revisions_that_were_moved() -> None:
    from tests.unit.ccm_ctl.fleet.test_pinned_data import assignment

    site = Site()
    await site.announce(own_data=False)
    revisions = await site.put("one", "two")
    await site.announce(own_data=True)
    await site.data.protect(KEY, judge)
    pinned = assignment(f"kv://CCM_DATA/{KEY}", revision=revisions[0])

    assert await read_documents(site.data, pinned) == {KEY: revisions[0]}
    assert await lost_data(site.data, pinned) == []


async def test_lost_text_is_an_error_for_the_node_and_no_obstacle_for_the_operator() -> None:
    site = Site()
    await site.put("lost")
    site.broker.buckets["CCM_NODE_DATA"].clear()

    with pytest.raises(RevisionGoneError, match="ccmctl data put"):
        await site.node.get(KEY)
    await site.put("again")

    assert body((await site.node.get(KEY)).value) == "again"  # type: ignore[union-attr]


async def test_credentials_of_a_node_hold_no_numbers_of_other_nodes_documents() -> None:
    site = Site()
    for key in ("common", KEY, "node/web1"):
        await site.put("text", key=key)

    numbers = await numbers_for(fleet_on(site.bus), "db1")

    assert sorted(numbers) == ["CCM_DATA/common", f"CCM_DATA/{KEY}"]


def test_an_operator_has_no_other_way_to_write_data_than_a_signed_one() -> None:
    assert [name for name in ("put", "update", "delete") if hasattr(OperatorData, name)] == []
