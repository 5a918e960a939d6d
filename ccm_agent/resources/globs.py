"""
Globs for file names, as in Go's path/filepath.

`*` matches any text and `?` matches one character, including a dot at the start. `[a-z]` matches one of these characters,
`[^a-z]` matches any other character. A backslash makes the next character literal.

Source: https://pkg.go.dev/path/filepath#Match.
"""

from __future__ import annotations

import re

from ccm_agent.model.errors import PropertyError


def compile_glob(glob: str, field: str) -> re.Pattern[str]:
    """
    Compile a glob to a pattern for `fullmatch`.

    Args:
        glob: The glob.
        field: The property that contains the glob, for errors.

    Raises:
        PropertyError: The text is not a valid glob.
    """
    parts: list[list[str]] = [[]]
    at = 0
    try:
        while at < len(glob):
            if glob[at] == "*":
                parts.append([])
                at += 1
                continue
            piece, at = _piece(glob, at)
            parts[-1].append(piece)
    except ValueError as err:
        raise PropertyError(f"`{glob}` in `{field}` is not a glob: {err}") from err
    first, *rest = ["".join(pieces) for pieces in parts]
    if not rest:
        return re.compile(first, re.DOTALL)
    # each part matches at its first possible position without backtracking, so many stars are as fast as few
    middle = "".join(f"(?>.*?{part})" for part in rest[:-1] if part)
    return re.compile(f"{first}{middle}.*{rest[-1]}", re.DOTALL)


def _piece(glob: str, at: int) -> tuple[str, int]:
    """Return the pattern of one character, and the position of the next piece."""
    if glob[at] == "?":
        return ".", at + 1
    if glob[at] == "[":
        return _class(glob, at + 1)
    char, at = _char(glob, at)
    return re.escape(char), at


def _class(glob: str, at: int) -> tuple[str, int]:
    negation = ""
    if glob.startswith("^", at):
        negation, at = "^", at + 1
    ranges: list[str] = []
    while not (ranges and glob.startswith("]", at)):
        low, at = _char_of_class(glob, at)
        high = low
        if glob.startswith("-", at):
            high, at = _char_of_class(glob, at + 1)
        if low <= high:
            ranges.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            ranges.append("")  # an empty range
    if any(ranges):
        return f"[{negation}{''.join(ranges)}]", at + 1
    return ("." if negation else r"(?!)"), at + 1


def _char_of_class(glob: str, at: int) -> tuple[str, int]:
    if at == len(glob) or glob[at] in "-]":
        raise ValueError("a bracket expression is incomplete")
    return _char(glob, at)


def _char(glob: str, at: int) -> tuple[str, int]:
    if glob[at] == "\\":
        at += 1
        if at == len(glob):
            raise ValueError("it ends with a backslash")
    return glob[at], at + 1
