"""
Positions in a chain of events, as sorted ranges that do not touch. The memory use does not grow with the length of the chain.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

Range = tuple[int, int]

RANGES_LIMIT = 10_000
"""The maximum number of ranges. Beyond this, the lowest are dropped. Only the holder of a node's key can cause that many."""


class Places:
    """A set of positions, added in any order."""

    def __init__(self) -> None:
        self._ranges: list[Range] = []

    def __contains__(self, number: int) -> bool:
        at = self._at(number)
        return at >= 0 and number <= self._ranges[at][1]

    def __bool__(self) -> bool:
        return bool(self._ranges)

    @property
    def lowest(self) -> int:
        """The lowest position, or 0."""
        return self._ranges[0][0] if self._ranges else 0

    @property
    def highest(self) -> int:
        """The highest position, or 0."""
        return self._ranges[-1][1] if self._ranges else 0

    def add(self, first: int, last: int = 0) -> None:
        """Add the positions from `first` to `last`, or one position."""
        last = last or first
        begin = self._at(first)
        if begin < 0 or self._ranges[begin][1] < first - 1:
            begin += 1
        end = begin
        while end < len(self._ranges) and self._ranges[end][0] <= last + 1:
            first, last = min(first, self._ranges[end][0]), max(last, self._ranges[end][1])
            end += 1
        self._ranges[begin:end] = [(first, last)]
        if len(self._ranges) > RANGES_LIMIT:
            del self._ranges[0]

    def absent(self, low: int, high: int) -> Iterator[Range]:
        """Yield the ranges of positions from `low` to `high` that are not in the set, lowest first."""
        for first, last in self._ranges:
            if first > high:
                break
            if first > low:
                yield low, first - 1
            low = max(low, last + 1)
        if low <= high:
            yield low, high

    def copy(self) -> Places:
        """Return a copy that can be changed independently."""
        copied = Places()
        copied._ranges = list(self._ranges)
        return copied

    def covers(self, first: int, last: int) -> bool:
        """Whether every position from `first` to `last` is in the set."""
        at = self._at(first)
        return at >= 0 and last <= self._ranges[at][1]

    def _at(self, number: int) -> int:
        """Return the index of the last range that begins at or before the number, or -1."""
        return bisect_right(self._ranges, number, key=lambda one: one[0]) - 1
