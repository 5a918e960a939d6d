import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.agent.cache.document_cache import CachedBucket
from ccm_agent.agent.trust.authentication import Authenticator
from ccm_agent.agent.trust.revision_guard import RevisionGuard
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.model.errors import (
    BusDeniedError,
    BusError,
    BusUnavailableError,
    ProtocolError,
    RevisionGoneError,
)
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from tests.support.agent import Bus, memory_bus
from tests.support.signing import FULL, Keyring, authenticator, now_ms, unsigned_stamps

BUCKET = "CCM_DATA"


class Stage:
    """A bucket, and what a process keeps of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = MemoryBroker()
        self.bus: Bus = memory_bus(self.broker, "web1")
        self.refused: list[tuple[str, str]] = []

    async def process(
        self, *, demand_stamps: bool | None = False, authenticator: Authenticator | None = None
    ) -> tuple[CachedBucket, RevisionGuard]:
        """As a process that has just started; without an authenticator it knows no keys."""
        path = self.folder / "documents.json"
        revision_guard = (
            RevisionGuard(path, authenticator) if authenticator is not None else unsigned_stamps(path)
        )
        await asyncio.to_thread(revision_guard.open)
        inner = self.bus.bucket(BUCKET)
        return (
            CachedBucket(
                inner,
                BUCKET,
                revision_guard,
                self.folder / "data",
                lambda *one: self.refused.append(one),
                demand_stamps=demand_stamps,
            ),
            revision_guard,
        )

    async def put(self, key: str, value: bytes) -> None:
        await self.bus.bucket(BUCKET).put(key, value)


def stamped(text: str, number: int, key: str = "common", bucket: str = BUCKET) -> bytes:
    return msgspec.json.encode(Stamped(bucket=bucket, key=key, number=number, body=text))


def value(entry: KeyValueEntry | None) -> Any:
    return entry.value if entry else None


async def test_a_plain_document_is_given_as_it_is(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    await at.put("common", b"data: {a: 1}")
    bucket, _ = await at.process()

    assert value(await bucket.get("common")) == b"data: {a: 1}"
    assert await bucket.get("none") is None


async def test_last_good_document_is_used_while_the_broker_is_down_even_after_a_restart(
    tmp_path: Path,
) -> None:
    at = Stage(tmp_path)
    await at.put("site/web", b"data: {a: 1}")
    bucket, _ = await at.process()
    seen = await bucket.get("site/web")
    at.broker.deny("web1", ">")
    at.broker.stop()

    bucket, _ = await at.process()

    assert await bucket.get("site/web") == seen


async def test_last_document_is_kept_after_the_broker_was_recreated(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    await at.put("common", b"data: {word: old}")
    bucket, _ = await at.process()
    await bucket.get("common")
    at.broker.make_anew()
    await at.put("common", b"data: {word: new}")
    await bucket.get("common")
    at.broker.stop()

    again, _ = await at.process()

    assert value(await again.get("common")) == b"data: {word: new}"


async def test_document_that_was_never_read_is_an_error_while_the_broker_is_down(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    at.broker.stop()
    bucket, _ = await at.process()

    with pytest.raises(BusUnavailableError):
        await bucket.get("common")


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(stamped("data: {}", 9, key="other"), id="another key"),
        pytest.param(stamped("data: {}", 9, bucket="CCM_FACTS"), id="another bucket"),
        pytest.param(stamped("data: {}", 4), id="an older number"),
    ],
)
async def test_invalid_document_is_reported_and_the_last_good_one_remains_in_use(
    tmp_path: Path, bad: bytes
) -> None:
    at = Stage(tmp_path)
    good = stamped("data: {a: 1}", 5)
    await at.put("common", good)
    bucket, revision_guard = await at.process()
    await bucket.get("common")
    revision_guard.numbers["CCM_DATA/common"] = 5
    await revision_guard.save()
    await at.put("common", bad)

    bucket, _ = await at.process()

    assert value(await bucket.get("common")) == good
    assert [what for what, _ in at.refused] == ["CCM_DATA/common"]


class _Failing:
    """A bucket that cannot be read."""

    def __init__(self, error: BusError) -> None:
        self._error = error

    async def get(self, key: str, at_least: int = 0) -> KeyValueEntry | None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (BusDeniedError("for db1 alone"), [("CCM_DATA/common", "for db1 alone")]),
        (RevisionGoneError("the text is lost"), [("CCM_DATA/common", "the text is lost")]),
        (BusUnavailableError("away"), []),
    ],
)
async def test_what_ends_only_when_an_operator_acts_is_reported_once(
    tmp_path: Path, error: BusError, told: list[tuple[str, str]]
) -> None:
    at = Stage(tmp_path)
    await at.put("common", b"data: {}")
    bucket, revision_guard = await at.process()
    await bucket.get("common")
    failing: Any = _Failing(error)
    bucket = CachedBucket(
        failing, BUCKET, revision_guard, tmp_path / "data", lambda *one: at.refused.append(one)
    )

    read = [value(await bucket.get("common")) for _ in range(2)]

    assert (read, at.refused) == ([b"data: {}"] * 2, told)


async def test_a_bad_document_without_a_good_one_before_it_is_an_error(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    await at.put("common", stamped("data: {}", 1, key="other"))
    bucket, _ = await at.process()

    with pytest.raises(ProtocolError):
        await bucket.get("common")


async def test_last_good_document_of_a_deleted_key_is_kept_and_reported_once(
    tmp_path: Path,
) -> None:
    at = Stage(tmp_path)
    await at.put("common", b"data: {a: 1}")
    bucket, _ = await at.process()
    seen = await bucket.get("common")

    await at.bus.bucket(BUCKET).delete("common")
    found = [await bucket.get("common"), await bucket.get("common")]
    bucket, _ = await at.process()
    found.append(await bucket.get("common"))

    gone = ("CCM_DATA/common", "kv://CCM_DATA/common was deleted; store a document there, `{}` for none")
    assert found == [seen] * 3
    assert at.refused == [gone] * 2, "once for each process"


async def test_a_document_that_comes_again_takes_the_place_of_the_deleted_one(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    await at.put("common", b"data: {a: 1}")
    bucket, _ = await at.process()
    await bucket.get("common")
    await at.bus.bucket(BUCKET).delete("common")
    await bucket.get("common")
    await at.put("common", b"{}")
    again = await bucket.get("common")
    await at.bus.bucket(BUCKET).delete("common")
    await bucket.get("common")

    assert value(again) == b"{}"
    assert len(at.refused) == 2, "a second deletion is news"


async def test_where_stamps_are_demanded_a_plain_document_takes_no_good_ones_place(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    good = stamped("data: {a: 1}", 5)
    await at.put("common", good)
    bucket, _ = await at.process(demand_stamps=True)
    await bucket.get("common")
    await at.put("common", b"data: {a: 2}")

    assert value(await bucket.get("common")) == good
    assert [what for what, _ in at.refused] == ["CCM_DATA/common"]


async def a_plain_one_after_a_stamped_one(at: Stage, bucket: CachedBucket, guard: RevisionGuard) -> Any:
    """What a node obeys when another program writes under a key that held a document of `ccmctl`."""
    await at.put("common", stamped("data: {a: 1}", 5))
    await bucket.get("common")
    guard.numbers["CCM_DATA/common"] = 5
    await at.put("common", b"data: {a: 2}")
    return value(await bucket.get("common"))


async def test_without_signatures_a_plain_document_after_a_stamped_one_is_refused_with_the_remedy(
    tmp_path: Path,
) -> None:
    at = Stage(tmp_path)
    bucket, guard = await at.process(demand_stamps=None)

    obeyed = await a_plain_one_after_a_stamped_one(at, bucket, guard)

    assert obeyed == stamped("data: {a: 1}", 5)
    assert at.refused == [
        (
            "CCM_DATA/common",
            "kv://CCM_DATA/common was not written by `ccmctl`, and the previous document was written by `ccmctl`, so "
            "this one may be a copy made by a node: write it with `ccmctl data put common`, or set `stamped_data: "
            "false` in the node's configuration",
        )
    ]


async def test_a_node_that_accepts_plain_documents_takes_one_after_a_stamped_one(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    bucket, guard = await at.process(demand_stamps=False)

    assert await a_plain_one_after_a_stamped_one(at, bucket, guard) == b"data: {a: 2}"
    assert at.refused == []


@pytest.mark.parametrize(
    ("is_allowed", "obeyed"),
    [
        pytest.param(True, b"data: {a: 2}", id="while unsigned documents are allowed"),
        pytest.param(False, stamped("data: {a: 1}", 5), id="from then on"),
    ],
)
async def test_where_signatures_are_demanded_they_decide_about_plain_documents(
    tmp_path: Path, is_allowed: bool, obeyed: bytes
) -> None:
    at, keyring = Stage(tmp_path), Keyring()
    ann = keyring.operator("ann", **FULL)
    until = now_ms() + 60_000 if is_allowed else 0
    trust = keyring.trust(allow_unsigned_until=until)
    bucket, _ = await at.process(
        demand_stamps=None, authenticator=await asyncio.to_thread(authenticator, tmp_path, trust)
    )
    await MemoryBus(at.broker, "ann", ann).bucket(BUCKET).put("common", stamped("data: {a: 1}", 5))
    await bucket.get("common")
    await at.put("common", b"data: {a: 2}")

    assert value(await bucket.get("common")) == obeyed


async def test_a_kept_document_that_is_damaged_does_not_count(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    await at.put("common", b"data: {a: 1}")
    bucket, _ = await at.process()
    await bucket.get("common")
    await asyncio.to_thread(damage, tmp_path / "data")
    at.broker.stop()

    bucket, _ = await at.process()

    with pytest.raises(BusUnavailableError):
        await bucket.get("common")


def damage(folder: Path) -> None:
    for path in folder.rglob("*.json"):
        path.write_text("{half")


async def test_the_past_is_read_once_and_kept_for_a_start_without_a_broker(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    await at.put("common", b"old")
    await at.put("common", b"new")
    bucket, _ = await at.process()
    before = await bucket.as_of("common", 1)
    at.broker.stop()

    again, _ = await at.process()

    assert (value(before), value(await again.as_of("common", 1))) == (b"old", b"old")
    with pytest.raises(BusUnavailableError):
        await again.as_of("common", 2)


async def test_a_past_revision_counts_if_an_operator_signed_it_who_may(tmp_path: Path) -> None:
    at, keys = Stage(tmp_path), Keyring()
    operators = keys.operator("bob", **FULL), keys.operator("eve"), Keyring().operator("bob", **FULL)
    inner = at.bus.bucket(BUCKET)
    for number, by in enumerate(operators):
        body = stamped("text", number + 1)
        signature = by.document(BUCKET, "common", body)[SIGNATURE_HEADER]
        await inner.store_signed("common", body, number, signature)
    node = await asyncio.to_thread(authenticator, tmp_path, keys.trust())
    bucket, _ = await at.process(authenticator=node)

    assert value(await bucket.as_of("common", 1)) == stamped("text", 1)
    for revision, reason in ((2, "eve signed it, but may not write there"), (3, "not in signers list")):
        with pytest.raises(ProtocolError, match=reason):
            await bucket.as_of("common", revision)


async def test_cached_past_revisions_are_only_used_for_pins(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    await at.put("common", b"one")
    await at.put("common", b"two")
    bucket, _ = await at.process()
    await bucket.as_of("common", 1)
    await bucket.as_of("common", 2)

    bucket.forget_pins({2})
    at.broker.stop()

    assert value(await bucket.as_of("common", 2)) == b"two"
    with pytest.raises(BusUnavailableError):
        await bucket.as_of("common", 1)


async def test_document_unused_by_two_successive_sets_of_pins_is_deleted(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    await at.put("common", b"one")
    await at.put("common", b"two")
    await at.put("common", b"three")
    bucket, _ = await at.process()
    for revision in (1, 2, 3):
        await bucket.as_of("common", revision)

    bucket.forget_pins({1, 2})
    bucket.forget_pins({2, 3})
    before = bucket.has_unused
    await bucket.drop_unused()

    kept = await asyncio.to_thread(lambda: [path.parent.name for path in tmp_path.rglob("pinned/*/*/*.json")])
    assert (before, bucket.has_unused, kept) == (True, False, ["2"])
