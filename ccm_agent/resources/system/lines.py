"""
Lines of locale.conf, hostname and timezone files, and names of locales.

Source: locale.conf(5), hostname(5), locale(7).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

LONGEST = 1000
"""The maximum length of a value. The rest is not read."""
_LANG = re.compile(r"\s*(?:export\s+)?LANG=(.*)", re.DOTALL)


def read_value(lines: Sequence[str]) -> str:
    """Return the first line that is neither blank nor a comment; "" if there is none."""
    return next((line.strip()[:LONGEST] for line in lines if not _is_blank(line)), "")


def with_value(lines: Sequence[str], value: str) -> list[str]:
    """Return the comments and one line with the value. With "", return only the comments."""
    return [*(line for line in lines if _is_blank(line)), *([value] if value else [])]


def read_lang(lines: Sequence[str]) -> str:
    """Return the value of LANG. If there are several lines, the last one takes effect."""
    values = [found[1] for line in lines if (found := _LANG.fullmatch(line))]
    return _unquoted(values[-1].strip()[:LONGEST]) if values else ""


def with_lang(lines: Sequence[str], value: str) -> list[str]:
    """Return the lines with LANG set: in place of its first line, otherwise at the end. With the value "", LANG is removed."""
    own = [index for index, line in enumerate(lines) if _LANG.fullmatch(line)]
    new = [f"LANG={value}"] if value else []
    at = own[0] if own else len(lines)
    kept = [line for index, line in enumerate(lines) if index not in own]
    return [*kept[:at], *new, *kept[at:]]


def normal_locale(name: str) -> str:
    """Return the name of a locale as glibc compares it: `de_DE.UTF-8` and `de_DE.utf8` are the same."""
    front, at, modifier = name.partition("@")
    language, dot, codeset = front.partition(".")
    return f"{language}{dot}{re.sub('[^a-z0-9]', '', codeset.lower())}{at}{modifier}"


def _is_blank(line: str) -> bool:
    return line.strip() == "" or line.lstrip().startswith("#")


def _unquoted(text: str) -> str:
    is_quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if is_quoted else text
