"""
Keys of data with secret values: keys that a document declares, and keys with names that indicate a secret.

A document declares them as `hierarchy.secret: [db.password, "tls.*"]`. A key covers everything below it. `*`
matches one key or a part of it, `**` any number of keys, and `?` one character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from ccm_agent.model.formats.patterns import lazy_pattern
from ccm_agent.model.secret import MINIMUM_LENGTH, looks_secret

_PLACE = lazy_pattern(r"(file|path|dir|directory|folder|sock|socket)$", re.IGNORECASE)
"""
Names of keys and variables with paths as values, such as `password_file`. An absolute path there is not a
secret.
"""

_QUANTITY = lazy_pattern(
    r"(ttl|timeout|length|size|age|days|hours|minutes|seconds|port|count|max|min|lifetime|interval|retries|rounds|bits|version)$",
    re.IGNORECASE,
)
"""Names of numbers that are not secrets, such as `token_ttl`."""

_WILDCARD = lazy_pattern(r"\*\*|\*|\?")
_MEANINGS = {"**": ".*", "*": "[^.]*", "?": "[^.]"}


def secret_values(data: Any, keys: Iterable[str]) -> Iterator[str | float]:
    """Yield every text and number at or below one of these keys."""
    pattern = compile_keys(tuple(keys))
    if pattern is not None:
        yield from _found(data, "", pattern)


def named_secrets(data: Any) -> Iterator[tuple[str | float, bool]]:
    """
    Yield every text and number at or below a key with a name that indicates a secret, such as `db_password`.

    The boolean is true if the value's own key has such a name. If only a parent key has it, the value may be an
    ordinary word, such as the value of `user` below `credentials`.
    """
    return _named(data)


def is_secret_setting(name: str, text: str) -> bool:
    """Whether the value of a variable or an option with this name is a secret."""
    return _says_secret(name) and not _is_about(name, text)


def is_secret_key(path: str, keys: tuple[str, ...]) -> bool:
    """Whether a dotted path is one of these keys, or below one."""
    pattern = compile_keys(keys)
    return pattern is not None and pattern.fullmatch(path) is not None


@lru_cache(maxsize=64)
def compile_keys(keys: tuple[str, ...]) -> re.Pattern[str] | None:
    """Compile a pattern for the dotted paths that keys cover; None without keys."""
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


def _named(
    value: Any, key: str = "", *, is_own: bool = False, is_below: bool = False
) -> Iterator[tuple[str | float, bool]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            says = isinstance(name, str) and _says_secret(name)
            yield from _named(inner, str(name), is_own=says, is_below=is_below or says)
    elif isinstance(value, list):
        for inner in value:
            yield from _named(inner, key, is_own=is_own, is_below=is_below)
    elif is_below and not _is_about(key, value):
        yield value, is_own


def _is_about(key: str, value: Any) -> bool:
    """
    Whether a value is not a secret although its key indicates one. It may be too short, or be the path of a
    file, a lifetime …
    """
    if isinstance(value, str):
        return len(value) < MINIMUM_LENGTH or (value.startswith("/") and _PLACE.search(key) is not None)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _QUANTITY.search(key) is not None
    return True


@lru_cache(maxsize=4096)
def _says_secret(name: str) -> bool:
    return looks_secret(name)


def _leaves(value: Any) -> Iterator[str | float]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif isinstance(value, (str, int, float)):
        yield value
