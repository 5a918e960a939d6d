"""Ids sort in the order in which they were made, and are what the library says they are."""

from datetime import UTC, datetime

from ksuid import Ksuid

from ccm_agent.model.ids import derive_id, follow, is_id, new_id


def test_ids_of_one_process_grow_within_a_second_and_when_the_clock_steps_back() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    earlier = datetime(2029, 1, 1, tzinfo=UTC)

    made = [new_id(at) for at in (now, now, earlier, now)]

    assert made == sorted(set(made))


def test_an_id_derived_from_time_and_bytes_is_the_same_everywhere() -> None:
    text = derive_id(1_800_000_000, bytes(range(16)))

    read = Ksuid.from_base62(text)
    assert (read.timestamp, read.payload, len(text)) == (1_800_000_000, bytes(range(16)), 27)


def test_only_ids_are_ids() -> None:
    assert is_id(new_id())
    assert not any(is_id(text) for text in ("", "../../etc/passwd", "x" * 26, "é" * 27, "a" * 26 + "/"))


def test_ids_grow_past_those_that_another_process_made_in_the_same_second() -> None:
    theirs = derive_id(4_000_000_000, bytes([0x7F] * 16))

    follow(theirs)

    assert new_id() > theirs
