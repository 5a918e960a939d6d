"""Places in a chain, as ranges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ccm_ctl.fleet.events import places
from ccm_ctl.fleet.events.places import Places

NUMBERS = st.integers(1, 40)
RANGES = st.lists(st.tuples(NUMBERS, NUMBERS).map(lambda one: (min(one), max(one))), max_size=12)


@given(RANGES, NUMBERS, NUMBERS)
def test_places_are_a_set_of_numbers(ranges: list[tuple[int, int]], low: int, high: int) -> None:
    found, numbers = Places(), set[int]()
    for first, last in ranges:
        found.add(first, last)
        numbers |= set(range(first, last + 1))

    absent = [number for first, last in found.absent(low, high) for number in range(first, last + 1)]

    assert {number for number in range(50) if number in found} == numbers
    assert absent == [number for number in range(low, high + 1) if number not in numbers]
    assert found.covers(low, max(low, high)) == (set(range(low, max(low, high) + 1)) <= numbers)
    assert (found.lowest, found.highest, bool(found)) == (
        (min(numbers), max(numbers), True) if numbers else (0, 0, False)
    )


def test_a_copy_is_apart_from_the_original() -> None:
    one = Places()
    one.add(1)
    other = one.copy()
    other.add(2)

    assert (2 in one, 2 in other) == (False, True)


def test_ranges_are_bounded() -> None:
    found = Places()
    for number in range(places.RANGES_LIMIT + 10):
        found.add(number * 2 + 1)

    assert (found.lowest, found.highest) == (21, places.RANGES_LIMIT * 2 + 19)
