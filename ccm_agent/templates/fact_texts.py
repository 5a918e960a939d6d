"""The facts of a node as compared by selectors: by dotted path, as text, item by item, and by pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import translate
from typing import Any

ITEMS_LIMIT = 10_000
"""
The maximum length of a list. A longer list does not match any value. Any operator can make every node
compare its lists.
"""

TEXT_LIMIT = 1_000
"""The maximum length of a text that can match a pattern."""


class FactTexts:
    """
    The facts of one node, as the texts that selectors compare. Each text is prepared once, regardless of
    the number of terms.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts
        self._texts: dict[str, frozenset[str]] = {}

    def has(self, key: str) -> bool:
        """Whether the fact exists."""
        return fact_at(self._facts, key) is not None

    def texts(self, key: str) -> frozenset[str]:
        """
        Return the text of a value, or the texts of a list's items. Empty for mappings, None, and a list
        that is too long.
        """
        found = self._texts.get(key)
        if found is None:
            value = fact_at(self._facts, key)
            items = value if isinstance(value, list) else [value]
            texts = map(comparable, items if len(items) <= ITEMS_LIMIT else ())
            found = self._texts[key] = frozenset(text for text in texts if text is not None)
        return found


def fact_paths(facts: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted paths of facts; the path of a mapping comes before the paths in it."""
    for key, value in facts.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from fact_paths(value, f"{prefix}{key}.")


def fact_at(facts: Mapping[str, Any], path: str) -> Any:
    """
    Return a fact by its dotted path, or None. A key that contains the dots takes precedence.

    Gathered facts have only their JSON names here, because every version of agent and controller can match these.
    """
    if path in facts:
        return facts[path]
    here: Any = facts
    for part in path.split("."):
        if not isinstance(here, dict) or not dict.__contains__(here, part):
            return None
        here = here[part]
    return here


def fits_pattern(pattern: str, text: str) -> bool:
    """Whether a fact's text matches a pattern. Only `*` and `?` are wildcards."""
    return len(text) <= TEXT_LIMIT and re.match(translate(pattern.replace("[", "[[]")), text) is not None


def comparable(value: object) -> str | None:
    """Return the text of a fact for comparison; None for lists, mappings and None."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, (str, int, float)) else None
