"""Documents that agents obey: which number each gets."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SigningKey
from ccm_agent.bus.signatures.verified import Unverified, Verified
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.data.documents import NUMBER_LIMIT, Documents, StoredDocument, decode_removal
from tests.support.authorship import new_seed
from tests.support.controller import BEFORE, NOW, StillClock, fleet_on
from tests.support.signing import OwnSignatory

BUCKET = "CCM_DATA"
FAR = datetime(2999, 1, 1, tzinfo=UTC)


def documents(broker: MemoryBroker, operator: str = "op", writers: datetime = NOW) -> Documents:
    fleet = replace(fleet_on(MemoryBus(broker, operator)), clock=Clock(writers))
    return Documents(fleet, fleet.data, BUCKET)


class Clock(StillClock):
    """A clock of one who writes."""

    def __init__(self, time: datetime) -> None:
        self._time = time

    def now(self) -> datetime:
        return self._time


async def put(
    broker: MemoryBroker, text: str, operator: str = "op", writers: datetime = NOW
) -> tuple[int, int]:
    """Number and count of a document that is written over what stands."""
    _, new = await documents(broker, operator, writers).change("common", lambda _: text)
    return new.number, new.count


PROOF = Verified(value=None)


async def stand(broker: MemoryBroker, number: int) -> None:
    """Let a document stand as older programs wrote it."""
    stamped = Stamped(bucket=BUCKET, key="common", number=number, body="old")
    await MemoryBus(broker, "op").bucket(BUCKET).put("common", msgspec.json.encode(stamped))


async def test_a_broker_recreated_continues_above_what_agents_remember() -> None:
    later = NOW + timedelta(seconds=1)
    old, new = MemoryBroker(lambda: NOW), MemoryBroker(lambda: later)

    remembered = [await put(old, text) for text in ("one", "two", "three")]
    anew = await put(new, "four", writers=later)

    assert remembered == [(BEFORE + 1, 1), (BEFORE + 2, 2), (BEFORE + 3, 3)]
    assert anew == (BEFORE + 1001, 1)


@pytest.mark.parametrize(
    ("stands", "written"),
    [
        pytest.param(
            7, (BEFORE + 1, 8), id="a small number of before is followed by the time, and counted on"
        ),
        pytest.param(
            BEFORE + 9, (BEFORE + 10, BEFORE + 10), id="a clock that is behind does not turn it back"
        ),
    ],
)
async def test_a_number_grows_from_the_current_one(stands: int, written: tuple[int, int]) -> None:
    broker = MemoryBroker(lambda: NOW)
    await stand(broker, stands)

    assert await put(broker, "new") == written


async def test_a_document_that_is_removed_and_comes_again_counts_on() -> None:
    broker = MemoryBroker(lambda: NOW)
    await stand(broker, BEFORE + 40)
    await documents(broker).remove("common")

    assert (await put(broker, "new"))[0] == BEFORE + 41


@pytest.mark.parametrize(
    ("brokers", "writers"),
    [
        pytest.param(NOW, FAR, id="the writer's"),
        pytest.param(FAR, NOW, id="the broker's"),
    ],
)
async def test_a_clock_far_in_the_future_has_no_say(brokers: datetime, writers: datetime) -> None:
    assert await put(MemoryBroker(lambda: brokers), "new", writers=writers) == (BEFORE + 1, 1)


async def test_two_concurrent_writes_get_two_numbers() -> None:
    broker = MemoryBroker(lambda: NOW)

    both = await asyncio.gather(put(broker, "hers", "ann"), put(broker, "his", "bob"))

    assert sorted(both) == [(BEFORE + 1, 1), (BEFORE + 2, 2)]


async def test_number_and_count_are_above_those_of_others_too() -> None:
    others = [
        StoredDocument(key="a", number=BEFORE + 5, count=2, proof=PROOF),
        StoredDocument(key="b", number=3, count=9, proof=PROOF),
        StoredDocument(
            key="c", number=BEFORE + 99, count=99, proof=Unverified(value=None, reason="unsigned")
        ),
    ]

    _, new = await documents(MemoryBroker(lambda: NOW)).change("common", lambda _: "new", above=others)

    assert (new.number, new.count) == (BEFORE + 6, 10)


async def test_a_number_without_room_above_it_is_not_followed() -> None:
    broker = MemoryBroker(lambda: NOW)
    await stand(broker, NUMBER_LIMIT - 1)

    with pytest.raises(ProtocolError, match=r"^common: the stored number cannot be increased"):
        await put(broker, "new")


@pytest.mark.parametrize(
    ("signed_note", "stored_note", "author"),
    [
        pytest.param("same", "same", "anna", id="signed"),
        pytest.param(None, "same", "anna", id="not signed"),
        pytest.param("other", "same", "", id="signed for another note"),
        pytest.param("", "same", "", id="signed without a note"),
        pytest.param(None, "", "", id="no note"),
        pytest.param(None, "broken", "", id="not a note"),
    ],
)
def test_the_author_of_a_removal_is_the_one_that_was_signed(
    signed_note: str | None, stored_note: str, author: str
) -> None:
    notes = {
        "same": '{"written_by": "anna", "message": "gone"}',
        "other": '{"written_by": "bob"}',
        "broken": "{",
        "": "",
    }
    signature = ""
    if signed_note is not None:
        signatory = OwnSignatory(SigningKey(new_seed()), lambda: 1)
        signature = signatory.deletion(BUCKET, "common", 1, notes[signed_note])[SIGNATURE_HEADER]
    entry = KeyValueEntry(
        key="common", value=b"", revision=1, created=NOW, signature=signature, note=notes[stored_note]
    )

    removal = decode_removal(entry)

    assert (removal.body, removal.written_by, removal.message) == (None, author, "gone" if author else "")
