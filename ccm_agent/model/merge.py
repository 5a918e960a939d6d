"""Merge layers of data. No function changes its arguments, and results do not share mutable values with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def deep(base: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """
    Merge mappings at every depth and join lists (the layer's items last). Other values are replaced, even
    by null.
    """
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
    """Return the base, in which the layer's top-level keys completely replace the same keys."""
    return {**copy(base), **copy(layer)}


def copy(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deep copy of mappings and lists."""
    return {key: copy_value(value) for key, value in data.items()}


def copy_value(value: Any) -> Any:
    """Copy any value; see `copy`."""
    if isinstance(value, Mapping):
        return copy(value)
    if isinstance(value, list):
        return [copy_value(one) for one in value]
    return value
