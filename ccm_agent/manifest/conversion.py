"""Finds all invalid keys and values of a mapping. A plain conversion reports only the first mistake."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from ccm_agent.manifest.document import Path, parse_path
from ccm_agent.model.errors import InputError, MisfitError
from ccm_agent.model.suggestions import nearest

T = TypeVar("T")

MISTAKES_MAX = 100
"""The maximum number of mistakes that are reported for one mapping. Each mistake costs a conversion."""


class Mistake(Struct, frozen=True):
    """
    A value that cannot be converted.

    Attributes:
        error: The error.
        path: The path from the converted mapping to the value.
        meant: The known key that replaces an unknown key; "" for none.
    """

    error: InputError
    path: Path
    meant: str = ""


def convert_all(
    raw: Mapping[str, Any], make: Callable[[dict[str, Any]], T], known_by: Mapping[str, str] = {}
) -> tuple[T | None, list[Mistake]]:
    """
    Convert a mapping, and continue after each mistake.

    A misspelled key is treated as the most similar known key. Other invalid values are left out.

    Args:
        raw: The values, which are not changed.
        make: Converts the values; raises an InputError with `$.path` for the first mistake.
        known_by: Property names by their other spellings. Errors always use the property name.

    Returns:
        The last result of `make`, or None if it never succeeded, and the mistakes.
    """
    left = copy.deepcopy(dict(raw))
    mistakes: list[Mistake] = []
    while len(mistakes) < MISTAKES_MAX:
        try:
            return make(left), mistakes
        except InputError as err:
            path = _written(_path_of(err), left, known_by)
            meant = _meant(err)
            mistakes.append(Mistake(err, path, meant))
            if not _repair(left, path, err, meant):
                break
    return None, mistakes


def _path_of(err: InputError) -> Path:
    if isinstance(err, MisfitError):
        return err.path
    return parse_path(err.place.path) if err.place is not None else ()


def _written(path: Path, raw: Mapping[str, Any], known_by: Mapping[str, str]) -> Path:
    """Return the path with its first key as written."""
    if not path or path[0] in raw:
        return path
    written = next((other for other, name in known_by.items() if name == path[0] and other in raw), path[0])
    return (written, *path[1:])


def _meant(err: InputError) -> str:
    if not isinstance(err, MisfitError) or not err.unknown_key:
        return ""
    return nearest(err.unknown_key, err.known) or ""


def _repair(left: dict[str, Any], path: Path, err: InputError, meant: str) -> bool:
    """Change the remaining values to remove the mistake; return False if that is not possible."""
    if not path or not isinstance(path[0], str) or path[0] not in left:
        return False
    inside = _inside(left, path[:-1])
    key = path[-1]
    if not isinstance(inside, dict) or key not in inside or _is_container(inside[key], err):
        del left[path[0]]
        return True
    value = inside.pop(key)
    if meant and meant not in inside:
        inside[meant] = value
    return True


def _is_container(value: Any, err: InputError) -> bool:
    """
    Whether the error is about a missing value inside this value. The error would then recur for the enclosing
    value.
    """
    return isinstance(value, (dict, list)) and isinstance(err, MisfitError) and not err.unknown_key


def _inside(value: Any, path: Path) -> Any:
    for part in path:
        value = value[part]
    return value
