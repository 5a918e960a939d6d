"""
The choice of events that a full spool drops, and the dropped events that are not reported yet.

Dropped events have a count, and positions in the node's chain. With the positions, a reader can distinguish a
reported gap from a gap that an attacker caused. Positions are stored as ranges. If there are too many ranges,
neighbors are joined. A joined range includes positions that were not lost, so the count limits the number of
missing events that it can explain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ccm_agent.storage.spool_segment import Entry

RANGES_LIMIT = 500
"""The maximum number of ranges in one event."""

Ranges = list[tuple[int, int]]


class Losses:
    """
    The events that one spool dropped.

    Attributes:
        count: The number of events.
        places: By chain, ranges of positions, sorted and disjoint.
    """

    def __init__(self, count: int = 0, places: dict[str, Ranges] | None = None) -> None:
        self.count = count
        self.places = places or {}

    def add(self, places: Iterable[tuple[str, int]]) -> None:
        """Add dropped events by chain and position; an event without a chain only increases the count."""
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
        """Record that this many events, and all positions, were reported."""
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
    """Choose the events to drop: whole stable runs, oldest first, then the oldest events, until `excess` bytes are freed."""
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
