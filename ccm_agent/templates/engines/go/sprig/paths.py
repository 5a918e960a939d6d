"""
Sprig's functions on paths and versions.

Source: masterminds.github.io/sprig, "File Path Functions", "Semantic Version Functions"; Go's package path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ccm_agent.templates.engines.go.semver import Version, parse_version, satisfies


def _clean(path: str) -> str:
    """Return the shortest equivalent path; "." for an empty path."""
    rooted = path.startswith("/")
    parts: list[str] = []
    for part in path.split("/"):
        if part in ("", "."):
            continue
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part != ".." or not rooted:
            parts.append(part)
    return "/" * rooted + "/".join(parts) or "."


def _base(path: str) -> str:
    if not path:
        return "."
    return path.rstrip("/").rpartition("/")[2] or "/"


def _dir(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return _clean(head + slash)


def _ext(path: str) -> str:
    name = path.rpartition("/")[2]
    _, dot, ending = name.rpartition(".")
    return dot + ending if dot else ""


def _is_abs(path: str) -> bool:
    return path.startswith("/")


def _semver(text: str) -> Version:
    return parse_version(text)


def _semver_compare(constraint: str, version: str) -> bool:
    return satisfies(constraint, version)


_PATHS = {"base": _base, "clean": _clean, "dir": _dir, "ext": _ext, "isAbs": _is_abs}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **_PATHS,
    **{f"os{name[0].upper()}{name[1:]}": function for name, function in _PATHS.items()},
    "semver": _semver,
    "semverCompare": _semver_compare,
}
