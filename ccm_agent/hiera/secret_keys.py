"""
Keys of data whose values are secret, as a document declares them: `hierarchy.secret: [db.password, "tls.*"]`.

A key covers all that is below it. `*` is one key or a part of one, `**` any number of them, `?` one character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

_WILDCARD = re.compile(r"\*\*|\*|\?")
_MEANINGS = {"**": ".*", "*": "[^.]*", "?": "[^.]"}


def secret_values(data: Any, keys: Iterable[str]) -> Iterator[str | float]:
    """Every text and number that stands at, or below, one of these keys."""
    pattern = compile_keys(tuple(keys))
    if pattern is not None:
        yield from _found(data, "", pattern)


def is_secret_key(path: str, keys: tuple[str, ...]) -> bool:
    """A dotted path is one of these keys, or below one."""
    pattern = compile_keys(keys)
    return pattern is not None and pattern.fullmatch(path) is not None


@lru_cache(maxsize=64)
def compile_keys(keys: tuple[str, ...]) -> re.Pattern[str] | None:
    """What matches the dotted paths that keys cover; None when there are no keys."""
    if not keys:
        return None
    one_of = "|".join(_expression(key) for key in keys)
    return re.compile(rf"(?:{one_of})(?:\..*)?", re.DOTALL)


def _expression(key: str) -> str:
    parts: list[str] = []
    at = 0
    for found in _WILDCARD.finditer(key):
        parts += (re.escape(key[at : found.start()]), _MEANINGS[found[0]])
        at = found.end()
    return "".join([*parts, re.escape(key[at:])])


def _found(value: Any, path: str, pattern: re.Pattern[str]) -> Iterator[str | float]:
    if path and pattern.fullmatch(path):
        yield from _leaves(value)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _found(inner, f"{path}.{key}" if path else str(key), pattern)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _found(inner, f"{path}.{number}", pattern)


def _leaves(value: Any) -> Iterator[str | float]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif isinstance(value, (str, int, float)):
        yield value
