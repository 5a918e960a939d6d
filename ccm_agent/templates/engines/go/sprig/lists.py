"""
Sprig's functions on lists.

Each function that can fail has a variant with the prefix `must`; here both variants behave the same.

Source: masterminds.github.io/sprig, "Lists and List Functions".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.bounds import check_count
from ccm_agent.templates.engines.go.signature import is_true
from ccm_agent.templates.engines.go.sprig.numbers import to_int
from ccm_agent.templates.engines.gotypes import TypedList, Uint8, element_type, go_kind, go_type
from ccm_agent.templates.values import GoValue


def _items(value: Any, purpose: str) -> list[Any]:
    """Return the elements of a list as a new list."""
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, bytes):
        return [Uint8(byte) for byte in value]
    raise TemplateError(
        f"a list is needed to {purpose}, not {'nil' if value is None else 'a ' + go_kind(value)}"
    )


def deep_equal(left: Any, right: Any) -> bool:
    """Compare as in Go's `reflect.DeepEqual`: types must match, and a nil list does not equal an empty list."""
    if isinstance(left, (list, tuple)):
        return (
            isinstance(right, (list, tuple))
            and go_type(left) == go_type(right)
            and _is_nil_list(left) == _is_nil_list(right)
            and len(left) == len(right)
            and all(deep_equal(a, b) for a, b in zip(left, right, strict=True))
        )
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and go_type(left) == go_type(right)
            and len(left) == len(right)
            and all(key in right and deep_equal(item, right[key]) for key, item in left.items())
        )
    return type(left) is type(right) and bool(left == right)


def _is_nil_list(value: Any) -> bool:
    return isinstance(value, TypedList) and value.is_nil


def is_empty(value: Any) -> bool:
    """Whether Sprig treats a value as empty: zero, nil, or without elements."""
    return not isinstance(value, GoValue) and not is_true(value)


def _list(*values: Any) -> list[Any]:
    return list(values)


def _first(values: Any) -> Any:
    items = _items(values, "take the first of")
    return items[0] if items else None


def _last(values: Any) -> Any:
    items = _items(values, "take the last of")
    return items[-1] if items else None


def _rest(values: Any) -> list[Any]:
    items = _items(values, "take the rest of")
    return items[1:] if items else TypedList(is_nil=True)


def _initial(values: Any) -> list[Any]:
    items = _items(values, "take all but the last of")
    return items[:-1] if items else TypedList(is_nil=True)


def _append(values: Any, value: Any) -> list[Any]:
    return [*_items(values, "append to"), value]


def _prepend(values: Any, value: Any) -> list[Any]:
    return [value, *_items(values, "prepend to")]


def _concat(*lists: Any) -> list[Any]:
    joined = [item for values in lists for item in _items(values, "concatenate")]
    return joined or TypedList(is_nil=True)


def _reverse(values: Any) -> list[Any]:
    return _items(values, "reverse")[::-1]


def _compact(values: Any) -> list[Any]:
    return [item for item in _items(values, "compact") if not is_empty(item)]


def _uniq(values: Any) -> list[Any]:
    kept = _Seen()
    return [item for item in _items(values, "make unique") if kept.add(item)]


def _without(values: Any, *omitted: Any) -> list[Any]:
    seen = _Seen()
    for item in omitted:
        seen.add(item)
    return [item for item in _items(values, "leave elements out of") if item not in seen]


def _has(value: Any, values: Any) -> bool:
    if values is None:
        return False
    return any(deep_equal(value, item) for item in _items(values, "look for an element in"))


class _Seen:
    """The distinct elements so far. Scalars are in a set, which avoids quadratic time."""

    def __init__(self) -> None:
        self._scalars: set[tuple[type, Any]] = set()
        self._others: list[Any] = []

    def __contains__(self, value: Any) -> bool:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value == value and (type(value), value) in self._scalars
        return any(deep_equal(value, other) for other in self._others)

    def add(self, value: Any) -> bool:
        """Add an element; return whether it is new."""
        if value in self:
            return False
        if value is None or isinstance(value, (bool, int, float, str)):
            self._scalars.add((type(value), value))
        else:
            check_count(len(self._others) * len(self._others))
            self._others.append(value)
        return True


def _slice(values: Any, *bounds: Any) -> Any:
    items = _items(values, "slice")
    if not items:
        return None
    start = to_int(bounds[0]) if bounds else 0
    end = to_int(bounds[1]) if len(bounds) > 1 else len(items)
    if not 0 <= start <= end <= len(items):
        raise TemplateError(f"[{start}:{end}] is out of range: there are {len(items)} elements")
    part = items[start:end]
    return part if element_type(values) == "interface {}" else TypedList(part, element_type(values))


def _chunk(size: int, values: Any) -> TypedList:
    items = _items(values, "chunk")
    if size < 1:
        raise TemplateError(f"a chunk has at least one element, not {size}")
    return TypedList((items[start : start + size] for start in range(0, len(items), size)), "[]interface {}")


_MUST: dict[str, Callable[..., Any]] = {
    "append": _append,
    "chunk": _chunk,
    "compact": _compact,
    "first": _first,
    "has": _has,
    "initial": _initial,
    "last": _last,
    "prepend": _prepend,
    "push": _append,
    "rest": _rest,
    "reverse": _reverse,
    "slice": _slice,
    "uniq": _uniq,
    "without": _without,
}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "concat": _concat,
    "list": _list,
    "tuple": _list,
    **_MUST,
    **{f"must{name[0].upper()}{name[1:]}": function for name, function in _MUST.items()},
}
