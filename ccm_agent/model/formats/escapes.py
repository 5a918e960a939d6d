"""
Views of a text without the escapes of JSON, URLs, shells, HTML and YAML, and with joined lines.

A view maps each of its characters to the source text. A match in the view can therefore be masked in the
original text. Secrets are found by decoding the output, because the encoding that a program uses is unknown.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator

from ccm_agent.model.formats.patterns import lazy_pattern

DEPTH = 2
"""The number of nested escapes that are removed: JSON in JSON, or a URL in a shell word."""

_BACKSLASH = lazy_pattern(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U00[01][0-9a-fA-F]{5}"
    r"|\\x[0-9a-fA-F]{2}|\\[0-3][0-7]{2}|\\.",
    re.DOTALL,
)
_SHELL = lazy_pattern(r"'\\''|'\"'\"'")
_PERCENT = lazy_pattern(r"(?:%[0-9A-Fa-f]{2})+|\+")
_HTML = lazy_pattern(r"&(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});")
_DOUBLED_SINGLE = lazy_pattern(r"''")
_DOUBLED_DOUBLE = lazy_pattern(r'""')
_FOLDED = lazy_pattern(r"\\?\r?\n[ \t]*")
_NO_CHARACTER = 0x110000
_CONTROLS = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "a": "\a",
    "e": "\x1b",
    "\n": "",
}
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}

_Token = tuple[int, int, str]
"""The start and end of a token in the underlying text, and its decoded text."""


class MappedText:
    """
    A decoded text with a mapping to its source text.

    Attributes:
        text: The text to search.
    """

    def __init__(
        self, text: str, below: MappedText | None = None, tokens: list[_Token] | None = None
    ) -> None:
        self.text = text
        self._below = below
        self._tokens: list[tuple[int, int, int, int]] = []
        if tokens is not None and below is not None:
            self._decode(below.text, tokens)

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """Map a part of this view to the original text; `end` is greater than `begin`."""
        if self._below is None:
            return begin, end
        return self._below.span(self._origin(begin)[0], self._origin(end - 1)[1])

    def _decode(self, source: str, tokens: list[_Token]) -> None:
        parts: list[str] = []
        at = size = 0
        for begin, end, meaning in tokens:
            parts += (source[at:begin], meaning)
            size += begin - at
            self._tokens.append((size, size + len(meaning), begin, end))
            size += len(meaning)
            at = end
        parts.append(source[at:])
        self.text = "".join(parts)

    def _origin(self, place: int) -> tuple[int, int]:
        """Return the start and end, in the underlying view, of one decoded character."""
        number = bisect_right(self._tokens, place, key=lambda token: token[0]) - 1
        if number < 0:
            return place, place + 1
        _, ended, begin, end = self._tokens[number]
        if place < ended:
            return begin, end
        return end + place - ended, end + place - ended + 1


def views(text: str) -> Iterator[MappedText]:
    """Yield the text itself, and each distinct view without escapes."""
    seen = {text}
    level = [MappedText(text)]
    for _ in range(DEPTH):
        yield from level
        above: list[MappedText] = []
        for view in level:
            for decode in _DECODERS:
                made = decode(view)
                if made is not None and made.text not in seen:
                    seen.add(made.text)
                    above.append(made)
        level = above
    yield from level


def _replaced(view: MappedText, pattern: re.Pattern[str], meaning: Callable[[str], str]) -> MappedText | None:
    tokens = [(found.start(), found.end(), meaning(found[0])) for found in pattern.finditer(view.text)]
    return MappedText("", view, tokens) if tokens else None


def _backslash(view: MappedText) -> MappedText | None:
    """Decode escapes of JSON, C, Python and shells."""
    return _replaced(view, _BACKSLASH, _unescaped) if "\\" in view.text else None


def _unescaped(token: str) -> str:
    kind = token[1]
    if kind == "u" and len(token) == 12:
        high, low = int(token[2:6], 16), int(token[8:], 16)
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
    if kind in "uUx" and len(token) > 2:
        number = int(token[2:], 16)
        return chr(number) if number < _NO_CHARACTER else "\ufffd"
    if len(token) == 4:
        return chr(int(token[1:], 8))
    return _CONTROLS.get(kind, kind)


def _shell(view: MappedText) -> MappedText | None:
    """Decode a quote inside single quotes of a shell, where a backslash is literal."""
    return _replaced(view, _SHELL, lambda _: "'") if "'" in view.text else None


def _percent(view: MappedText) -> MappedText | None:
    """
    Decode escapes of URLs and forms. Characters are decoded separately, because a part of a sequence may be a secret.
    """
    if "%" not in view.text and "+" not in view.text:
        return None
    tokens = [token for found in _PERCENT.finditer(view.text) for token in _octets(found.start(), found[0])]
    return MappedText("", view, tokens) if tokens else None


def _octets(at: int, run: str) -> Iterator[_Token]:
    if run == "+":
        yield at, at + 1, " "
        return
    for char in bytes.fromhex(run.replace("%", "")).decode(errors="surrogateescape"):
        size = 3 * len(char.encode(errors="surrogateescape"))
        yield at, at + size, char
        at += size


def _html(view: MappedText) -> MappedText | None:
    """Decode entities of HTML and XML."""
    return _replaced(view, _HTML, _entity) if "&" in view.text else None


def _entity(token: str) -> str:
    name = token[1:-1]
    if name in _ENTITIES:
        return _ENTITIES[name]
    number = int(name[2:], 16) if name[1] in "xX" else int(name[1:])
    return chr(number) if number < _NO_CHARACTER else "\ufffd"


def _doubled_single(view: MappedText) -> MappedText | None:
    """Decode doubled single quotes, as in YAML and SQL."""
    return _replaced(view, _DOUBLED_SINGLE, lambda token: token[0])


def _doubled_double(view: MappedText) -> MappedText | None:
    """Decode doubled double quotes, as in CSV."""
    return _replaced(view, _DOUBLED_DOUBLE, lambda token: token[0])


def _folded(view: MappedText) -> MappedText | None:
    """Join lines, because base64 is often wrapped."""
    return _replaced(view, _FOLDED, lambda _: "") if "\n" in view.text else None


_DECODERS = (_backslash, _shell, _percent, _html, _doubled_single, _doubled_double, _folded)
