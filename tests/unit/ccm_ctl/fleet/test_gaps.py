"""Missing numbers as ranges do what a set of numbers does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ccm_ctl.fleet.events.gaps import Gaps

NUMBERS = st.sets(st.integers(1, 40))


def gaps_of(numbers: set[int]) -> Gaps:
    gaps = Gaps()
    for number in sorted(numbers):
        gaps.add(number, number)
    return gaps


@given(numbers=NUMBERS, taken=st.lists(st.integers(0, 41)))
def test_ranges_are_a_set(numbers: set[int], taken: list[int]) -> None:
    gaps = gaps_of(numbers)

    for number in taken:
        gaps.discard(number)
        numbers.discard(number)

    assert gaps == gaps_of(numbers)
    assert [number for number in range(42) if number in gaps] == sorted(numbers)
    assert (len(gaps), bool(gaps)) == (len(numbers), bool(numbers))
    assert gaps.first(5) == sorted(numbers)[:5]


@given(low=st.integers(0, 20), high=st.integers(0, 40), known=NUMBERS)
def test_an_unknown_bundle_is_missing(low: int, high: int, known: set[int]) -> None:
    gaps = Gaps()

    gaps.add_between(low, high, known)

    assert gaps == gaps_of(set(range(low + 1, high + 1)) - known)


def test_a_copy_is_apart() -> None:
    gaps = Gaps([(1, 2)])
    other = gaps.copy()

    other.add(7, 9)

    assert (gaps, other) == (Gaps([(1, 2)]), Gaps([(1, 2), (7, 9)]))
