"""Missing numbers, stored as ranges. The memory use does not depend on the length of the ranges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


class Gaps:
    """A set of numbers, added from low to high."""

    __slots__ = ("_ranges",)  # each node of a run has an instance

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Store the first and last number of each range, in order and without overlap."""
        self._ranges = list(ranges)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self._ranges)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __contains__(self, number: int) -> bool:
        place = self._place(number)
        return place >= 0 and number <= self._ranges[place][1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Gaps) and self._ranges == other._ranges

    def __hash__(self) -> int:
        return hash(tuple(self._ranges))

    def __repr__(self) -> str:
        return f"Gaps({self._ranges!r})"

    def add(self, first: int, last: int) -> None:
        """
        Add the numbers from `first` to `last`, which must be higher than all existing ones. Does nothing if `last` is lower
        than `first`.
        """
        if last < first:
            return
        if self._ranges and self._ranges[-1][1] == first - 1:
            self._ranges[-1] = (self._ranges[-1][0], last)
        else:
            self._ranges.append((first, last))

    def add_between(self, low: int, high: int, known: Iterable[int]) -> None:
        """Add the numbers above `low` and up to `high`, except the known ones."""
        for number in sorted(one for one in known if low < one <= high):
            self.add(low + 1, number - 1)
            low = number
        self.add(low + 1, high)

    def discard(self, number: int) -> None:
        """Remove a number, if it is in the set."""
        if number not in self:
            return
        place = self._place(number)
        first, last = self._ranges[place]
        parts = [(first, number - 1), (number + 1, last)]
        self._ranges[place : place + 1] = [(low, high) for low, high in parts if low <= high]

    def copy(self) -> Gaps:
        """Return a copy that can be changed independently."""
        return Gaps(self._ranges)

    def first(self, most: int) -> list[int]:
        """Return the lowest numbers, at most `most` of them."""
        found: list[int] = []
        for first, last in self._ranges:
            found += range(first, min(last, first + most - len(found) - 1) + 1)
            if len(found) >= most:
                break
        return found

    def _place(self, number: int) -> int:
        """Return the index of the last range that begins at or before the number, or -1."""
        return bisect_right(self._ranges, number, key=lambda one: one[0]) - 1
