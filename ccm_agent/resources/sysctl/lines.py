"""
Lines of sysctl.d files.

Source: sysctl.d(5), sysctl.conf(5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from ccm_agent.resources.sysctl.model import parameter_path


def read_values(lines: Sequence[str]) -> Mapping[str, str]:
    """Return the values in a file by parameter path. If a parameter has several lines, the last one takes effect."""
    return {path: value for path, value in map(_parse, lines) if path}


def with_value(lines: Sequence[str], name: str, value: str) -> list[str]:
    """
    Return the lines with the parameter's first line set to the new value. Without such a line, a new one is added at the end.
    """
    path = parameter_path(name)
    own = [index for index, one in enumerate(lines) if _parse(one)[0] == path]
    if not own:
        return [*lines, f"{name} = {value}"]
    line = _with_value(lines[own[0]], value)
    return [line if index == own[0] else one for index, one in enumerate(lines) if index not in own[1:]]


def without(lines: Sequence[str], name: str) -> list[str]:
    """Return the lines, except the lines of the parameter."""
    path = parameter_path(name)
    return [one for one in lines if _parse(one)[0] != path]


def _with_value(line: str, value: str) -> str:
    """Return the line with a new value, but with its name and spacing unchanged."""
    name, _, before = line.partition("=")
    return f"{name}={before[: len(before) - len(before.lstrip())]}{value}"


@lru_cache(maxsize=8192)  # the file is parsed again for each parameter that is written
def _parse(line: str) -> tuple[str, str]:
    """Return the parameter path and value in a line. Both are "" for other lines, such as comments and patterns."""
    key, equals, value = line.strip().partition("=")
    # a leading hyphen makes sysctl ignore errors
    key = key.strip().removeprefix("-")
    if not equals or not key or key[0] in "#;" or "*" in key:
        return "", ""
    return parameter_path(key), value.strip()
