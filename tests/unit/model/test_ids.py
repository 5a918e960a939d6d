"""Ids sort in the order in which they were made, and are the KSUIDs that others make of the same time and bytes."""

from datetime import UTC, datetime

import pytest

from ccm_agent.model.ids import derive_id, follow, is_id, new_id


def test_ids_of_one_process_grow_within_a_second_and_when_the_clock_steps_back() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    earlier = datetime(2029, 1, 1, tzinfo=UTC)

    made = [new_id(at) for at in (now, now, earlier, now)]

    assert made == sorted(set(made))


# The first is the example of github.com/segmentio/ksuid; svix-ksuid 0.7.0 reads each as this time and payload.
@pytest.mark.parametrize(
    ("second", "payload", "text"),
    [
        (1_507_608_047, "b5a1cd34b5f99d1154fb6853345c9735", "0ujtsYcgvSTl8PAuAdqWYSMnLOv"),
        (1_507_610_780, "73fc1aa3b2446246d6e89fcd909e8fe8", "0ujzPyRiIAffKhBux4PvQdDqMHY"),
        (1_800_000_000, "000102030405060708090a0b0c0d0e0f", "3Ouil37bUs2V3TmTG2OoEYtuLS3"),
        (1_400_000_000, "00" * 16, "000000000000000000000000000"),
        (1_400_000_000 + 2**32 - 1, "ff" * 16, "aWgEPTl1tmebfsQzFP4bxwgy80V"),
    ],
)
def test_an_id_derived_from_time_and_bytes_is_the_same_everywhere(
    second: int, payload: str, text: str
) -> None:
    assert derive_id(second, bytes.fromhex(payload)) == text


@pytest.mark.parametrize("second", [0, 1_400_000_000 - 1, 1_400_000_000 + 2**32, 253_402_300_799])
def test_a_time_that_no_id_has_is_an_error(second: int) -> None:
    with pytest.raises(ValueError, match="no KSUID"):
        derive_id(second, bytes(16))


def test_a_host_whose_clock_starts_in_1970_makes_ids_that_sort() -> None:
    made = [new_id(datetime(1970, 1, 1, tzinfo=UTC)) for _ in range(3)]

    assert made == sorted(set(made))
    assert all(map(is_id, made))


def test_an_id_beyond_the_last_one_is_not_followed() -> None:
    follow("z" * 27)

    assert new_id() < "aWgEPTl1tmebfsQzFP4bxwgy80V"


def test_only_ids_are_ids() -> None:
    assert is_id(new_id())
    assert not any(is_id(text) for text in ("", "../../etc/passwd", "x" * 26, "é" * 27, "a" * 26 + "/"))


def test_ids_grow_past_those_that_another_process_made_in_the_same_second() -> None:
    theirs = derive_id(4_000_000_000, bytes([0x7F] * 16))

    follow(theirs)

    assert new_id() > theirs
