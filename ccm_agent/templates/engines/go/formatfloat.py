"""
Format floats like Go's `strconv.FormatFloat`: %e, %f, %g, hexadecimal and binary.

Source: the documentation of Go's packages strconv and fmt.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Context, Decimal

from ccm_agent.templates.values import float_digits, plain_digits

# more decimals than any float has; all further decimals are zero
_DECIMALS_MAX = 1_100


def format_float(value: float, letter: str, precision: int | None, *, sharp: bool = False) -> str:
    """
    Format a float.

    Args:
        value: The float.
        letter: `e`, `E`, `f`, `g`, `G`, `x`, `X` or `b`.
        precision: The number of decimals, or of significant digits for `g`; None for the shortest form that
            parses to the same float.
        sharp: Whether to keep the decimal point, and for `g` the zeros after it.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign = "-" if math.copysign(1, value) < 0 else ""
    if letter in "xX":
        text = _hexadecimal(abs(value), precision)
        return sign + (text.upper() if letter == "X" else text)
    if letter == "b":
        mantissa, exponent = _mantissa(abs(value))
        return f"{sign}{mantissa}p{exponent:+d}"
    form = {"e": _scientific, "f": _fixed, "g": _general}[letter.lower()]
    text = form(abs(value), precision, sharp)
    return sign + (text.upper() if letter in "EG" else text)


def _scientific(value: float, precision: int | None, sharp: bool) -> str:
    if precision is None:
        _, digits, point = float_digits(value)
    else:
        digits, point = _rounded(value, precision + 1)
        digits = digits.ljust(precision + 1, "0")
    return _with_exponent(digits, point - 1 if value else 0, sharp)


def _with_exponent(digits: str, exponent: int, sharp: bool) -> str:
    fraction = f".{digits[1:]}" if len(digits) > 1 or sharp else ""
    return f"{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _fixed(value: float, precision: int | None, sharp: bool) -> str:
    if precision is None:
        _, digits, point = float_digits(value)
        text = plain_digits(digits, point)
    else:
        text = f"{Decimal(value):.{min(precision, _DECIMALS_MAX)}f}"
        text += "0" * max(precision - _DECIMALS_MAX, 0)
    return text + "." if sharp and "." not in text else text


def _general(value: float, precision: int | None, sharp: bool) -> str:
    if precision is None:
        _, digits, point = float_digits(value)
        limit = 6
    else:
        precision = precision or 1
        digits, point = _rounded(value, precision)
        digits = digits.rstrip("0") or "0"
        limit = len(digits) if precision > len(digits) >= point else precision
    wanted = 6 if precision is None else precision
    if sharp:
        digits = digits.ljust(min(wanted, _DECIMALS_MAX), "0")
    exponent = point - 1 if value else 0
    if exponent < -4 or exponent >= limit:
        return _with_exponent(digits, exponent, sharp)
    text = plain_digits(digits, point)
    return text + "." if sharp and "." not in text else text


def _rounded(value: float, count: int) -> tuple[str, int]:
    """Return the digits of a float, rounded to a number of digits, and the position of the decimal point."""
    if value == 0:
        return "0", 1
    number = Decimal(value)
    kept = min(count, _DECIMALS_MAX)
    rounded = Context(prec=kept, rounding=ROUND_HALF_EVEN).plus(number)
    _, digits, exponent = rounded.as_tuple()
    text = "".join(map(str, digits))
    return text, len(text) + int(exponent)


def _mantissa(value: float) -> tuple[int, int]:
    """Split a float into an integer of at most 53 bits and a power of two."""
    exponent = max(math.frexp(value)[1] - 53, -1074) if value else -1074
    return int(math.ldexp(value, -exponent)), exponent


def _hexadecimal(value: float, precision: int | None) -> str:
    if value == 0:
        digits = "" if not precision else "." + "0" * min(precision, _DECIMALS_MAX)
        return f"0x0{digits}p+00"
    fraction, exponent = math.frexp(value)
    bits = int(math.ldexp(fraction, 53))  # 1.xxx with 52 bits after the point
    exponent -= 1
    if precision is not None and precision < 13:
        drop = 52 - 4 * precision
        half, rest = 1 << (drop - 1), bits & ((1 << drop) - 1)
        bits >>= drop
        bits += rest > half or (rest == half and bits & 1 == 1)
        bits <<= drop
        if bits >> 53:
            bits >>= 1
            exponent += 1
    digits = f"{bits & ((1 << 52) - 1):013x}"
    digits = (
        digits.rstrip("0")
        if precision is None
        else digits.ljust(min(precision, _DECIMALS_MAX), "0")[:precision]
    )
    return f"0x1{'.' + digits if digits else ''}p{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
