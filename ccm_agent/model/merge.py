"""How one layer of data goes over another. Nothing here changes what it is given, and no result shares a part with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def deep(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings merged at every depth, lists joined (the layer's items last), anything else replaced: by null as well."""
    merged = copy(base)
    for key, value in layer.items():
        found = merged.get(key)
        if isinstance(found, dict) and isinstance(value, Mapping):
            merged[key] = deep(found, value)
        elif isinstance(found, list) and isinstance(value, list):
            merged[key] = found + copy_value(value)
        else:
            merged[key] = copy_value(value)
    return merged


def shallow(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """The base, with every top-level key that the layer has replaced as a whole."""
    return {**copy(base), **copy(layer)}


def copy(data: Mapping[str, Any]) -> dict[str, Any]:
    """A copy that shares no mapping and no list."""
    return {key: copy_value(value) for key, value in data.items()}


def copy_value(value: Any) -> Any:
    """As `copy`, for any value."""
    if isinstance(value, Mapping):
        return copy(value)
    if isinstance(value, list):
        return [copy_value(one) for one in value]
    return value
