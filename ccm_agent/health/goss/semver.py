"""
Semantic versions and the ranges that `semver-constraint` accepts.

A range is a group of comparisons that must all match. `||` separates alternative groups: `>1.0.0 <2.0.0 !=1.5.0 || >=3.0.0`.
A version in a range may end in `x`: `1.x` is every version from 1.0.0 up to, but not including, 2.0.0.

Source: semver.org 2.0.0; the range syntax of github.com/blang/semver.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Version = tuple[int, int, int, tuple[tuple[int, int, str], ...]]
"""Major, minor, patch, and the pre-release in a sortable form. A release sorts after its pre-releases."""

Holds = Callable[[Version], bool]

_NUMBER = r"(?:0|[1-9]\d*)"
_VERSION = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII
)
_WILD = re.compile(rf"({_NUMBER})\.(?:({_NUMBER})\.)?[xX*](?:\.[xX*])?", re.ASCII)
_TERM = re.compile(r"(>=|<=|==|!=|[><=!]?)\s*([^\s<>=!]+)", re.ASCII)
_RELEASE = ((2, 0, ""),)


def parse_version(text: str) -> Version:
    """
    Parse a version such as `1.2.3` or `1.2.3-rc.1+build`.

    Raises:
        ValueError: The text is not a version.
    """
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ValueError(f"`{text}` is not a semantic version, such as 1.2.3")
    major, minor, patch, pre = found.groups()
    marks = tuple(_mark(part) for part in pre.split(".")) if pre else _RELEASE
    return int(major), int(minor), int(patch), marks


def _mark(part: str) -> tuple[int, int, str]:
    return (0, int(part), "") if part.isdigit() else (1, 0, part)


def parse_range(text: str) -> Holds:
    """
    Parse a range and return a function that checks whether a version is in the range.

    Raises:
        ValueError: The text is not a range.
    """
    groups = [_group(part) for part in text.split("||")]
    return lambda version: any(all(holds(version) for holds in group) for group in groups)


def _group(text: str) -> list[Holds]:
    terms, position = [], 0
    text = text.strip()
    while position < len(text):
        found = _TERM.match(text, position)
        if found is None:
            raise ValueError(f"`{text}` is not a version range, such as >1.0.0 <2.0.0")
        terms.append(_term(found[1], found[2]))
        position = found.end()
        while text[position : position + 1].isspace():
            position += 1
    if not terms:
        raise ValueError("a version range is empty: write one such as >1.0.0 <2.0.0")
    return terms


def _term(operator: str, text: str) -> Holds:
    wild = _WILD.fullmatch(text)
    if wild is None:
        version = parse_version(text)
        low, high = version, version
    else:
        major, minor = int(wild[1]), wild[2]
        low = (major, int(minor or 0), 0, ())
        high = (major + 1, 0, 0, ()) if minor is None else (major, int(minor) + 1, 0, ())
    is_wild = wild is not None

    def is_within(found: Version) -> bool:
        return low <= found < high if is_wild else found == low

    compare: dict[str, Holds] = {
        ">": lambda found: found >= high if is_wild else found > high,
        ">=": lambda found: found >= low,
        "<": lambda found: found < low,
        "<=": lambda found: found < high if is_wild else found <= high,
        "!": lambda found: not is_within(found),
        "!=": lambda found: not is_within(found),
    }
    return compare.get(operator, is_within)
