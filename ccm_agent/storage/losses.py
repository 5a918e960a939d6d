"""
Chooses the events that a full spool drops, and records the dropped events that have not been reported yet.

Dropped events are recorded with their number and their positions in the node's chain. The positions allow a reader to distinguish
a reported gap from a gap that an attacker caused. They are stored as ranges. If there are too many ranges, neighboring ranges are
joined. A joined range includes positions that were not lost. Therefore the recorded number limits how many missing events it can
explain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ccm_agent.storage.spool_segment import Entry

RANGES_LIMIT = 500
"""The maximum number of ranges that an event reports."""

Ranges = list[tuple[int, int]]


class Losses:
    """
    The events that one spool dropped.

    Attributes:
        count: The number of dropped events.
        places: The positions by chain, as sorted and disjoint ranges.
    """

    def __init__(self, count: int = 0, places: dict[str, Ranges] | None = None) -> None:
        self.count = count
        self.places = places or {}

    def add(self, places: Iterable[tuple[str, int]]) -> None:
        """Add dropped events by chain and position. An event without a chain only increases the count."""
        found: dict[str, Ranges] = {}
        for chain, place in places:
            self.count += 1
            if chain:
                found.setdefault(chain, []).append((place, place))
        for chain, ranges in found.items():
            self.places[chain] = _joined([*self.places.get(chain, []), *ranges])

    def format_ranges(self) -> dict[str, str]:
        """Format the ranges by chain, such as `5-90,101`."""
        return {
            chain: ",".join(f"{first}-{last}" if last > first else str(first) for first, last in ranges)
            for chain, ranges in self.places.items()
        }

    def reported(self, count: int) -> None:
        """Record that this many events and all positions have been reported."""
        self.count -= count
        self.places = {}


def _joined(ranges: Ranges) -> Ranges:
    joined: Ranges = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    if len(joined) <= RANGES_LIMIT:
        return joined
    gaps = sorted(range(1, len(joined)), key=lambda at: joined[at - 1][1] - joined[at][0])
    begins = [0, *sorted(gaps[: RANGES_LIMIT - 1])]
    ends = [*begins[1:], len(joined)]
    return [(joined[begin][0], joined[end - 1][1]) for begin, end in zip(begins, ends, strict=True)]


def choose(entries: Sequence[Entry], excess: int) -> list[Entry]:
    """
    Choose the events to drop until `excess` bytes are freed: first whole stable runs, starting with the oldest, then the oldest
    events.
    """
    stable: dict[str, list[Entry]] = {entry.run: [] for entry in entries if entry.is_stable}
    for entry in entries:
        if entry.run in stable:
            stable[entry.run].append(entry)
    others = ([entry] for entry in entries if entry.run not in stable)
    chosen: list[Entry] = []
    for group in (*stable.values(), *others):
        if excess <= 0:
            break
        chosen += group
        excess -= sum(entry.size for entry in group)
    return chosen
