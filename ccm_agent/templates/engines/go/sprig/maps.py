"""
Sprig's functions on maps.

`set`, `unset` and `merge` change the given map, as in Sprig. `keys` and `values` are sorted by key; in Go, their
order is random.

Source: masterminds.github.io/sprig, "Dictionaries and Dict Functions".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.bounds import ITEMS_MAX, check_count
from ccm_agent.templates.engines.go.sprig.lists import is_empty
from ccm_agent.templates.engines.go.sprig.text import to_string
from ccm_agent.templates.engines.gotypes import NilMap, TypedList, go_type, strings
from ccm_agent.templates.goprint import sorted_keys
from ccm_agent.templates.values import StringMap

GoMap = dict[str, Any]


def _dict(*pairs: Any) -> GoMap:
    """Build a map from alternating keys and values. A last key without a value has the value ""."""
    values = [*pairs, ""] if len(pairs) % 2 else pairs
    return {to_string(values[index]): values[index + 1] for index in range(0, len(values), 2)}


def _get(mapping: Mapping[str, Any], key: str) -> Any:
    return mapping.get(key, "")


def _set(mapping: Mapping[str, Any], key: str, value: Any) -> Any:
    _changeable(mapping)[key] = value
    return mapping


def _unset(mapping: Mapping[str, Any], key: str) -> Any:
    if key in mapping:
        _changeable(mapping).pop(key)
    return mapping


def _changeable(mapping: Mapping[str, Any]) -> GoMap:
    if not isinstance(mapping, dict) or isinstance(mapping, NilMap):
        raise TemplateError("a map is required, not nil: is a value missing?")
    return mapping


def _has_key(mapping: Mapping[str, Any], key: str) -> bool:
    return key in mapping


def _pluck(key: str, *mappings: Mapping[str, Any]) -> list[Any]:
    return [mapping[key] for mapping in mappings if key in mapping]


def _keys(*mappings: Mapping[str, Any]) -> TypedList:
    return strings(key for mapping in mappings for key in sorted_keys(dict(mapping)))


def _values(mapping: Mapping[str, Any]) -> list[Any]:
    return [mapping[key] for key in sorted_keys(dict(mapping))]


def _pick(mapping: Mapping[str, Any], *keys: str) -> GoMap:
    return {key: mapping[key] for key in keys if key in mapping}


def _omit(mapping: Mapping[str, Any], *keys: str) -> GoMap:
    return {key: value for key, value in mapping.items() if key not in keys}


def _dig(*arguments: Any) -> Any:
    """Return the value at the path of keys, or the default if a key is missing: `dig "a" "b" default map`."""
    if len(arguments) < 3:
        raise TemplateError("needs at least a key, a default and a map")
    *keys, default, mapping = arguments
    for key in keys:
        if not isinstance(key, str):
            raise TemplateError(f"keys must be strings, not {go_type(key)}")
        if not isinstance(mapping, dict) or isinstance(mapping, StringMap):
            raise TemplateError(f"{key!r} cannot be looked up in a {go_type(mapping)}")
        if key not in mapping:
            return default
        mapping = mapping[key]
    return mapping


def _merge(target: Mapping[str, Any], *sources: Mapping[str, Any]) -> Any:
    return _merged(target, sources, overwrites=False)


def _merge_overwrite(target: Mapping[str, Any], *sources: Mapping[str, Any]) -> Any:
    return _merged(target, sources, overwrites=True)


def _merged(target: Mapping[str, Any], sources: tuple[Mapping[str, Any], ...], *, overwrites: bool) -> Any:
    merged: Any = {} if isinstance(target, NilMap) else target
    for source in sources:
        _merge_into(merged, source, overwrites)
    return merged


def _merge_into(target: GoMap, source: Mapping[str, Any], overwrites: bool) -> None:
    """Merge maps deeply. An existing value is kept unless it is empty or `overwrites` is set."""
    for key, value in list(source.items()):
        known = target.get(key)
        if value is None and not overwrites:
            continue
        if isinstance(value, dict) and isinstance(known, dict) and type(value) is type(known):
            if value is not known:
                _merge_into(known, value, overwrites)
        elif key not in target or overwrites or (is_empty(known) and not is_empty(value)):
            target[key] = value


def _deep_copy(value: Any) -> Any:
    if value is None:
        raise TemplateError("there is nothing to copy: is a value missing?")
    return _copied(value, [ITEMS_MAX])


def _copied(value: Any, room: list[int]) -> Any:
    room[0] -= 1
    check_count(ITEMS_MAX + 1 if room[0] < 0 else 0)
    if isinstance(value, TypedList):
        return TypedList((_copied(item, room) for item in value), value.element, is_nil=value.is_nil)
    if isinstance(value, (list, tuple)):
        return [_copied(item, room) for item in value]
    if isinstance(value, dict):
        return type(value)((key, _copied(item, room)) for key, item in value.items())
    return value


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "deepCopy": _deep_copy,
    "dict": _dict,
    "dig": _dig,
    "get": _get,
    "hasKey": _has_key,
    "keys": _keys,
    "merge": _merge,
    "mergeOverwrite": _merge_overwrite,
    "mustDeepCopy": _deep_copy,
    "mustMerge": _merge,
    "mustMergeOverwrite": _merge_overwrite,
    "omit": _omit,
    "pick": _pick,
    "pluck": _pluck,
    "set": _set,
    "unset": _unset,
    "values": _values,
}
