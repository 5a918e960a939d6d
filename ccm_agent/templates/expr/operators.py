"""Operators on values, by Go's rules; unsuitable values raise an EvaluationError."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from ccm_agent.model.gathered import GatheredRecord
from ccm_agent.templates.expr.collections import AnyMap, NilList, as_key, is_nil
from ccm_agent.templates.expr.evaluation_errors import EvaluationError
from ccm_agent.templates.expr.frame import Frame
from ccm_agent.templates.expr.methods import bound_method
from ccm_agent.templates.gotime import GoDuration, Time
from ccm_agent.templates.services import Services
from ccm_agent.templates.values import (
    INT_MAX,
    INT_MIN,
    GoValue,
    StringMap,
    byte_length,
    deep_equal,
    from_bytes,
    to_bytes,
    wrap_int,
)

_WORDS: dict[type, str] = {
    type(None): "nil",
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    str: "text",
    bytes: "bytes",
    list: "a list",
    tuple: "a list",
    dict: "a map",
}
_GO_WORDS = {
    "time.Time": "a time",
    "time.Duration": "a duration",
    "time.Month": "a month",
    "time.Weekday": "a weekday",
    "*time.Location": "a time zone",
}


def describe(value: Any) -> str:
    """Return the kind of a value for a message; never the value itself."""
    word = _WORDS.get(type(value))
    if word is None and isinstance(value, GoValue):
        word = _GO_WORDS.get(value.go_type)
    if word is None:
        word = next((text for kind, text in _WORDS.items() if isinstance(value, kind)), "a function")
    return word


def _between(sign: str, left: Any, right: Any) -> EvaluationError:
    return EvaluationError(f"{sign} does not go between {describe(left)} and {describe(right)}")


class EnvironmentValue(GoValue):
    """The value of `$env`: all variables and functions of the expression."""

    __slots__ = ("variables",)
    go_type = "$env"

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self.variables = variables

    def go_text(self) -> str:
        return self.go_type


# arithmetic


def add(left: Any, right: Any) -> Any:
    a, b = type(left), type(right)
    if a is int and b is int:
        return wrap_int(left + right)
    if a is str and b is str:
        return left + right
    if (a is float or a is int) and (b is float or b is int):
        return float(left) + float(right)
    if b is GoDuration:
        if a is GoDuration:
            return GoDuration(left.ns + right.ns)
        if a is Time:
            return left.plus(right)
    if a is GoDuration and b is Time:
        return right.plus(left)
    raise _between("+", left, right)


def subtract(left: Any, right: Any) -> Any:
    a, b = type(left), type(right)
    if a is int and b is int:
        return wrap_int(left - right)
    if (a is float or a is int) and (b is float or b is int):
        return float(left) - float(right)
    if b is GoDuration:
        if a is GoDuration:
            return GoDuration(left.ns - right.ns)
        if a is Time:
            return left.plus(GoDuration(-right.ns))
    if a is Time and b is Time:
        return left.minus(right)
    raise _between("-", left, right)


def multiply(left: Any, right: Any) -> Any:
    a, b = type(left), type(right)
    if a is int and b is int:
        return wrap_int(left * right)
    if a is GoDuration or b is GoDuration:
        x = left.ns if a is GoDuration else left
        y = right.ns if b is GoDuration else right
        if type(x) is int and type(y) is int:
            return GoDuration(x * y)
        if type(x) in (int, float) and type(y) in (int, float):
            return float(x) * float(y)
    elif (a is float or a is int) and (b is float or b is int):
        return float(left) * float(right)
    raise _between("*", left, right)


def divide(left: Any, right: Any) -> float:
    if type(left) not in (int, float) or type(right) not in (int, float):
        raise _between("/", left, right)
    x, y = float(left), float(right)
    if y:
        return x / y
    if x == 0 or math.isnan(x):
        return math.nan
    return math.copysign(math.inf, x) * math.copysign(1.0, y)


def modulo(left: Any, right: Any) -> int:
    if type(left) is not int or type(right) is not int:
        raise _between("%", left, right)
    if right == 0:
        raise EvaluationError("the remainder of a division by zero")
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def power(left: Any, right: Any) -> float:
    if type(left) not in (int, float) or type(right) not in (int, float):
        raise _between("**", left, right)
    x, y = float(left), float(right)
    try:
        return math.pow(x, y)
    except OverflowError:
        is_odd = y == math.trunc(y) and math.fmod(y, 2) != 0
        return -math.inf if x < 0 and is_odd else math.inf
    except ValueError:
        if x == 0:  # zero to a negative power
            is_odd = y == math.trunc(y) and math.fmod(y, 2) != 0
            return math.copysign(math.inf, x) if is_odd else math.inf
        return math.nan


def negate(value: Any) -> Any:
    if type(value) is int:
        return wrap_int(-value)
    if type(value) is float:
        return -value
    raise EvaluationError(f"- does not take {describe(value)}")


# comparisons


def _comparison(sign: str, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def run(left: Any, right: Any) -> bool:
        a, b = type(left), type(right)
        if (a is int and b is int) or (a is str and b is str):
            return compare(left, right)
        if (a is float or a is int) and (b is float or b is int):
            return compare(float(left), float(right))
        if (a is Time and b is Time) or (a is GoDuration and b is GoDuration):
            return compare(left.ns, right.ns)
        raise _between(sign, left, right)

    return run


less = _comparison("<", operator.lt)
more = _comparison(">", operator.gt)
less_or_equal = _comparison("<=", operator.le)
more_or_equal = _comparison(">=", operator.ge)


def equal(frame: Frame, left: Any, right: Any) -> bool:
    """
    Compare numbers by value, lists element by element, and maps strictly. Charges a step for each element.
    """
    a, b = type(left), type(right)
    if a is b and (a is str or a is int or a is bool):
        return bool(left == right)
    if (a is float or a is int) and (b is float or b is int):
        return float(left) == float(right)
    if isinstance(left, list) and isinstance(right, (list, bytes)):
        frame.spend(1 + min(len(left), len(right)))
        if len(left) != len(right):
            return False
        return all(equal(frame, x, y) for x, y in zip(left, right, strict=True))
    if is_nil(left) and is_nil(right):
        return True
    if isinstance(left, bytes) and isinstance(right, list):
        return equal(frame, right, left)
    return strictly_equal(frame, left, right)


def strictly_equal(frame: Frame, left: Any, right: Any) -> bool:
    """Compare values inside of maps: the kinds must match, so 1 is not 1.0. Charges a step for each value."""
    frame.spend(1)
    if isinstance(left, dict) and isinstance(right, dict):
        return len(left) == len(right) and all(
            key in right and strictly_equal(frame, item, right[key]) for key, item in left.items()
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(
            strictly_equal(frame, x, y) for x, y in zip(left, right, strict=True)
        )
    return deep_equal(left, right)


def contained(frame: Frame, needle: Any, haystack: Any) -> bool:
    """Whether `needle in haystack` is true."""
    if isinstance(haystack, (list, bytes)):
        if type(needle) is str and isinstance(haystack, list):
            frame.spend((len(haystack) >> 4) + len(haystack) * (len(needle) >> 12))
            return needle in haystack
        frame.spend(len(haystack))
        return any(equal(frame, item, needle) for item in haystack)
    if isinstance(haystack, AnyMap):
        try:
            return as_key(needle) in haystack
        except TypeError:
            raise EvaluationError(f"{describe(needle)} cannot be a key") from None
    if isinstance(haystack, dict):
        return text_key(needle) in haystack
    if haystack is None:
        return False
    if isinstance(haystack, EnvironmentValue) and type(needle) is str:
        return needle in haystack.variables
    raise EvaluationError(f"in looks into lists and maps, not into {describe(haystack)}")


def text_key(key: Any) -> str:
    """Return a key of a map with text keys; nil is converted to ""."""
    if type(key) is str:
        return key
    if key is None:
        return ""
    raise EvaluationError(f"{describe(key)} is not a key of this map; its keys are text")


# elements


def to_int(value: Any) -> int:
    """Convert to an index or bound; floats are truncated."""
    if type(value) is int:
        return value
    if type(value) is float:
        return float_to_int(value)
    raise EvaluationError(f"an integer is needed, not {describe(value)}")


def float_to_int(value: float) -> int:
    """Convert as in Go: truncate the fraction. A number that does not fit becomes the smallest integer."""
    if math.isnan(value) or not INT_MIN <= value <= INT_MAX:
        return INT_MIN
    return int(value)


def fetch(base: Any, key: Any) -> Any:
    """Evaluate `base.key` or `base[key]`."""
    if isinstance(base, dict):
        if isinstance(base, AnyMap):
            try:
                return base.get(as_key(key), base.zero)
            except TypeError:
                raise EvaluationError(f"{describe(key)} cannot be a key") from None
        if isinstance(base, GatheredRecord):
            return _field(base, text_key(key))
        return base.get(text_key(key), "" if isinstance(base, StringMap) else None)
    if isinstance(base, (list, str, bytes)):
        return _element(base, key)
    if isinstance(base, GoValue) and type(key) is str:
        if isinstance(base, EnvironmentValue):
            if key in base.variables:
                return base.variables[key]
            raise EvaluationError(f"unknown name {_shown(key)}")
        method = bound_method(base, key)
        if method is not None:
            return method
    if base is None:
        raise EvaluationError(f"there is no {_shown(key)} in nil; use ?. where it may be missing")
    raise EvaluationError(f"{describe(base)} has no {_shown(key)}")


def _field(record: GatheredRecord, name: str) -> Any:
    if name not in record:
        raise EvaluationError(record.no_field(name))
    return record[name]


def _shown(key: Any) -> str:
    return key if type(key) is str and key.isidentifier() else "such element"


def _element(base: Any, key: Any) -> Any:
    if type(key) is str:
        if isinstance(base, Services) and (method := bound_method(base, key)) is not None:
            return method
        raise EvaluationError(f"{describe(base)} has no {_shown(key)}; its elements are chosen by integers")
    index = to_int(key)
    length = byte_length(base) if isinstance(base, str) else len(base)
    place = index + length if index < 0 else index
    if not 0 <= place < length:
        raise EvaluationError(f"index {index} is out of range: there are {length} elements")
    if isinstance(base, str):
        return to_bytes(base)[place] if not base.isascii() else ord(base[place])
    return base[place]


def cut(base: Any, start: Any, stop: Any) -> Any:
    """Evaluate `base[start:stop]`; `stop` is None for the end. Bounds are clamped; text is sliced by bytes."""
    if not isinstance(base, (list, str, bytes)):
        raise EvaluationError(f"{describe(base)} cannot be sliced; only lists and text can")
    if isinstance(base, str) and not base.isascii():
        return from_bytes(cut(to_bytes(base), start, stop))
    length = len(base)
    a = to_int(start)
    b = length if stop is None else to_int(stop)
    a = max(a + length, 0) if a < 0 else a
    b = max(b + length, 0) if b < 0 else min(b, length)
    a = min(a, b)
    return NilList() if type(base) is NilList else base[a:b]
