"""Functions on text."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

from ccm_agent.templates.allowance import size_of
from ccm_agent.templates.expr.arguments import as_text, wrong
from ccm_agent.templates.expr.collections import NilList
from ccm_agent.templates.expr.evaluation_errors import EvaluationError
from ccm_agent.templates.expr.frame import MAP_BYTES, Frame
from ccm_agent.templates.expr.operators import describe, to_int
from ccm_agent.templates.gojson import TEXT_LIMIT, JSONError, read, write
from ccm_agent.templates.scan import GO_SPACE
from ccm_agent.templates.values import (
    byte_length,
    from_bytes,
    to_bytes,
)

_REPEAT_LIMIT = 1_000_000


def trim(frame: Frame, text: Any, cutset: Any = GO_SPACE) -> str:
    whole, unwanted = as_text("trim", text), "".join(set(as_text("trim", cutset)))
    frame.spend(len(whole) * len(unwanted) >> 10)
    return whole.strip(unwanted)


def trim_prefix(_frame: Frame, text: Any, prefix: Any = " ") -> str:
    return as_text("trimPrefix", text).removeprefix(as_text("trimPrefix", prefix))


def trim_suffix(_frame: Frame, text: Any, suffix: Any = " ") -> str:
    return as_text("trimSuffix", text).removesuffix(as_text("trimSuffix", suffix))


def upper(frame: Frame, text: Any) -> str:
    text = as_text("upper", text)
    frame.write(size_of(text))
    return text.upper() if text.isascii() else "".join(map(_upper_char, text))


def lower(frame: Frame, text: Any) -> str:
    text = as_text("lower", text)
    frame.write(size_of(text))
    return text.lower() if text.isascii() else "".join(map(_lower_char, text))


def _upper_char(char: str) -> str:
    """
    Convert a character to upper case. Go maps each character to one character. If Python returns two, the
    title case may be a single character.
    """
    upper = char.upper()
    if len(upper) > 1:
        upper = char.title()
    return upper if len(upper) == 1 else char


def _lower_char(char: str) -> str:
    return char.lower() if char != "\u0130" else "i"


def splitting(name: str, keep: bool) -> Callable[..., list[Any]]:
    """Create `split` or `splitAfter`, which keeps the separators."""

    def run(frame: Frame, value: Any, between: Any, limit: Any = -1) -> list[Any]:
        text, separator, most = as_text(name, value), as_text(name, between), to_int(limit)
        if most == 0:
            return NilList()
        frame.grow((text.count(separator) if separator else len(text)) + 1)
        frame.write(size_of(text))
        if separator:
            parts: list[Any] = text.split(separator, most - 1 if most > 0 else -1)
            return [part + separator for part in parts[:-1]] + parts[-1:] if keep else parts
        single = len(text) if most < 0 else min(most - 1, len(text))
        return [*text[:single], *([text[single:]] if text[single:] else [])]

    return run


def replace(frame: Frame, value: Any, old: Any, new: Any, count: Any = -1) -> str:
    text, searched, replacement = as_text("replace", value), as_text("replace", old), as_text("replace", new)
    most = to_int(count)
    times = text.count(searched)
    if most >= 0:
        times = min(times, most)
    width = 1 if text.isascii() and replacement.isascii() else 4
    frame.write(width * (len(text) + times * len(replacement)))
    return text.replace(searched, replacement, times)


def repeat(frame: Frame, value: Any, count: Any) -> str:
    text, times = as_text("repeat", value), to_int(count)
    if times < 0:
        raise EvaluationError("repeat() repeats zero times or more")
    if times > _REPEAT_LIMIT:
        raise EvaluationError(f"repeat() repeats {_REPEAT_LIMIT} times at most")
    frame.grow(byte_length(text) * times, 1 if text.isascii() else 4)
    return text * times


def join(frame: Frame, items: Any, glue: Any = "") -> str:
    if not isinstance(items, list):
        raise wrong("join", items)
    between = as_text("join", glue)
    for item in items:
        if type(item) is not str:
            raise EvaluationError(
                f"join() joins texts, and here is {describe(item)}; use map(…, string(#)) first"
            )
    frame.spend(len(items))
    frame.write(sum(map(size_of, items)) + size_of(between) * len(items))
    return between.join(items)


def index(name: str, find: Callable[[str, str], int]) -> Callable[[Frame, Any, Any], int]:
    def run(frame: Frame, text: Any, part: Any) -> int:
        text = as_text(name, text)
        frame.write(size_of(text))
        place = find(text, as_text(name, part))
        return byte_length(text[:place]) if place > 0 else place

    return run


def find_last(text: str, part: str) -> int:
    """Find the last occurrence in linear time; `str.rfind` can compare the whole part at every position."""
    place = text[::-1].find(part[::-1])
    return len(text) - len(part) - place if place >= 0 else -1


def has_prefix(_frame: Frame, text: Any, prefix: Any) -> bool:
    return as_text("hasPrefix", text).startswith(as_text("hasPrefix", prefix))


def has_suffix(_frame: Frame, text: Any, suffix: Any) -> bool:
    return as_text("hasSuffix", text).endswith(as_text("hasSuffix", suffix))


def to_base64(frame: Frame, text: Any) -> str:
    data = to_bytes(as_text("toBase64", text))
    frame.write(len(data) * 2)
    return base64.b64encode(data).decode("ascii")


def from_base64(_frame: Frame, text: Any) -> str:
    body = as_text("fromBase64", text).replace("\r", "").replace("\n", "")
    try:
        if len(body) % 4:
            raise ValueError
        return from_bytes(base64.b64decode(body, validate=True))
    except (ValueError, binascii.Error):
        raise EvaluationError("fromBase64() cannot read this text: it is not base64 with padding") from None


def to_json(frame: Frame, value: Any) -> str:
    limit = min(TEXT_LIMIT, 4 * frame.left)
    try:
        text = write(value, "  ", limit=limit)
    except JSONError as err:
        if limit < TEXT_LIMIT:
            frame.spend(limit >> 2)
        raise EvaluationError(f"toJSON() cannot write this: {err}") from None
    frame.spend(len(text) >> 2)
    frame.write(size_of(text))
    return text


def from_json(frame: Frame, text: Any) -> Any:
    text = as_text("fromJSON", text)
    frame.write(size_of(text))
    frame.grow(text.count(",") + text.count("[") + text.count("{"))
    frame.hold(MAP_BYTES * text.count("{"))
    try:
        return read(text)
    except JSONError as err:
        raise EvaluationError(f"fromJSON() cannot read this text: {err}") from None
