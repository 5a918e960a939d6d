"""
The worst set of nodes that can be in progress at the same time in a rollout.

The order in which nodes end and free their slots is unknown. Any set of a wave's nodes can therefore be in progress together, up
to the batch size and the count of each slot of the manifest. Such sets are the independent sets of a matroid (a truncated
transversal matroid). For a matroid, repeatedly taking the heaviest node that still fits results in the heaviest set.

Source: A. Schrijver, Combinatorial Optimization, 2003, sections 39.4 and 40.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct


class CandidateNode(Struct, frozen=True, kw_only=True):
    """
    A node that would change.

    Attributes:
        node: Its name.
        weight: The number of healthy instances lost while it changes.
        slots: It changes only while it holds one of these slots of the manifest. Empty: no slot limits it.
    """

    node: str
    weight: int
    slots: frozenset[str] = frozenset()


def choose_worst(
    candidates: Iterable[CandidateNode], at_once: int, counts: Mapping[str, int]
) -> list[CandidateNode]:
    """
    Return the nodes that lose the most instances together.

    Args:
        candidates: The nodes of one wave.
        at_once: The number of nodes of the wave that run at the same time.
        counts: The maximum number of holders of each slot in the manifest.
    """
    chosen: list[CandidateNode] = []
    places = _SlotPlaces(counts)
    for one in sorted(candidates, key=lambda one: (-one.weight, one.node)):
        if len(chosen) >= at_once or one.weight <= 0:
            break
        if not one.slots or places.take(one):
            chosen.append(one)
    return chosen


class _SlotPlaces:
    """Assigns slots to nodes. A node can move to another of its slots to make room."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts
        self._held: dict[str, list[CandidateNode]] = {slot: [] for slot in counts}
        self._full: set[str] = set()
        """Slots that no exchange can free. They stay full, because slots are never released."""

    def take(self, node: CandidateNode) -> bool:
        """Assign one of the node's slots to it. Returns whether this was possible."""
        tried: set[str] = set()
        came_from: dict[str, tuple[CandidateNode, str]] = {}
        waiting = [(node, "")]
        while waiting:
            mover, left = waiting.pop()
            for slot in sorted(mover.slots - tried - self._full):
                tried.add(slot)
                came_from[slot] = (mover, left)
                if len(self._held[slot]) < self._counts[slot]:
                    self._move(slot, came_from)
                    return True
                waiting += [(holder, slot) for holder in self._held[slot]]
        self._full |= tried
        return False

    def _move(self, slot: str, came_from: Mapping[str, tuple[CandidateNode, str]]) -> None:
        while slot:
            mover, left = came_from[slot]
            self._held[slot].append(mover)
            if left:
                self._held[left].remove(mover)
            slot = left
