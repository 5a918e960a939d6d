"""A cache of values by text, bounded by the total length of the texts."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class TextCache(Generic[Key, Value]):
    """
    Values by key, bounded by the total length of their texts.

    A cache with a limit only on its number of entries could be filled with long texts from the bus. A full
    cache is cleared, which is cheap, and rare if the same texts recur.

    Args:
        limit: Maximum total length of the texts in characters.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._room = limit
        self._values: dict[Key, Value] = {}

    def get(self, key: Key) -> Value | None:
        """Return the cached value; None if there is none."""
        return self._values.get(key)

    def put(self, key: Key, value: Value, length: int) -> None:
        """Cache the value of a text of this many characters."""
        self._room -= length
        if self._room < 0:
            self._values.clear()
            self._room = self._limit - length
        self._values[key] = value
