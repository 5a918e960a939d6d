"""
Jet's arithmetic and ordering.

The kind of the left side determines the operation, and a float on the right makes the result a float. Literals
are floats; whole numbers in data are 64-bit integers that wrap around and divide without remainder.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.bounds import check_length
from ccm_agent.templates.engines.gotypes import MISSING, Uint64, is_unsigned
from ccm_agent.templates.engines.jet.values import sprint, to_int, type_of
from ccm_agent.templates.engines.literals import parse_float, parse_integer
from ccm_agent.templates.values import from_bytes, is_number, wrap_int

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def negate(sign: str, value: Any) -> Any:
    """
    Compute `-value` or `+value`.

    Raises:
        TemplateError: The value is not a number.
    """
    if not is_number(value):
        raise _no_number(sign, value)
    if sign == "+":
        return value
    return -value if isinstance(value, float) else wrap_int(-int(value))


def arithmetic(sign: str, left: Any, right: Any) -> Any:
    """
    Compute `left sign right` for `+ - * / %`.

    Raises:
        TemplateError: A side is not a number and cannot be parsed as one, or the right side of `/` or `%` is zero.
    """
    if left is MISSING or right is MISSING:
        raise TemplateError(
            f"'{sign}' has no value on its {'left' if left is MISSING else 'right'}: a member is missing"
        )
    if isinstance(left, str) and sign in "+-":
        return _concatenate(sign, left, right)
    if not is_number(left):
        raise _no_number(sign, left)
    if sign == "%":
        return _remainder(left, right)
    if sign == "/" and _is_zero(right):
        raise TemplateError("division by zero")
    if isinstance(left, float) or isinstance(right, float):
        return _on_floats(sign, float(left), _as_float(right))
    if is_unsigned(left):
        return Uint64(_on_ints(sign, int(left), _as_int(right) % 2**64) % 2**64)
    return wrap_int(_on_ints(sign, int(left), _as_int(right)))


def order(sign: str, left: Any, right: Any) -> bool:
    """
    Compare `left sign right` for `< <= > >=`.

    Raises:
        TemplateError: A side is not a number and cannot be parsed as one.
    """
    if not is_number(left):
        raise _no_number(sign, left)
    if isinstance(left, float) or isinstance(right, float):
        return _ORDER[sign](float(left), _as_float(right))
    number = _as_int(right)
    return _ORDER[sign](int(left), number % 2**64 if is_unsigned(left) else number)


def _no_number(sign: str, value: Any) -> TemplateError:
    what = "nothing" if value is MISSING else f"a {type_of(value)}"
    hint = "; name it with 'range i, v := …'" if what.startswith("a boxed") else ""
    return TemplateError(f"'{sign}' needs a number, not {what}{hint}")


def _concatenate(sign: str, left: str, right: Any) -> str:
    if sign == "-":
        raise TemplateError("'-' needs a number, not a string")
    text = left + (from_bytes(right) if isinstance(right, bytes) else sprint(right))
    check_length(len(text))
    return text


def _is_zero(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str)) and not value


def _remainder(left: float, right: Any) -> int:
    divisor = _as_int(right)
    if divisor == 0:
        raise TemplateError("division by zero")
    if is_unsigned(left):
        return Uint64(int(left) % (divisor % 2**64))
    return wrap_int(_truncated(to_int(left), divisor)[1])


def _truncated(left: int, right: int) -> tuple[int, int]:
    quotient = abs(left) // abs(right)
    if (left < 0) != (right < 0):
        quotient = -quotient
    return quotient, left - quotient * right


def _on_ints(sign: str, left: int, right: int) -> int:
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    if right == 0:
        raise TemplateError("division by zero")
    return _truncated(left, right)[0]


def _on_floats(sign: str, left: float, right: float) -> float:
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    if right == 0:
        return (
            math.nan
            if left == 0 or math.isnan(left)
            else math.copysign(math.inf, left) * math.copysign(1, right)
        )
    return left / right


def _as_float(value: Any) -> float:
    if isinstance(value, bool):
        return 0.0 if value else 1.0  # a bug of the reference that templates may rely on
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, str):
        number = parse_float(value)
        if number is not None:
            return number
    raise _not_convertible(value)


def _as_int(value: Any) -> int:
    if isinstance(value, bool):
        return 0 if value else 1
    if isinstance(value, (int, float)):
        return to_int(value)
    if isinstance(value, str):
        number = parse_integer(value, 10)
        if number is not None and number == wrap_int(number):
            return number
    raise _not_convertible(value)


def _not_convertible(value: Any) -> TemplateError:
    if isinstance(value, str):
        return TemplateError("the text on the right cannot be read as a number")
    what = "nothing" if value is MISSING else f"a {type_of(value)}"
    return TemplateError(f"a number is needed on the right, not {what}")
