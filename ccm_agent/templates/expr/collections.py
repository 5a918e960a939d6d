"""Go's lists and maps that a plain Python one is not: nil lists, and maps whose keys are more than text."""

from __future__ import annotations

from typing import Any

from ccm_agent.templates.goprint import print_scalar
from ccm_agent.templates.values import GoValue


class NilList(list[Any]):
    """A list that Go never made: empty everywhere, and nil to `??`, `?.` and `== nil`."""

    __slots__ = ()


class KeyOf(GoValue):
    """
    A boolean or float as a key of an AnyMap.

    To Python 1, 1.0 and True are the same key, to Go they are three.
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
    A map whose keys may be anything that Go can hash, as `groupBy` and `fromPairs` make it.

    Attributes:
        zero: What a missing key reads as.
    """

    __slots__ = ("zero",)

    def __init__(self, zero: Any = None) -> None:
        super().__init__()
        self.zero = zero


def as_key(value: Any) -> Any:
    """
    How an AnyMap holds a key.

    Raises:
        TypeError: It is a list, a map or bytes, which are no keys.
    """
    if isinstance(value, (bool, float)):
        return KeyOf(value)
    if isinstance(value, (list, dict, bytes)):
        raise TypeError
    return value


def from_key(key: Any) -> Any:
    """Return the value of a key of an AnyMap."""
    return key.value if isinstance(key, KeyOf) else key


def is_nil(value: Any) -> bool:
    """Whether Go sees nil in it."""
    return value is None or type(value) is NilList
