"""
Globs as Go's path/filepath has them, for names of files.

`*` is any text and `?` one character, a dot at the start as well; `[a-z]` is one of some characters and `[^a-z]` none of them; a
backslash takes the next character as it is.

Source: https://pkg.go.dev/path/filepath#Match.
"""

from __future__ import annotations

import re

from ccm_agent.model.errors import PropertyError


def compile_glob(glob: str) -> re.Pattern[str]:
    """
    What matches the names that a glob matches, by `fullmatch`.

    Raises:
        PropertyError: It is not a glob.
    """
    parts: list[list[str]] = [[]]
    at = 0
    while at < len(glob):
        char = glob[at]
        if char == "*":
            parts.append([])
            at += 1
            continue
        piece, at = _piece(glob, at)
        parts[-1].append(piece)
    first, *rest = ["".join(pieces) for pieces in parts]
    if not rest:
        return re.compile(first, re.DOTALL)
    # each part where it matches first, and never looked for again: a glob of many stars costs no more than one of few
    middle = "".join(f"(?>.*?{part})" for part in rest[:-1] if part)
    return re.compile(f"{first}{middle}.*{rest[-1]}", re.DOTALL)


def _piece(glob: str, at: int) -> tuple[str, int]:
    """What one character is matched by, and where the next piece begins."""
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
            ranges.append("")  # nothing is in it
    if any(ranges):
        return f"[{negation}{''.join(ranges)}]", at + 1
    return ("." if negation else r"(?!)"), at + 1


def _char_of_class(glob: str, at: int) -> tuple[str, int]:
    if at == len(glob) or glob[at] in "-]":
        raise PropertyError(f"`{glob}` in `post` is not a glob: what stands in its brackets is not complete")
    return _char(glob, at)


def _char(glob: str, at: int) -> tuple[str, int]:
    if glob[at] == "\\":
        at += 1
        if at == len(glob):
            raise PropertyError(f"`{glob}` in `post` is not a glob: nothing follows the backslash at its end")
    return glob[at], at + 1
