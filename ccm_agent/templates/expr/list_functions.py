"""Functions on lists and maps, without a predicate."""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any

from ccm_agent.templates.expr.arguments import as_list, wrong
from ccm_agent.templates.expr.collections import AnyMap, NilList, as_key, from_key
from ccm_agent.templates.expr.evaluation_errors import EvaluationError
from ccm_agent.templates.expr.frame import Frame
from ccm_agent.templates.expr.operators import describe, equal, fetch, less, to_int
from ccm_agent.templates.goprint import sorted_keys
from ccm_agent.templates.values import GoValue, byte_length

_DEPTH_LIMIT = 200


def first(_frame: Frame, items: Any) -> Any:
    return _end(items, 0)


def last(_frame: Frame, items: Any) -> Any:
    return _end(items, -1)


def _end(items: Any, index: int) -> Any:
    try:
        return fetch(items, index)
    except EvaluationError:
        return None


def get(_frame: Frame, base: Any, key: Any) -> Any:
    """Return an element, or nil if it does not exist."""
    if isinstance(base, AnyMap):
        try:
            return base.get(as_key(key))
        except TypeError:
            raise EvaluationError(f"{describe(key)} cannot be a key") from None
    if isinstance(base, dict):
        if key is not None and type(key) is not str:
            raise EvaluationError(f"{describe(key)} is not a key of this map; its keys are text")
        return base.get(key or "")
    if isinstance(base, (list, str, bytes)):
        index = to_int(key)
        length = byte_length(base) if isinstance(base, str) else len(base)
        return fetch(base, index) if -length <= index < length else None
    if isinstance(base, GoValue) and type(key) is str:
        return _method_or_nil(base, key)
    return None


def _method_or_nil(base: GoValue, key: str) -> Any:
    try:
        return fetch(base, key)
    except EvaluationError:
        return None


def take(_frame: Frame, items: Any, count: Any) -> Any:
    items = as_list("take", items)
    if type(count) is not int:
        raise EvaluationError(f"take() takes an integer as its second argument, not {describe(count)}")
    if count < 0:
        raise EvaluationError("take() takes zero elements or more")
    return items[:count]


def reverse(frame: Frame, items: Any) -> list[Any]:
    items = as_list("reverse", items)
    frame.grow(len(items))
    return list(reversed(items))


def concat(frame: Frame, *lists: Any) -> list[Any]:
    frame.grow(sum(len(as_list("concat", items)) for items in lists))
    joined = [item for items in lists for item in items]
    return joined or NilList()


def flatten(frame: Frame, items: Any) -> list[Any]:
    items = as_list("flatten", items)
    flat: list[Any] = []
    todo = [iter(items)]
    while todo:
        for item in todo[-1]:
            if isinstance(item, (list, bytes)):
                if len(todo) > _DEPTH_LIMIT:
                    raise EvaluationError(f"flatten() got lists nested more than {_DEPTH_LIMIT} deep")
                frame.spend(1)
                todo.append(iter(item))
                break
            flat.append(item)
        else:
            todo.pop()
        frame.spend(1)
        if len(flat) > frame.elements:
            break
    frame.grow(len(flat))
    return flat


def uniq(frame: Frame, items: Any) -> list[Any]:
    items = as_list("uniq", items)
    frame.spend(len(items))
    frame.grow(len(items) >> 4)
    kept: list[Any] = []
    simple: set[Any] = set()
    others: list[Any] = []
    for item in items:
        if isinstance(item, (list, dict, bytes)):
            if any(equal(frame, item, other) for other in others):
                continue
            frame.spend(len(others))
            others.append(item)
        else:
            key = (item is True or item is False, item)  # a boolean is not a number
            if key in simple:
                continue
            simple.add(key)
        kept.append(item)
    return kept


def sort(frame: Frame, items: Any, order: Any = "asc") -> list[Any]:
    downwards = descends("sort", order)
    if not isinstance(items, list):  # unlike the other functions, this one accepts any value
        return NilList()
    frame.grow(len(items))
    return [item for _, item in sorted_by(frame, [(item, item) for item in items], downwards)]


def descends(name: str, order: Any) -> bool:
    if order not in ("asc", "desc"):
        raise EvaluationError(f'{name}() takes "asc" or "desc" as its order')
    return bool(order == "desc")


def sorted_by(frame: Frame, pairs: list[tuple[Any, Any]], descends: bool) -> list[tuple[Any, Any]]:
    """Sort pairs of key and item by key; the sort is stable."""
    if len(pairs) < 2:
        return pairs
    kinds = {type(key) for key, _ in pairs}
    frame.spend(len(pairs))
    if kinds == {str}:  # comparing two long texts can take time proportional to their length
        longest = max(len(key) for key, _ in pairs)
        frame.spend(len(pairs) * len(pairs).bit_length() * longest >> 12)
    if kinds in ({int}, {str}) or (kinds <= {int, float} and not any(key != key for key, _ in pairs)):
        return sorted(pairs, key=_key_of, reverse=descends)
    frame.spend(len(pairs) * len(pairs).bit_length())

    def compare(a: tuple[Any, Any], b: tuple[Any, Any]) -> int:
        x, y = (b[0], a[0]) if descends else (a[0], b[0])
        return -1 if less(x, y) else 1 if less(y, x) else 0

    return sorted(pairs, key=cmp_to_key(compare))


def _key_of(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def keys(frame: Frame, mapping: Any) -> list[Any]:
    if not isinstance(mapping, dict):
        raise wrong("keys", mapping)
    frame.grow(len(mapping))
    return [from_key(key) for key in sorted_keys(mapping)]


def values(frame: Frame, mapping: Any) -> list[Any]:
    if not isinstance(mapping, dict):
        raise wrong("values", mapping)
    frame.grow(len(mapping))
    return [mapping[key] for key in sorted_keys(mapping)]


def to_pairs(frame: Frame, mapping: Any) -> list[Any]:
    if not isinstance(mapping, dict):
        raise wrong("toPairs", mapping)
    frame.grow(3 * len(mapping))
    return [[from_key(key), mapping[key]] for key in sorted_keys(mapping)]


def from_pairs(frame: Frame, pairs: Any) -> AnyMap:
    pairs = as_list("fromPairs", pairs)
    frame.grow(len(pairs))
    mapping = AnyMap()
    for pair in pairs:
        if not isinstance(pair, (list, bytes)) or len(pair) != 2:
            raise EvaluationError("fromPairs() takes a list of lists of two: key and value")
        try:
            mapping[as_key(pair[0])] = pair[1]
        except TypeError:
            raise EvaluationError(f"{describe(pair[0])} cannot be a key") from None
    return mapping
