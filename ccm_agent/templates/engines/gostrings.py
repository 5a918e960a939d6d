"""
Functions of Go's `strings` package that differ from Python's methods: one character maps to one character, and
white space is defined by Unicode.

Source: the Go documentation of packages strings and unicode; the Unicode Character Database.
"""

from __future__ import annotations

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.bounds import check_count, check_length
from ccm_agent.templates.engines.gotypes import TypedList, strings

SPACE = (
    "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005"
    "\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)


def upper(text: str) -> str:
    """Convert the text to upper case. A character without an upper case, such as ß, is unchanged."""
    return text.upper() if text.isascii() else "".join(map(upper_char, text))


def upper_char(char: str) -> str:
    """Convert one character to upper case."""
    mapped = char.upper()
    if len(mapped) > 1:
        mapped = (
            char.title()
        )  # if the full mapping is longer, the simple mapping is the title case or does not exist
    return mapped if len(mapped) == 1 else char


def lower(text: str) -> str:
    """Convert the text to lower case, each character separately, so a final sigma is not special."""
    return text.lower() if text.isascii() else "".join(char.lower()[0] for char in text)


def title_char(char: str) -> str:
    """Convert one character to title case: its upper case, except for a few digraphs."""
    mapped = char.title()
    return mapped if len(mapped) == 1 else char


def trim_space(text: str) -> str:
    """Remove white space at both ends."""
    return text.strip(SPACE)


def repeat(text: str, count: int) -> str:
    """
    Repeat the text `count` times.

    Raises:
        TemplateError: The count is negative, or the result would be too long.
    """
    if count < 0:
        raise TemplateError(f"text cannot be repeated {count} times")
    check_length(len(text) * count)
    return text * count


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    """
    Replace `old` in the text, at most `count` times unless that is negative.

    Raises:
        TemplateError: The result would be too long.
    """
    found = text.count(old)
    check_length(len(text) + found * max(len(new) - len(old), 0))
    return text.replace(old, new, count)


def split(text: str, separator: str, count: int = -1) -> TypedList:
    """
    Split the text at separators, or into characters if the separator is empty. Return at most `count` parts, or
    all if `count` is negative.

    Raises:
        TemplateError: There would be too many parts.
    """
    if count == 0:
        return TypedList((), "string", is_nil=True)
    if separator:
        check_count(text.count(separator) + 1)
        return strings(text.split(separator, count - 1 if count > 0 else -1))
    check_count(len(text))
    if 0 < count < len(text):
        return strings([*text[: count - 1], text[count - 1 :]])
    return strings(text)
