"""What was made of texts, kept as long as the texts are not too long together."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class TextCache(Generic[Key, Value]):
    """
    Values by key, bounded by the length of the texts that they were made of.

    A cache that is bounded by its number of entries alone could be filled with long texts, which come over the bus. When this one
    is full it begins with nothing again: that is cheap, and rare where the same texts come again and again.

    Args:
        limit: Characters of all texts.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._room = limit
        self._values: dict[Key, Value] = {}

    def get(self, key: Key) -> Value | None:
        """What was kept; None when there is nothing."""
        return self._values.get(key)

    def put(self, key: Key, value: Value, length: int) -> None:
        """Keep what was made of a text of so many characters."""
        self._room -= length
        if self._room < 0:
            self._values.clear()
            self._room = self._limit - length
        self._values[key] = value
