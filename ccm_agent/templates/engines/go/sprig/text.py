"""
Sprig's functions on text.

Lengths and positions are in bytes, as in Go. Source: masterminds.github.io/sprig, "String Functions", "String Slice Functions".
"""

from __future__ import annotations

import unicodedata
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines import gostrings
from ccm_agent.templates.engines.bounds import check_length
from ccm_agent.templates.engines.escapes import quote as go_quote
from ccm_agent.templates.engines.gotypes import TypedList, strings
from ccm_agent.templates.goprint import go_print, print_scalar
from ccm_agent.templates.values import StringMap, from_bytes, to_bytes


def to_string(value: Any) -> str:
    """Convert a value to text; text and bytes are unchanged."""
    return from_bytes(value) if isinstance(value, bytes) else go_print(value)


def to_strings(value: Any) -> TypedList:
    """Return the texts of a list's elements, without nil. For any other value, return a list with its text."""
    if value is None:
        return strings(())
    if isinstance(value, (list, tuple, bytes)):
        return strings(to_string(item) for item in value if item is not None)
    return strings((to_string(value),))


def _trim_all(cut: str, text: str) -> str:
    return text.strip(cut) if cut else text


def _trim_prefix(prefix: str, text: str) -> str:
    return text.removeprefix(prefix)


def _trim_suffix(suffix: str, text: str) -> str:
    return text.removesuffix(suffix)


def _title(text: str) -> str:
    """
    Convert the first letter of each word to title case. A word consists of letters, digits, underscores and
    apostrophes.
    """
    out: list[str] = []
    before = " "
    for char in text:
        out.append(gostrings.title_char(char) if _separates(before) else char)
        before = char
    return "".join(out)


def _separates(char: str) -> bool:
    if char.isascii():
        return not (char.isalnum() or char == "_")
    if char.isalpha() or unicodedata.category(char) == "Nd":
        return False
    return char in gostrings.SPACE


def _untitle(text: str) -> str:
    """Convert the first letter of each word to lower case."""
    out: list[str] = []
    at_word = True
    for char in text:
        if char in gostrings.SPACE:
            at_word = True
        elif at_word:
            char = gostrings.lower(char)
            at_word = False
        out.append(char)
    return "".join(out)


def _substr(start: int, end: int, text: str) -> str:
    data = to_bytes(text)
    if start < 0:
        first, last = 0, end
    else:
        first, last = start, len(data) if end < 0 or end > len(data) else end
    if not 0 <= first <= last <= len(data):
        raise TemplateError(f"[{start}:{end}] is out of range: the text has {len(data)} bytes")
    return from_bytes(data[first:last])


def _repeat(count: int, text: str) -> str:
    return gostrings.repeat(text, count)


def _trunc(count: int, text: str) -> str:
    data = to_bytes(text)
    if count < 0:
        return from_bytes(data[count:])
    return from_bytes(data[:count])


def _abbrev(width: int, text: str) -> str:
    return _abbreviated(to_bytes(text), 0, width)


def _abbrevboth(left: int, right: int, text: str) -> str:
    if left > 0 and right < 7:
        return text
    return _abbreviated(to_bytes(text), left, right)


def _abbreviated(data: bytes, offset: int, width: int) -> str:
    """Return at most `width` bytes from `offset` on, with `...` for omitted text."""
    if width < 4 or len(data) <= width:
        return from_bytes(data)
    kept = width - 3
    offset = min(offset, len(data))
    if len(data) - offset < kept:
        offset = len(data) - kept
    if offset <= 4:
        return from_bytes(data[:kept] + b"...")
    if width < 7:
        return ""
    if offset + kept < len(data):
        return "..." + _abbreviated(data[offset:], 0, kept)
    return from_bytes(b"..." + data[-kept:])


def _initials(text: str) -> str:
    return "".join(word[0] for word in _words_of(text))


def _words_of(text: str) -> list[str]:
    for space in gostrings.SPACE:
        text = text.replace(space, " ")
    return text.split()


def _nospace(text: str) -> str:
    return "".join(char for char in text if char not in gostrings.SPACE)


def _swapcase(text: str) -> str:
    """Swap upper and lower case."""
    return "".join(
        gostrings.lower(char) if char.isupper() or char.istitle() else gostrings.upper_char(char)
        for char in text
    )


def _contains(part: str, text: str) -> bool:
    return part in text


def _has_prefix(prefix: str, text: str) -> bool:
    return text.startswith(prefix)


def _has_suffix(suffix: str, text: str) -> bool:
    return text.endswith(suffix)


def _quote(*values: Any) -> str:
    return " ".join(go_quote(to_string(value)) for value in values if value is not None)


def _squote(*values: Any) -> str:
    return " ".join(f"'{go_print(value)}'" for value in values if value is not None)


def _cat(*values: Any) -> str:
    """Join the values with spaces; nil is left out."""
    return " ".join(go_print(value) for value in values if value is not None)


def _indent(spaces: int, text: str) -> str:
    pad = gostrings.repeat(" ", spaces)
    return pad + gostrings.replace(text, "\n", "\n" + pad)


def _nindent(spaces: int, text: str) -> str:
    return "\n" + _indent(spaces, text)


def _replace(old: str, new: str, text: str) -> str:
    return gostrings.replace(text, old, new)


def _plural(one: str, many: str, count: int) -> str:
    return one if count == 1 else many


def _wrap(width: int, text: str) -> str:
    return _wrapped(to_bytes(text), max(width, 1), b"\n", breaks_words=False)


def _wrap_with(width: int, separator: str, text: str) -> str:
    return _wrapped(to_bytes(text), max(width, 1), to_bytes(separator) or b"\n", breaks_words=True)


def _wrapped(data: bytes, width: int, separator: bytes, *, breaks_words: bool) -> str:
    check_length(len(data) + (len(data) // width + data.count(b" ") + 1) * len(separator))
    lines: list[bytes] = []
    start = 0
    while len(data) - start > width:
        if data[start : start + 1] == b" ":
            start += 1
            continue
        space = data.rfind(b" ", start, start + width + 1)
        if space < 0 and breaks_words:
            lines.append(data[start : start + width])
            start += width
            continue
        if space < 0:
            space = data.find(b" ", start + width)
        if space < 0:
            lines.append(data[start:])
            return from_bytes(separator.join(lines))
        lines.append(data[start:space])
        start = space + 1
    lines.append(data[start:])
    return from_bytes(separator.join(lines))


def _split_list(separator: str, text: str) -> TypedList:
    return gostrings.split(text, separator)


def _split(separator: str, text: str) -> StringMap:
    return _numbered(gostrings.split(text, separator))


def _splitn(separator: str, count: int, text: str) -> StringMap:
    return _numbered(gostrings.split(text, separator, count))


def _numbered(parts: TypedList) -> StringMap:
    return StringMap((f"_{index}", part) for index, part in enumerate(parts))


def _join(separator: str, values: Any) -> str:
    parts = to_strings(values)
    check_length(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


def _sort_alpha(values: Any) -> TypedList:
    if not isinstance(values, (list, tuple)):
        return strings((print_scalar(values) if values is None else to_string(values),))
    return strings(sorted(to_strings(values), key=to_bytes))


FUNCTIONS = {
    "abbrev": _abbrev,
    "abbrevboth": _abbrevboth,
    "cat": _cat,
    "contains": _contains,
    "hasPrefix": _has_prefix,
    "hasSuffix": _has_suffix,
    "indent": _indent,
    "initials": _initials,
    "join": _join,
    "lower": gostrings.lower,
    "nindent": _nindent,
    "nospace": _nospace,
    "plural": _plural,
    "quote": _quote,
    "repeat": _repeat,
    "replace": _replace,
    "sortAlpha": _sort_alpha,
    "split": _split,
    "splitList": _split_list,
    "splitn": _splitn,
    "squote": _squote,
    "substr": _substr,
    "swapcase": _swapcase,
    "title": _title,
    "toString": to_string,
    "toStrings": to_strings,
    "trim": gostrings.trim_space,
    "trimAll": _trim_all,
    "trimall": _trim_all,
    "trimPrefix": _trim_prefix,
    "trimSuffix": _trim_suffix,
    "trunc": _trunc,
    "untitle": _untitle,
    "upper": gostrings.upper,
    "wrap": _wrap,
    "wrapWith": _wrap_with,
}
