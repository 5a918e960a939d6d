"""
Patterns that are matched against the lines of a text.

`foo` requires that at least one line contains foo, and `!foo` that no line contains foo. `/re/` and `!/re/` do the same with a
regular expression. The flags `i`, `m` and `s` may follow it. A leading backslash makes `!` or `/` literal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from ccm_agent.model.errors import PropertyError
from ccm_agent.templates.regex import PatternError, compile_pattern

_REGEX = re.compile(r"/(.*)/([ims]*)", re.DOTALL)


class LinePattern(Struct, frozen=True, kw_only=True):
    """
    One pattern.

    Attributes:
        text: The text in the rules.
        is_inverse: Whether no line may match.
        fits: Returns whether a line matches.
    """

    text: str
    is_inverse: bool
    fits: Callable[[str], bool]


def parse_patterns(raw: object) -> list[LinePattern]:
    """
    Parse patterns from a list of texts.

    Raises:
        PropertyError: The value is not a list of texts, or contains an invalid regular expression.
    """
    if not isinstance(raw, list):
        raise PropertyError("patterns must be a list of strings: begin each with `- `")
    return [_pattern(one) for one in raw]


def _pattern(raw: object) -> LinePattern:
    if not isinstance(raw, str):
        raise PropertyError(f"the pattern {raw!r} is not text: put it in quotes")
    is_inverse = raw.startswith("!")
    core = raw[1:] if is_inverse else raw
    found = _REGEX.fullmatch(core)
    if found is not None:
        return LinePattern(
            text=raw, is_inverse=is_inverse, fits=compile_regex(found[1], found[2], raw).matches
        )
    plain = core.removeprefix("\\") if core[1:2] in ("!", "/") else core
    return LinePattern(text=raw, is_inverse=is_inverse, fits=lambda line: plain in line)


class Regex(Struct, frozen=True):
    """A regular expression in RE2 syntax, searched in linear time."""

    matches: Callable[[str], bool]


def compile_regex(text: str, flags: str = "", shown: str = "") -> Regex:
    """
    Compile a regular expression.

    Raises:
        PropertyError: The expression is not valid.
    """
    try:
        return Regex(compile_pattern(f"(?{flags}){text}" if flags else text).matches)
    except PatternError as err:
        raise PropertyError(f"the regular expression `{shown or text}` is invalid: {err}") from err


def unmet(patterns: Sequence[LinePattern], text: str) -> list[str]:
    """Return the patterns that a text does not satisfy, in their original spelling."""
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
    bad = []
    for pattern in patterns:
        is_met = any(pattern.fits(line) for line in lines)
        if pattern.is_inverse:
            is_met = not is_met
        elif not pattern.text:
            is_met = True  # the empty pattern also matches a text that has no lines
        if not is_met:
            bad.append(pattern.text)
    return bad
