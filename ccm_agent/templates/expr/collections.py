"""Go's lists and maps without a plain Python equivalent: nil lists, and maps with keys other than text."""

from __future__ import annotations

from typing import Any

from ccm_agent.templates.goprint import print_scalar
from ccm_agent.templates.values import GoValue


class NilList(list[Any]):
    """A nil slice. It behaves like an empty list, and is nil for `??`, `?.` and `== nil`."""

    __slots__ = ()


class KeyOf(GoValue):
    """
    A boolean or float as a key of an AnyMap.

    In Python, 1, 1.0 and True are the same key; in Go they are three keys.
    """

    __slots__ = ("go_type", "value")

    def __init__(self, value: bool | float) -> None:
        self.value = value
        self.go_type = "bool" if isinstance(value, bool) else "float64"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyOf) and self.go_type == other.go_type and self.value == other.value

    def __lt__(self, other: object) -> bool:
        return self.value < other.value if isinstance(other, KeyOf) else NotImplemented

    def __hash__(self) -> int:
        return hash((KeyOf, self.go_type, self.value))

    def __repr__(self) -> str:
        return self.go_text()

    def go_text(self) -> str:
        return print_scalar(self.value)


class AnyMap(dict[Any, Any]):
    """
    A map with any hashable Go value as key: the result of `groupBy` and `fromPairs`.

    Attributes:
        zero: The value of a missing key.
    """

    __slots__ = ("zero",)

    def __init__(self, zero: Any = None) -> None:
        super().__init__()
        self.zero = zero


def as_key(value: Any) -> Any:
    """
    Convert a value to a key of an AnyMap.

    Raises:
        TypeError: The value is a list, a map or bytes, which cannot be keys.
    """
    if isinstance(value, (bool, float)):
        return KeyOf(value)
    if isinstance(value, (list, dict, bytes)):
        raise TypeError
    return value


def from_key(key: Any) -> Any:
    """Convert a key of an AnyMap to a value."""
    return key.value if isinstance(key, KeyOf) else key


def is_nil(value: Any) -> bool:
    """Whether the value is nil in Go."""
    return value is None or type(value) is NilList
