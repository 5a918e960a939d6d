"""Positions of values in a configuration file. No I/O."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from ccm_agent.model.errors import DocumentError

DEPTH_LIMIT = 64
_NAME = re.compile(r'"(?P<quoted>[^"]*+)"|(?P<plain>[^."]++)')


class KeyChange(Struct, frozen=True, kw_only=True):
    """
    A change of one value.

    Attributes:
        path: The names of the keys from the top to the value.
        value: The desired value.
        is_removed: Whether the key is removed. The value is then ignored.
    """

    path: tuple[str, ...]
    value: Any = None
    is_removed: bool = False

    @property
    def shown(self) -> str:
        """The path, for messages."""
        return ".".join(self.path)


def parse_key(text: str) -> tuple[str, ...]:
    """
    Split a dotted path. Names that contain dots must be in double quotes.

    Raises:
        DocumentError: The text is not a valid path.
    """
    names, at = [], 0
    while match := _NAME.match(text, at):
        names.append(match["plain"] if match["quoted"] is None else match["quoted"])
        at = match.end()
        if at == len(text):
            return checked(tuple(names))
        if text[at] != ".":
            break
        at += 1
    raise DocumentError(f"the key `{text}` is not a path of names separated by dots")


def checked(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return a path if its names are valid. Raises DocumentError if they are not."""
    if not path or len(path) > DEPTH_LIMIT:
        raise DocumentError(f"a key must have 1 to {DEPTH_LIMIT} names")
    if any(not name or not name.isprintable() for name in path):
        raise DocumentError("a name in the key is empty, or contains control characters")
    return path


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal and have the same types. For example, `true` is not equal to `1`."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return type(one) is type(other) and bool(one == other)


def nested(path: tuple[str, ...], value: Any) -> Any:
    """Return the value inside mappings with these keys."""
    for name in reversed(path):
        value = {name: value}
    return value
