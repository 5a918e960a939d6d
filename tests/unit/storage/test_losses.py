"""What a full spool gave up, as ranges of places."""

from __future__ import annotations

from ccm_agent.storage import losses
from ccm_agent.storage.losses import Losses


def test_places_are_named_as_ranges_by_chain() -> None:
    lost = Losses()

    lost.add([("a", 5), ("a", 3), ("a", 4), ("a", 9), ("b", 1)])
    lost.add([("a", 10), ("", 0)])

    assert lost.count == 7
    assert lost.format_ranges() == {"a": "3-5,9-10", "b": "1"}


def test_reported_losses_are_not_named_again() -> None:
    lost = Losses()
    lost.add([("a", 1)])

    lost.reported(1)
    lost.add([("a", 2)])

    assert (lost.count, lost.format_ranges()) == (1, {"a": "2"})


def test_too_many_ranges_are_joined_where_the_gaps_are_smallest() -> None:
    lost = Losses()
    numbers = list(range(0, 4 * losses.RANGES_LIMIT, 4))

    lost.add(("a", number) for number in [*numbers, 2, 10_001])

    assert lost.count == losses.RANGES_LIMIT + 2
    assert len(lost.places["a"]) == losses.RANGES_LIMIT
    assert lost.places["a"][0] == (0, 4)
    assert lost.places["a"][-1] == (10_001, 10_001)
