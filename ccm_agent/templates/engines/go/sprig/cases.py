"""
Sprig's `snakecase`, `kebabcase` and `camelcase`.

They differ in the separator but share the word boundaries: `HTTPServer` and `node4ab` are two words each, `v1Beta2` is `v1` and
`Beta2`.

Source: masterminds.github.io/sprig, "String Functions"; the rest was determined by experiment.
"""

from __future__ import annotations

import unicodedata
from enum import Enum, auto

from ccm_agent.templates.engines.gostrings import SPACE, lower, upper_char


class _Kind(Enum):
    NUMBER = auto()
    CAPITAL = auto()  # `HTTP` or `Server`
    SMALL = auto()
    CONNECTOR = auto()  # white space, dashes, underscores
    PUNCTUATION = auto()
    OTHER = auto()
    END = auto()


_Word = tuple[_Kind, str]
_GLUED = (_Kind.CONNECTOR, _Kind.PUNCTUATION)  # no separator is added next to these
_END: _Word = (_Kind.END, "")


def _snakecase(text: str) -> str:
    return _joined(_words(text), "_")


def _kebabcase(text: str) -> str:
    return _joined(_words(text), "-")


def _kind(char: str) -> _Kind:
    if char in "-_" or char in SPACE:
        return _Kind.CONNECTOR
    category = unicodedata.category(char)
    if category[0] == "P":
        return _Kind.PUNCTUATION
    if category == "Lu":
        return _Kind.CAPITAL
    if category[0] == "L" and not _is_ideograph(char):
        return _Kind.SMALL
    return _Kind.NUMBER if category[0] == "N" else _Kind.OTHER


def _is_ideograph(char: str) -> bool:
    return "\u3400" <= char <= "\u4dbf" or "\u4e00" <= char <= "\u9fff" or "\uf900" <= char <= "\ufaff"


def _words(text: str) -> list[_Word]:
    kinds = [_kind(char) for char in text]
    words: list[_Word] = []
    start = 0
    while start < len(text):
        end = _word_end(kinds, start)
        while (
            kinds[start] is _Kind.PUNCTUATION
            and end < len(text)
            and unicodedata.category(text[end])[0] == "P"
        ):
            end += 1  # a dash or underscore after punctuation is treated as punctuation
        words.append((kinds[start], text[start:end]))
        start = end
    return words


def _word_end(kinds: list[_Kind], start: int) -> int:
    kind = kinds[start]
    end = _run_end(kinds, start, kind)
    if kind is not _Kind.CAPITAL or end == len(kinds) or kinds[end] is not _Kind.SMALL:
        return end
    if end - start > 1:
        return end - 1  # the last capital begins the next word
    return _run_end(kinds, end, _Kind.SMALL)


def _run_end(kinds: list[_Kind], start: int, kind: _Kind) -> int:
    while start < len(kinds) and kinds[start] is kind:
        start += 1
    return start


def _joined(words: list[_Word], connector: str) -> str:
    """Join lower-case words. A number belongs to the preceding word, unless lower-case letters follow."""
    out: list[str] = []
    index = 0

    def word(offset: int = 0) -> _Word:
        return words[index + offset] if index + offset < len(words) else _END

    def take() -> None:
        nonlocal index
        out.append(_lowered(word(), connector))
        index += 1

    def take_number_tail() -> None:
        while word()[0] in (_Kind.SMALL, _Kind.NUMBER):
            take()

    while index < len(words):
        kind = word()[0]
        take()
        if kind in _GLUED or word() is _END:
            continue
        if kind is _Kind.NUMBER:
            take_number_tail()
        elif word()[0] is _Kind.NUMBER:
            if word(1)[0] is _Kind.SMALL:
                out.append(connector)
                take()
                take_number_tail()
            else:
                take()
        if word() is not _END and word()[0] not in _GLUED:
            out.append(connector)
    return "".join(out)


def _lowered(word: _Word, connector: str) -> str:
    kind, text = word
    if kind is _Kind.CONNECTOR:
        return connector * len(text)
    return lower(text) if kind is _Kind.CAPITAL else text


def _camelcase(text: str) -> str:
    """Capitalize every word. One of several connectors in a row is dropped; connectors at the ends are kept."""
    body = text.lstrip("-_" + SPACE)
    if not body:
        return text
    out = [text[: len(text) - len(body)]]
    before = upper_char(body[0])
    in_capitals = body[0].isupper()
    for char in body[1:]:
        following = char
        if _kind(before) is _Kind.CONNECTOR:
            if _kind(char) is _Kind.CONNECTOR:
                out.append(before)
            else:
                in_capitals = char.isupper()
                following = upper_char(char)
        else:
            in_capitals = in_capitals and char.isupper()
            following = lower(char) if in_capitals else char
            out.append(before)
        before = following
    return "".join([*out, before])


FUNCTIONS = {"camelcase": _camelcase, "kebabcase": _kebabcase, "snakecase": _snakecase}
