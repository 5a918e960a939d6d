"""
Lines of sysctl.d files.

Source: sysctl.d(5), sysctl.conf(5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from ccm_agent.resources.sysctl.model import parameter_path


def read_values(lines: Sequence[str]) -> Mapping[str, str]:
    """Return the values in a file by the path of their parameter; of several lines the last one takes effect."""
    return {path: value for path, value in map(_parse, lines) if path}


def with_value(lines: Sequence[str], name: str, value: str) -> list[str]:
    """Return the lines with one for the parameter: its first one with the new value, otherwise a new one at the end."""
    path = parameter_path(name)
    own = [index for index, one in enumerate(lines) if _parse(one)[0] == path]
    if not own:
        return [*lines, f"{name} = {value}"]
    line = _with_value(lines[own[0]], value)
    return [line if index == own[0] else one for index, one in enumerate(lines) if index not in own[1:]]


def without(lines: Sequence[str], name: str) -> list[str]:
    """Return the lines without those of the parameter."""
    path = parameter_path(name)
    return [one for one in lines if _parse(one)[0] != path]


def _with_value(line: str, value: str) -> str:
    """Return a line with another value, and the name and spaces as they were."""
    name, _, before = line.partition("=")
    return f"{name}={before[: len(before) - len(before.lstrip())]}{value}"


@lru_cache(maxsize=8192)  # a file is read again for each parameter that is written
def _parse(line: str) -> tuple[str, str]:
    """Return path and value of a line; "" for a comment, a pattern or anything else."""
    key, equals, value = line.strip().partition("=")
    # a leading hyphen means that errors are ignored
    key = key.strip().removeprefix("-")
    if not equals or not key or key[0] in "#;" or "*" in key:
        return "", ""
    return parameter_path(key), value.strip()
