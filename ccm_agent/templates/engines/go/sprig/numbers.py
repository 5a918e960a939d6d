"""
Sprig's arithmetic and conversions.

Integer functions convert any value to int64 and wrap at 64 bits. `addf` and similar functions compute in
decimals, so 0.1 plus 0.2 is 0.3.

Source: masterminds.github.io/sprig, "Math Functions", "Float Math Functions", "Integer Slice Functions".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.bounds import check_count
from ccm_agent.templates.engines.gotypes import Int64, TypedList
from ccm_agent.templates.engines.literals import parse_float, parse_integer
from ccm_agent.templates.goprint import go_print
from ccm_agent.templates.gotime import GoDuration, Month, Weekday
from ccm_agent.templates.values import INT_MAX, INT_MIN, wrap_int

_DIVISION_DECIMALS = 16
_WITH_FRACTION = re.compile(r"([+-]?[0-9]*)\.[0-9]*")


def to_int(value: Any) -> int:
    """Convert a value to an integer; 0 if it is not a number."""
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, float):
        return _cut(value)
    if isinstance(value, str):
        return _text_to_int(value)
    if isinstance(value, (Month, Weekday)):
        return value.number
    return value.ns if isinstance(value, GoDuration) else 0


def _cut(value: float) -> int:
    if not -(2.0**63) <= value < 2.0**63:
        return INT_MIN
    return int(value)


def _text_to_int(text: str) -> int:
    """Parse digits in any of Go's bases; a fraction is truncated."""
    match = _WITH_FRACTION.fullmatch(text)
    if match is not None:
        text = match[1] if match[1].strip("+-") else "0"
    number = parse_integer(text)
    return number if number is not None and number == wrap_int(number) else 0


def to_float(value: Any) -> float:
    """Convert a value to a float; 0 if it is not a number."""
    if isinstance(value, (bool, int, float)):
        return float(value)
    if isinstance(value, str):
        number = parse_float(value)
        return 0.0 if number is None else number
    return float(to_int(value))


def _int(value: Any) -> int:
    return to_int(value)


def _int64(value: Any) -> Int64:
    return Int64(to_int(value))


def _float64(value: Any) -> float:
    return to_float(value)


def _atoi(text: str) -> int:
    """Parse decimal digits. Other text is 0, and a number that does not fit becomes the nearest int."""
    number = parse_integer(text, 10)
    return 0 if number is None else max(INT_MIN, min(INT_MAX, number))


def _to_decimal(value: Any) -> Int64:
    """Parse octal digits."""
    number = parse_integer(go_print(value), 8)
    return Int64(0 if number is None or number != wrap_int(number) else number)


def _add(*values: Any) -> Int64:
    return Int64(wrap_int(sum(map(to_int, values))))


def _add1(value: Any) -> Int64:
    return Int64(wrap_int(to_int(value) + 1))


def _sub(left: Any, right: Any) -> Int64:
    return Int64(wrap_int(to_int(left) - to_int(right)))


def _mul(first: Any, *others: Any) -> Int64:
    product = to_int(first)
    for other in others:
        product = wrap_int(product * to_int(other))
    return Int64(product)


def _div(left: Any, right: Any) -> Int64:
    return Int64(wrap_int(_divided(to_int(left), to_int(right))[0]))


def _mod(left: Any, right: Any) -> Int64:
    return Int64(_divided(to_int(left), to_int(right))[1])


def _divided(left: int, right: int) -> tuple[int, int]:
    """Return the quotient, truncated towards zero, and the remainder, which has the sign of the left side."""
    if right == 0:
        raise TemplateError("division by zero")
    quotient = abs(left) // abs(right)
    if (left < 0) != (right < 0):
        quotient = -quotient
    return quotient, left - quotient * right


def _max(first: Any, *others: Any) -> Int64:
    return Int64(max(map(to_int, (first, *others))))


def _min(first: Any, *others: Any) -> Int64:
    return Int64(min(map(to_int, (first, *others))))


def _maxf(first: Any, *others: Any) -> float:
    return max(map(to_float, (first, *others)))


def _minf(first: Any, *others: Any) -> float:
    return min(map(to_float, (first, *others)))


def _decimals(values: tuple[Any, ...], step: Callable[[Decimal, Decimal], Decimal]) -> float:
    numbers = [to_float(value) for value in values]
    if not all(map(math.isfinite, numbers)):
        raise TemplateError("infinities and NaN are not supported")
    total = Decimal(repr(numbers[0]))
    try:
        with localcontext(Context(prec=2_000, rounding=ROUND_HALF_UP)):
            for number in numbers[1:]:
                total = step(total, Decimal(repr(number)))
    except ArithmeticError:
        raise TemplateError("the result is too large") from None
    return float(total) + 0.0  # Go's decimals have no negative zero


def _divide(left: Decimal, right: Decimal) -> Decimal:
    if right == 0:
        raise TemplateError("division by zero")
    return (left / right).quantize(Decimal(1).scaleb(-_DIVISION_DECIMALS))


def _addf(*values: Any) -> float:
    return _decimals((0.0, *values), lambda left, right: left + right)


def _add1f(value: Any) -> float:
    return _decimals((value, 1.0), lambda left, right: left + right)


def _subf(first: Any, *others: Any) -> float:
    return _decimals((first, *others), lambda left, right: left - right)


def _mulf(first: Any, *others: Any) -> float:
    return _decimals((first, *others), lambda left, right: left * right)


def _divf(first: Any, *others: Any) -> float:
    return _decimals((first, *others), _divide)


def _floor(value: Any) -> float:
    return _whole(math.floor, to_float(value))


def _ceil(value: Any) -> float:
    return _whole(math.ceil, to_float(value))


def _whole(cut: Callable[[float], int], number: float) -> float:
    """Round to an integer. A zero keeps its sign, because Go rounds -0.5 up to -0."""
    return math.copysign(cut(number), number) if math.isfinite(number) else number


def _round(value: Any, places: int, *threshold: float) -> float:
    """Round to a number of decimals. A fraction of at least `threshold` (default: one half) rounds up."""
    number = to_float(value)
    try:
        scale = math.pow(10, places)
    except OverflowError:
        scale = math.inf
    digit = scale * number
    if not math.isfinite(digit) or scale == 0:
        return math.nan
    fraction = math.modf(digit)[0]
    cut = math.ceil if fraction >= (threshold[0] if threshold else 0.5) else math.floor
    return _whole(cut, digit) / scale


def _steps(start: int, stop: int, step: int) -> list[int]:
    if step == 0 or (stop < start) != (step < 0):
        return []
    steps = range(start, stop, step)
    check_count(len(steps) if abs(stop - start) < 2**62 else 2**62)
    return list(steps)


def _until(count: int) -> TypedList:
    return TypedList(_steps(0, count, -1 if count < 0 else 1), "int")


def _until_step(start: int, stop: int, step: int) -> TypedList:
    return TypedList(_steps(start, stop, step), "int")


def _seq(*bounds: int) -> str:
    """
    Return the numbers up to and including the last, as text: `seq 3`, `seq 2 4`, `seq 1 2 9` with a step in
    the middle.
    """
    if not 1 <= len(bounds) <= 3:
        return ""
    start = bounds[0] if len(bounds) > 1 else 1
    end = bounds[-1]
    direction = -1 if end < start else 1
    step = bounds[1] if len(bounds) == 3 else direction
    if direction < 0 < step:
        return ""
    return " ".join(map(str, _steps(start, end + direction, step)))


FUNCTIONS = {
    "add": _add,
    "add1": _add1,
    "add1f": _add1f,
    "addf": _addf,
    "atoi": _atoi,
    "biggest": _max,
    "ceil": _ceil,
    "div": _div,
    "divf": _divf,
    "float64": _float64,
    "floor": _floor,
    "int": _int,
    "int64": _int64,
    "max": _max,
    "maxf": _maxf,
    "min": _min,
    "minf": _minf,
    "mod": _mod,
    "mul": _mul,
    "mulf": _mulf,
    "round": _round,
    "seq": _seq,
    "sub": _sub,
    "subf": _subf,
    "toDecimal": _to_decimal,
    "until": _until,
    "untilStep": _until_step,
}
