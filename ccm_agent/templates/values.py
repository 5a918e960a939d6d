"""
The values of expressions and templates, with Go's rules for printing, comparing and measuring.

Go's types are represented as plain Python values:

    Go                      here
    nil                     None
    bool                    bool (never a number, unlike in Python)
    int, uint8, int64 …     int, wrapped to 64 bits by the computing function
    float64                 float
    string                  str; bytes that are not UTF-8 are surrogate escapes, see `to_bytes`
    []byte                  bytes
    slices, arrays          list (a tuple is also accepted)
    maps                    dict
    gathered facts          `GatheredRecord`, which is a dict
    everything else         a `GoValue`: times, durations, months …

Every engine imports this module, so keep its own imports cheap.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from ccm_agent.model.gathered import GatheredRecord

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1


class GoValue:
    """
    A value of a Go type without a plain Python equivalent.

    Subclasses are immutable and compare by value. They are hashable if Go's type can be a map key.
    """

    __slots__ = ()

    go_type = "struct"

    def go_text(self) -> str:
        """Format the value like `%v`."""
        raise NotImplementedError


class StringMap(dict[str, str]):
    """A Go `map[string]string`, such as the environment variables: a missing key returns ""."""

    __slots__ = ()


def is_number(value: object) -> bool:
    """Whether the value is an int or a float; a boolean is not a number."""
    return isinstance(value, (int, float)) and value is not True and value is not False


def wrap_int(value: int) -> int:
    """Wrap an integer to 64 bits, as Go's arithmetic does."""
    if INT_MIN <= value <= INT_MAX:
        return value
    return (value + 2**63) % 2**64 - 2**63


def type_name(value: object) -> str:
    """Return the name of the value's Go type like `%T`, for error messages."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    if isinstance(value, float):
        return "float64"
    if isinstance(value, str):
        return "string"
    if isinstance(value, bytes):
        return "[]uint8"
    if isinstance(value, (list, tuple)):
        return "[]interface {}"
    if isinstance(value, GatheredRecord):
        return value.record_type.go_type
    if isinstance(value, dict):
        return "map[string]interface {}"
    if isinstance(value, GoValue):
        return value.go_type
    return type(value).__name__


def to_bytes(text: str) -> bytes:
    """Return the bytes of a Go string: surrogate escapes become their byte, lone surrogates become U+FFFD."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        mended = "".join(
            "\ufffd" if "\ud800" <= char <= "\udfff" and not "\udc80" <= char <= "\udcff" else char
            for char in text
        )
        return mended.encode("utf-8", "surrogateescape")


def from_bytes(data: bytes) -> str:
    """Return the Go string of these bytes; bytes that are not UTF-8 become surrogate escapes."""
    return data.decode("utf-8", "surrogateescape")


def byte_length(text: str) -> int:
    """Return the length of a Go string in bytes."""
    return len(text) if text.isascii() else len(to_bytes(text))


def clean_text(text: str) -> str:
    """Return the text with U+FFFD for each byte that is not UTF-8, as in Go's JSON writer and `range`."""
    if text.isascii():
        return text
    return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)


def float_digits(value: float) -> tuple[str, str, int]:
    """
    Split a finite float into sign, digits and exponent.

    Returns:
        Sign ("-" or ""), the shortest digits that parse to the same float, and the position of the decimal
        point relative to the first digit: 12.5 is ("", "125", 2), zero is ("", "0", 1).
    """
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)
    stripped = text.rstrip("0")
    if not stripped:
        return "-" if sign else "", "0", 1
    return "-" if sign else "", stripped, point


def format_float(value: float) -> str:
    """
    Format a float like `%v`: shortest digits, with an exponent below 0.0001 and from 1e+06 on; 2.0 is `2`.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, point = float_digits(value)
    exponent = point - 1
    if exponent < -4 or exponent >= 6:
        return sign + _with_exponent(digits, exponent)
    return sign + plain_digits(digits, point)


def plain_digits(digits: str, point: int) -> str:
    """Format digits and decimal point like `%f`, with all decimals."""
    if point <= 0:
        return "0." + "0" * -point + digits
    if point >= len(digits):
        return digits + "0" * (point - len(digits))
    return digits[:point] + "." + digits[point:]


def _with_exponent(digits: str, exponent: int) -> str:
    mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
    return f"{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def deep_equal(left: Any, right: Any) -> bool:
    """
    Compare as in Go's `reflect.DeepEqual`: kinds must match, so 1 is not 1.0 and true is not 1.

    Lists are compared item by item, maps key by key. NaN is not equal to any value.
    """
    if isinstance(left, (list, tuple)):
        return (
            isinstance(right, (list, tuple))
            and len(left) == len(right)
            and all(deep_equal(a, b) for a, b in zip(left, right, strict=True))
        )
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and len(left) == len(right)
            and all(key in right and deep_equal(item, right[key]) for key, item in left.items())
        )
    if isinstance(right, (list, tuple, dict)):
        return False
    return type(left) is type(right) and bool(left == right)


def loose_equal(left: Any, right: Any) -> bool:
    """
    Compare as in expressions: numbers of any kind by value, also in lists; maps by `deep_equal`.

    A boolean never equals a number; nil equals only nil.
    """
    if isinstance(left, (list, tuple)):
        return (
            isinstance(right, (list, tuple))
            and len(left) == len(right)
            and all(loose_equal(a, b) for a, b in zip(left, right, strict=True))
        )
    if is_number(left) and is_number(right):
        return numbers_equal(left, right)
    return deep_equal(left, right)


def numbers_equal(left: int | float, right: int | float) -> bool:
    """
    Compare two numbers by value. An int is converted to a float first, so large neighbors may be equal, as
    in Go.
    """
    if isinstance(left, float) or isinstance(right, float):
        return float(left) == float(right)
    return left == right
