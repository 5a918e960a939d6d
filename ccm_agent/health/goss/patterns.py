"""
Patterns that lines of a text are compared with.

`foo` must be in some line and `!foo` in none; `/re/` and `!/re/` are the same with a regular expression, which may carry the
flags `i`, `m` and `s` behind it. A backslash in front takes `!` or `/` for what it is.
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
        text: As it was written.
        is_inverse: No line may fit.
        fits: Whether a line does.
    """

    text: str
    is_inverse: bool
    fits: Callable[[str], bool]


def parse_patterns(raw: object) -> list[LinePattern]:
    """
    Patterns from a list of texts.

    Raises:
        PropertyError: It is not a list of texts, or a regular expression in it is wrong.
    """
    if not isinstance(raw, list):
        raise PropertyError("patterns are a list of texts: begin each with `- `")
    return [_pattern(one) for one in raw]


def _pattern(raw: object) -> LinePattern:
    if not isinstance(raw, str):
        raise PropertyError(f"the pattern {raw!r} is not a text: put it in quotes")
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
    """A regular expression of RE2's syntax, matched in linear time wherever it fits."""

    matches: Callable[[str], bool]


def compile_regex(text: str, flags: str = "", shown: str = "") -> Regex:
    """
    A regular expression, ready to match.

    Raises:
        PropertyError: It is wrong.
    """
    try:
        return Regex(compile_pattern(f"(?{flags}){text}" if flags else text).matches)
    except PatternError as err:
        raise PropertyError(f"the regular expression `{shown or text}` is wrong: {err}") from err


def unmet(patterns: Sequence[LinePattern], text: str) -> list[str]:
    """The patterns that do not hold of a text, as written."""
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
    bad = []
    for pattern in patterns:
        is_met = any(pattern.fits(line) for line in lines)
        if pattern.is_inverse:
            is_met = not is_met
        elif not pattern.text:
            is_met = True  # nothing is in a text without lines too
        if not is_met:
            bad.append(pattern.text)
    return bad
