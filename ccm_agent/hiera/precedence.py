"""
Detect orders with a precedence that is probably not intended.

With `merge: first` the first entry of `hierarchy.order` takes precedence, so people write `[role:${ … },
common]`. With `merge: deep` the last entry takes precedence. In the same order, `common` then replaces the
values of the roles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from ccm_agent.model.data import Merge
from ccm_agent.templates.scan import find_spans

REVERSALS_MAX = 10_000
"""
The maximum number of values that are examined. A document for thousands of nodes may have a wrong order for
each node.
"""


class Reversal(NamedTuple):
    """
    A value for some nodes that is replaced by a value for all nodes.

    Attributes:
        place: The position of the general entry in the order.
        general: The general entry, which selects the same override on every node.
        specific: The override with the replaced value.
        entry: The earlier entry that selects this override on some nodes.
        path: The keys of the value.
    """

    place: int
    general: str
    specific: str
    entry: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        key = ".".join(self.path)
        return (
            f"with `merge: deep` the last entry of `order` wins, so `{self.general}` replaces `{key}` of `{self.specific}`: "
            f"move `{self.general}` before `{self.entry}`, or use `merge: first`"
        )


def reversals(root: object) -> Iterator[Reversal]:
    """
    Yield the reversals of a document with `merge: deep`, in the order of its entries, up to a limit. A
    malformed document has none.
    """
    return islice(_all(root), REVERSALS_MAX)


def _all(root: object) -> Iterator[Reversal]:
    order, overrides = _deep(root)
    for place, general in enumerate(order):
        if find_spans(general) or not isinstance(overrides.get(general), Mapping):
            continue
        for entry in order[:place]:
            for specific in _named(entry, overrides):
                for path in _replaced(overrides[specific], overrides[general]):
                    yield Reversal(place, general, specific, entry, path)


def _deep(root: object) -> tuple[list[str], Mapping[str, Any]]:
    hierarchy = root.get("hierarchy") if isinstance(root, Mapping) else None
    if not isinstance(root, Mapping) or not isinstance(hierarchy, Mapping):
        return [], {}
    order, overrides = hierarchy.get("order"), root.get("overrides")
    is_deep = str(hierarchy.get("merge", "")).lower() == Merge.DEEP
    if not is_deep or not isinstance(order, list) or not isinstance(overrides, Mapping):
        return [], {}
    return [entry if isinstance(entry, str) else "" for entry in order], overrides


def _named(entry: str, overrides: Mapping[str, Any]) -> Iterator[str]:
    """Yield the overrides that an entry with expressions can select."""
    spans = find_spans(entry)
    if not spans:
        return
    ends = [0, *(span.end for span in spans)]
    starts = [*(span.start for span in spans), len(entry)]
    literals = [entry[end:start] for end, start in zip(ends, starts, strict=True)]
    for name, value in overrides.items():
        if isinstance(name, str) and isinstance(value, Mapping) and _fits(name, literals):
            yield name


def _fits(name: str, literals: list[str]) -> bool:
    """Whether a name contains the literals in this order, the first at its start and the last at its end."""
    first, *middle, last = literals
    if not name.startswith(first):
        return False
    at = len(first)
    for literal in middle:
        found = name.find(literal, at)
        if found < 0:
            return False
        at = found + len(literal)
    return len(name) - len(last) >= at and name.endswith(last)


def _replaced(specific: Mapping[str, Any], general: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the keys with a value in `specific` that a different value in `general` replaces."""
    for key, value in specific.items():
        if key not in general or general[key] == value:
            continue
        other = general[key]
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            yield from ((str(key), *path) for path in _replaced(value, other))
        elif not (isinstance(value, list) and isinstance(other, list)):
            yield (str(key),)
