"""Write and read JSON like Go's encoding/json."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from typing import Any

from ccm_agent.model.gathered import GatheredRecord
from ccm_agent.templates.values import GoValue, clean_text, float_digits, plain_digits

TEXT_LIMIT = 16 * 1024 * 1024
MAX_NESTING = 500

_ESCAPED = re.compile(r'[\x00-\x1f"\\<>&\u2028\u2029\ud800-\udfff]')
_MARKUP = "<>&"
_SHORT = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


class JSONError(ValueError):
    """A value has no JSON form, or a text is not JSON. The message contains the reason."""


def quote(text: str) -> str:
    """Quote a JSON string; HTML's special characters are escaped, as in Go."""
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _quote_raw(text: str) -> str:
    """Quote a JSON string without escaping `<`, `>` and `&`."""
    return f'"{_ESCAPED.sub(_escape_raw, text)}"'


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    if "\ud800" <= char <= "\udfff":
        return "\\ufffd"  # a byte that is not UTF-8
    return _SHORT.get(char) or f"\\u{ord(char):04x}"


def _escape_raw(match: re.Match[str]) -> str:
    return match.group() if match.group() in _MARKUP else _escape(match)


def number_text(value: float) -> str:
    """
    Format a float as JSON.

    Raises:
        JSONError: The value is infinite or NaN.
    """
    if math.isnan(value) or math.isinf(value):
        raise JSONError("JSON has no infinite number and no NaN")
    if value == 0:
        return "-0" if math.copysign(1.0, value) < 0 else "0"
    sign, digits, point = float_digits(value)
    if 1e-6 <= abs(value) < 1e21:
        return sign + plain_digits(digits, point)
    exponent = point - 1
    mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
    return f"{sign}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent)}"


def write(value: Any, indent: str = "", *, escapes_markup: bool = True, limit: int = TEXT_LIMIT) -> str:
    """
    Write a value as JSON: keys sorted (keys of a gathered fact in Go's order), bytes in base64, times in RFC 3339.

    Args:
        value: The value.
        indent: The indentation of a level; "" for a single line without spaces.
        limit: The maximum number of characters.
        escapes_markup: Whether `<`, `>` and `&` are written as `\\u003c` and so on, which is Go's default.

    Raises:
        JSONError: The value has no JSON form, or is longer than the limit.
    """
    writer = _Writer(indent, quote if escapes_markup else _quote_raw, limit)
    writer.value(value, "\n" if indent else "")
    return "".join(writer.out)


class _Writer:
    def __init__(self, indent: str, quote: Callable[[str], str], limit: int) -> None:
        self.indent = indent
        self.quote = quote
        self.out: list[str] = []
        self.room = limit
        self.depth = 0

    def put(self, text: str) -> None:
        self.room -= len(text)
        if self.room < 0:
            raise JSONError("its JSON is too long")
        self.out.append(text)

    def value(self, value: Any, line: str) -> None:
        if isinstance(value, str):
            self.put(self.quote(value))
        elif value is None:
            self.put("null")
        elif isinstance(value, bool):
            self.put("true" if value else "false")
        elif isinstance(value, int):
            self.put(str(value))
        elif isinstance(value, float):
            self.put(number_text(value))
        elif isinstance(value, (list, tuple)):
            if not value and (type(value).__name__ == "NilList" or getattr(value, "is_nil", False)):
                self.put("null")
            else:
                self.items("[", value, lambda item, inner: self.value(item, inner), "]", line)
        elif isinstance(value, dict):
            self.items("{", self.keys(value), lambda key, inner: self.pair(value, key, inner), "}", line)
        elif isinstance(value, bytes):
            self.put(f'"{base64.b64encode(value).decode("ascii")}"')
        else:
            self.put(_other(value))

    def keys(self, mapping: dict[Any, Any]) -> list[str]:
        for key in mapping:
            if not isinstance(key, str):
                raise JSONError("JSON has text as keys only")
        if type(mapping).__name__ == "AnyMap":
            raise JSONError("JSON has text as keys only")
        return list(mapping) if isinstance(mapping, GatheredRecord) else sorted(mapping)

    def items(
        self, opening: str, items: Any, write_item: Callable[[Any, str], None], closing: str, line: str
    ) -> None:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise JSONError(f"it is nested more than {MAX_NESTING} deep")
        inner = line + self.indent
        self.put(opening)
        is_first = True
        for item in items:
            self.put(inner if is_first else "," + inner)
            is_first = False
            write_item(item, inner)
        if not is_first:
            self.put(line)
        self.put(closing)
        self.depth -= 1

    def pair(self, mapping: dict[str, Any], key: str, line: str) -> None:
        self.put(self.quote(key) + (": " if self.indent else ":"))
        self.value(mapping[key], line)


def _other(value: Any) -> str:
    """Write the JSON of Go's types without a Python equivalent."""
    kind = value.go_type if isinstance(value, GoValue) else ""
    if kind == "time.Time":
        if not 0 <= value.date()[0] <= 9999:
            raise JSONError("JSON has times of the years 0 to 9999 only")
        return quote(value.rfc3339())
    if kind == "time.Duration":
        return str(value.ns)
    if kind in ("time.Month", "time.Weekday"):
        return str(value.number)
    if kind == "*time.Location":
        return "{}"
    if kind == "*semver.Version":
        return quote(value.go_text())
    raise JSONError("a value of this type has no JSON")


def read(text: str) -> Any:
    """
    Parse JSON. All numbers are floats, and the last of equal keys is used.

    Raises:
        JSONError: The text is not JSON.
    """
    import json

    try:
        return json.loads(
            clean_text(text), parse_int=_number, parse_float=_number, parse_constant=_no_constant, cls=None
        )
    except RecursionError:
        raise JSONError("the JSON is nested too deeply") from None
    except json.JSONDecodeError as err:
        raise JSONError(f"no JSON at character {err.pos + 1}: {err.msg[:1].lower()}{err.msg[1:]}") from None


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise JSONError("a number of the JSON is beyond the largest float")
    return value


def _no_constant(_text: str) -> Any:
    raise JSONError("JSON has no infinite number and no NaN")
