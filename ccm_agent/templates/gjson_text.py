"""
Walk, compact and format JSON text without parsing it to values.

GJSON works on the text of a document, so a path preserves white space, key order and duplicate keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ccm_agent.templates.values import clean_text

_STRING = r'"(?:[^"\\]|\\.)*"'
_STRUCTURE = re.compile(rf'{_STRING}|"|[\[{{(]|[\]}})]', re.DOTALL)
_SCALAR = re.compile(rf'{_STRING}|"(?:[^"\\]|\\.)*|[^\s,\]}}:\x00-\x20]+', re.DOTALL)
_BLANK = re.compile(r"[\x00-\x20]*")
_BETWEEN = re.compile(r"[\x00-\x20,:]*")
_NOT_IN_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\x00-\x20]+', re.DOTALL)
_HEX = "[0-9a-fA-F]"
_ESCAPE = re.compile(rf'\\(?:u([dD][89a-fA-F]{_HEX}{{2}})(?:\\u({_HEX}{{4}}))?|u({_HEX}{{4}})|(["\\/bfnrt]))')
_SIMPLE = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def squash(text: str, start: int = 0) -> int:
    """Return the position after the bracket that closes the one at `start`; the end of the text if there is none."""
    depth = 1
    for token in _STRUCTURE.finditer(text, start + 1):
        char = token.group()
        if char in ("[", "{", "("):
            depth += 1
        elif char in ("]", "}", ")"):
            depth -= 1
            if depth == 0:
                return token.end()
        elif char == '"':  # the string is not closed
            break
    return len(text)


def value_end(text: str, start: int) -> int:
    """Return the end of the value at `start`."""
    if text[start] in "[{":
        return squash(text, start)
    match = _SCALAR.match(text, start)
    return match.end() if match is not None else start + 1


def blank_end(text: str, start: int = 0) -> int:
    """Return the end of the white space at `start`."""
    match = _BLANK.match(text, start)
    return match.end() if match is not None else start


def elements(text: str, start: int = 1) -> Iterator[str]:
    """
    Yield the values of an array's text, in order. With `start` 0: the values of a sequence without
    brackets.
    """
    at = _skip(text, start)
    while at < len(text) and text[at] not in "]}":
        end = value_end(text, at)
        yield text[at:end]
        at = _skip(text, end)


def members(text: str) -> Iterator[tuple[str, str]]:
    """Yield the members of an object's text, in order: key with its quotes, and value."""
    at = text.find('"', 1)
    brace = blank_end(text, 1)
    if brace < len(text) and text[brace] == "}":
        return
    while 0 <= at < len(text):
        key_end = value_end(text, at)
        start = _skip(text, key_end)
        if start >= len(text) or text[start] in "]}":
            return
        end = value_end(text, start)
        yield text[at:key_end], text[start:end]
        at = _skip(text, end)
        if at < len(text) and text[at] != '"':
            return


def _skip(text: str, start: int) -> int:
    match = _BETWEEN.match(text, start)
    return match.end() if match is not None else start


def unescape(body: str) -> str:
    """Decode the body of a JSON string, without its quotes."""
    return _ESCAPE.sub(_unescaped, body) if "\\" in body else body


def _unescaped(match: re.Match[str]) -> str:
    surrogate, second, code, simple = match.groups()
    if simple is not None:
        return _SIMPLE.get(simple, simple)
    if code is not None:
        return chr(int(code, 16))
    low = int(second, 16) if second is not None else 0
    high = int(surrogate, 16)
    if high < 0xDC00 <= low < 0xE000:
        return chr(0x10000 + ((high - 0xD800) << 10) + low - 0xDC00)
    return "\ufffd"  # a lone surrogate, or two surrogates that are not a pair


def is_valid(text: str) -> bool:
    """Whether a text is strictly valid JSON."""
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(_text: str) -> Any:
    raise ValueError


def parsed(text: str) -> Any:
    """Parse an array or object: numbers are floats, and the first of equal keys is used."""
    try:
        return json.loads(
            text, parse_int=_float, parse_float=_float, parse_constant=_float, object_pairs_hook=_first_wins
        )
    except ValueError:
        return _parsed_leniently(text)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        found.setdefault(clean_text(key), clean_text(value) if isinstance(value, str) else value)
    return found


def _parsed_leniently(text: str) -> Any:
    if text[:1] == "{":
        found: dict[str, Any] = {}
        for key, value in members(text):
            found.setdefault(unescape(key[1:-1]), _parsed_leniently(value))
        return found
    if text[:1] == "[":
        return [_parsed_leniently(value) for value in elements(text)]
    if text[:1] == '"':
        return unescape(text[1:-1] if text.endswith('"') and len(text) > 1 else text[1:])
    if text[:1] in "tfn":
        return {"t": True, "f": False}.get(text[:1])
    return _float(text)


def ugly(text: str) -> str:
    """Return the text without white space between its tokens."""
    return _NOT_IN_STRINGS.sub(lambda match: match.group() if match.group()[0] == '"' else "", text)


class PrettyOptions:
    """
    The options of `@pretty`.

    Attributes:
        width: Arrays of at most this many columns stay on one line; 0 for never.
        indent: The indentation of a level.
        prefix: The start of each line.
        sort_keys: Whether members of objects are sorted.
    """

    def __init__(
        self, width: int = 80, indent: str = "  ", prefix: str = "", sort_keys: bool = False
    ) -> None:
        self.width = width
        self.indent = indent
        self.prefix = prefix
        self.sort_keys = sort_keys

    def pretty(self, text: str) -> str:
        """Format the text with one line for each element."""
        start = blank_end(text)
        if start >= len(text):
            return self.prefix + "\n" if self.prefix else ""
        return self.prefix + self._value(text[start : value_end(text, start)], 0, len(self.prefix)) + "\n"

    def _value(self, text: str, level: int, column: int) -> str:
        if text[0] == "{":
            return self._object(text, level)
        if text[0] == "[":
            return self._array(text, level, column)
        return {"t": "true", "f": "false"}.get(text[0], text) if text[0] in "tf" else text

    def _line(self, level: int) -> str:
        return self.prefix + self.indent * level

    def _object(self, text: str, level: int) -> str:
        pairs = list(members(text))
        if not pairs:
            return "{}"
        if self.sort_keys:
            pairs.sort(key=lambda pair: unescape(pair[0][1:-1]))
        line = self._line(level + 1)
        lines = []
        for key, value in pairs:
            head = f"{line}{key}: "
            lines.append(head + self._value(value, level + 1, len(head) + 1))
        return "{\n" + ",\n".join(lines) + "\n" + self._line(level) + "}"

    def _array(self, text: str, level: int, column: int) -> str:
        room = self.width - column
        if self.width > 0 and room > 3:
            single = self._single_line(text)
            if single is not None and len(single) <= room:
                return single
        items = list(elements(text))
        if not items:
            return "[]"
        line = self._line(level + 1)
        lines = [
            line + self._value(item, level + 1, len(line) + (1 if index == 0 else 0))
            for index, item in enumerate(items)
        ]
        return "[\n" + ",\n".join(lines) + "\n" + self._line(level) + "]"

    def _single_line(self, text: str) -> str | None:
        """Format an array on one line; None if it contains an object."""
        parts = []
        for item in elements(text):
            if item[0] == "{":
                return None
            part = self._single_line(item) if item[0] == "[" else item
            if part is None:
                return None
            parts.append(part)
        return "[" + ", ".join(parts) + "]"
