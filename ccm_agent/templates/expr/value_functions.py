"""Functions on any value and on numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.model.gathered import PACKAGE, GatheredRecord
from ccm_agent.templates.allowance import size_of
from ccm_agent.templates.expr.arguments import is_number, wrong
from ccm_agent.templates.expr.collections import AnyMap, NilList
from ccm_agent.templates.expr.evaluation_errors import EvaluationError
from ccm_agent.templates.expr.frame import Frame
from ccm_agent.templates.expr.operators import float_to_int
from ccm_agent.templates.goprint import PRINT_LIMIT, go_print
from ccm_agent.templates.gotime import (
    GoDuration,
    Month,
    Weekday,
)
from ccm_agent.templates.values import INT_MAX, INT_MIN, GoValue, StringMap, wrap_int

_DEPTH_LIMIT = 200


def length(_frame: Frame, value: Any) -> int:
    if not isinstance(value, (str, list, dict, bytes)):
        raise wrong("len", value)
    return len(value)


_TYPE_NAMES: dict[type, str] = {
    type(None): "nil",
    bool: "bool",
    int: "int",
    float: "float",
    str: "string",
    bytes: "array",
    list: "array",
    NilList: "array",
    dict: "map",
    AnyMap: "map",
    StringMap: "map",
}


def type_of(_frame: Frame, value: Any) -> str:
    name = _TYPE_NAMES.get(type(value))
    if name is not None:
        return name
    if isinstance(value, GoValue):
        return value.go_type.removeprefix("*")
    if isinstance(value, GatheredRecord):
        return PACKAGE + value.record_type.go_type.removeprefix("*")
    return "map" if isinstance(value, dict) else "array" if isinstance(value, list) else "func"


def to_text(frame: Frame, value: Any) -> str:
    limit = min(PRINT_LIMIT, frame.left)
    try:
        text = go_print(value, limit)
    except TemplateError as err:
        if limit < PRINT_LIMIT:
            frame.spend(limit)
        raise EvaluationError(f"string(): {err.message}") from None
    if type(value) is not str:
        frame.spend(len(text))
    frame.write(size_of(text))
    return text


_FLOAT = re.compile(
    r"[+-]?(?:(?:[0-9](?:_?[0-9])*+(?:\.(?:[0-9](?:_?[0-9])*)?)?|\.[0-9](?:_?[0-9])*)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)\Z",
    re.IGNORECASE,
)
_HEX_FLOAT = re.compile(r"[+-]?0x_?(?:[0-9a-f]++(?:\.[0-9a-f]*)?|\.[0-9a-f]+)p[+-]?[0-9]+\Z", re.IGNORECASE)


def integer(_frame: Frame, value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is float:
        return float_to_int(value)
    if type(value) is str:
        if re.fullmatch(r"[+-]?[0-9]{1,1000}", value, re.ASCII) and INT_MIN <= int(value) <= INT_MAX:
            return int(value)
        raise EvaluationError("int() cannot read this text: it is not a whole number of 64 bits")
    if isinstance(value, (Month, Weekday)):
        return value.number
    if isinstance(value, GoDuration):
        return value.ns
    raise wrong("int", value)


def floating(_frame: Frame, value: Any) -> float:
    if is_number(value):
        return float(value)
    if type(value) is str:
        number = None
        if len(value) < 1000:
            if _FLOAT.match(value):
                number = float(value.replace("_", "")) if _underscores_ok(value) else None
            elif _HEX_FLOAT.match(value):
                number = _hex_float(value)
        if number is not None and (not math.isinf(number) or "inf" in value.lower()):
            return number
        raise EvaluationError("float() cannot read this text: it is not a number")
    raise wrong("float", value)


def _underscores_ok(text: str) -> bool:
    return "__" not in text


def _hex_float(text: str) -> float | None:
    try:
        return float.fromhex(text.replace("_", ""))
    except OverflowError:
        return None


def absolute(_frame: Frame, value: Any) -> Any:
    if type(value) is int:
        return wrap_int(-value) if value < 0 else value
    if type(value) is float:
        return -value if value < 0 else value
    raise wrong("abs", value)


def rounding(name: str, round_float: Callable[[float], float]) -> Callable[[Frame, Any], float]:
    def run(_frame: Frame, value: Any) -> float:
        if type(value) is int:
            return float(value)
        if type(value) is not float:
            raise wrong(name, value)
        if math.isinf(value) or math.isnan(value) or value == 0:
            return value
        return math.copysign(round_float(value), value)

    return run


def half_away(value: float) -> float:
    whole = math.trunc(value)
    return float(whole + (1 if value > 0 else -1)) if abs(value - whole) >= 0.5 else float(whole)


def extreme(name: str, is_better: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    """Create `max` or `min` of numbers (also in nested lists) or of durations."""

    def run(frame: Frame, *values: Any) -> Any:
        if len(values) == 1 and not isinstance(values[0], (list, bytes)) and not is_number(values[0]):
            return values[0]
        best: Any = None
        for value in values if _are_durations(values) else _numbers(frame, name, values):
            if best is None or is_better(value, best):
                best = value
        return best

    return run


def _are_durations(values: tuple[Any, ...]) -> bool:
    return all(isinstance(value, GoDuration) for value in values)


def _numbers(frame: Frame, name: str, values: Any) -> list[Any]:
    """Return all numbers in the arguments, including nested lists."""
    numbers: list[Any] = []
    todo = [iter(values)]
    while todo:
        for value in todo[-1]:
            if isinstance(value, (list, bytes)):
                frame.spend(len(value))
                if len(todo) > _DEPTH_LIMIT:
                    raise EvaluationError(f"{name}() got lists nested more than {_DEPTH_LIMIT} deep")
                todo.append(iter(value))
                break
            if not is_number(value):
                raise wrong(name, value)
            numbers.append(value)
        else:
            todo.pop()
    return numbers


def mean(frame: Frame, *values: Any) -> float:
    numbers = _averaged(frame, "mean", values)
    total = 0.0
    for number in numbers:
        total += number
    return total / len(numbers) if numbers else 0.0


def median(frame: Frame, *values: Any) -> float:
    numbers = sorted(_averaged(frame, "median", values))
    if not numbers:
        return 0.0
    middle = len(numbers) // 2
    return numbers[middle] if len(numbers) % 2 else (numbers[middle - 1] + numbers[middle]) / 2


def _averaged(frame: Frame, name: str, values: tuple[Any, ...]) -> list[float]:
    """Return numbers as floats; durations are in nanoseconds."""
    if _are_durations(values):
        return [float(value.ns) for value in values]
    return [float(number) for number in _numbers(frame, name, values)]


def bits(name: str, combine: Callable[[int, int], int]) -> Callable[[Frame, Any, Any], int]:
    def run(_frame: Frame, left: Any, right: Any) -> int:
        for value in (left, right):
            if type(value) is not int:
                raise wrong(name, value)
        if name in ("bitshl", "bitshr", "bitushr") and right < 0:
            raise EvaluationError(f"{name}() shifts by zero bits or more")
        return wrap_int(combine(left, right))

    return run


def bitnot(_frame: Frame, value: Any) -> int:
    if type(value) is not int:
        raise wrong("bitnot", value)
    return ~value
