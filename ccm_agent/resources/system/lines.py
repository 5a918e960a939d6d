"""
Lines of locale.conf, hostname and timezone files, and names of locales.

Source: locale.conf(5), hostname(5), locale(7).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

LONGEST = 1000
"""The maximum length of a value. Longer values are truncated."""
_LANG = re.compile(r"\s*(?:export\s+)?LANG=(.*)", re.DOTALL)


def read_value(lines: Sequence[str]) -> str:
    """Return the first line that is neither blank nor a comment; "" if there is none."""
    return next((line.strip()[:LONGEST] for line in lines if not _is_blank(line)), "")


def with_value(lines: Sequence[str], value: str) -> list[str]:
    """Return the comments, followed by one line with the value. If the value is "", return only the comments."""
    return [*(line for line in lines if _is_blank(line)), *([value] if value else [])]


def read_lang(lines: Sequence[str]) -> str:
    """Return the value of LANG. If there are several lines, the last one takes effect."""
    values = [found[1] for line in lines if (found := _LANG.fullmatch(line))]
    return _unquoted(values[-1].strip()[:LONGEST]) if values else ""


def with_lang(lines: Sequence[str], value: str) -> list[str]:
    """Return the lines with LANG set, at the position of its first line or else at the end. If the value is "", remove LANG."""
    own = [index for index, line in enumerate(lines) if _LANG.fullmatch(line)]
    new = [f"LANG={value}"] if value else []
    at = own[0] if own else len(lines)
    kept = [line for index, line in enumerate(lines) if index not in own]
    return [*kept[:at], *new, *kept[at:]]


def normal_locale(name: str) -> str:
    """Return the name of a locale in glibc's normalized form: `de_DE.UTF-8` and `de_DE.utf8` are equal."""
    front, at, modifier = name.partition("@")
    language, dot, codeset = front.partition(".")
    return f"{language}{dot}{re.sub('[^a-z0-9]', '', codeset.lower())}{at}{modifier}"


def _is_blank(line: str) -> bool:
    return line.strip() == "" or line.lstrip().startswith("#")


def _unquoted(text: str) -> str:
    is_quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if is_quoted else text
