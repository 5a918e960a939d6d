"""Warnings about resources that a run omitted because they were not selected, are locked or cannot be undone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ccm_agent.clikit.text import fold_names, one_line
from ccm_agent.model.outcome import LOCKED, TransactionEvent
from ccm_agent.model.records.undo import CHANGED_SINCE, NOT_UNDONE

SHOWN = 3
"""The maximum number of resources in one warning."""


def format_left_out(reported: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield warnings about required resources that the run omitted. Nodes with the same resources share a warning."""
    for names, needs in _folded(reported):
        yield f"left out on {names}, although required: {needs}"


def format_locked(events: Mapping[str, Iterable[TransactionEvent]]) -> Iterator[str]:
    """Yield warnings about resources that were skipped because they are locked. Nodes with the same resources share a warning."""
    reported = {
        node: [f"{one.type}#{one.name} ({'; '.join(one.error)})" for one in found if one.code == LOCKED]
        for node, found in events.items()
    }
    for names, resources in _folded(reported):
        yield f"skipped on {names}: {resources}"


def format_losses(reported: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield warnings about data of a run that nodes could not store. Nodes with the same problem share a warning."""
    for names, losses in _folded(reported):
        yield f"{names}: {losses}"


def find_not_undone(events: Iterable[TransactionEvent]) -> list[tuple[str, str]]:
    """Return the resources of one node that an undo does not change, with the reasons."""
    return [
        (f"{one.type}#{one.name}", "; ".join(one.error))
        for one in events
        if one.code in (CHANGED_SINCE, NOT_UNDONE)
    ]


def format_not_undone(events: Mapping[str, Iterable[TransactionEvent]]) -> Iterator[str]:
    """Yield warnings about resources that an undo did not change. Nodes with the same resources share a warning."""
    reported = {
        node: [f"{resource} ({why})" for resource, why in find_not_undone(found)]
        for node, found in events.items()
    }
    for names, resources in _folded(reported):
        yield f"not undone on {names}: {resources}"


def _folded(reported: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield each reported text with the names of the nodes that reported it."""
    names: dict[tuple[str, ...], list[str]] = {}
    for node, found in sorted(reported.items()):
        if found:
            names.setdefault(tuple(found), []).append(node)
    for texts, nodes in names.items():
        more = f"; and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
        yield fold_names(nodes), "; ".join(one_line(text) for text in texts[:SHOWN]) + more
