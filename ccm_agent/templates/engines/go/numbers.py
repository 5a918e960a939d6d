"""Number literals of Go templates."""

from __future__ import annotations

from ccm_agent.templates.engines.go.nodes import Number
from ccm_agent.templates.engines.gotypes import Complex
from ccm_agent.templates.engines.literals import parse_float, parse_integer, unquote_char
from ccm_agent.templates.values import INT_MAX, INT_MIN

_UINT_MAX = 2**64 - 1


def parse_number(text: str) -> Number | None:
    """
    Parse a number or character literal.

    Returns:
        The literal; None if it is malformed, or too large for every type. Its `value` is None for a whole
        number that does not fit into an int, which is an error only when it is used.
    """
    if text.startswith("'"):
        code = unquote_char(text)
        return None if code is None else Number(text, code, code, float(code))
    if text.endswith("i"):
        return _imaginary(text)
    integer = parse_integer(text)
    if integer is not None:
        if not INT_MIN <= integer <= _UINT_MAX:
            return None
        fits = integer if integer <= INT_MAX else None
        return Number(text, fits, fits, float(integer))
    decimal = parse_float(text)
    if decimal is None or not any(char in text for char in ".eEpP"):
        return None
    whole = int(decimal) if -(2.0**63) <= decimal < 2.0**63 and decimal.is_integer() else None
    return Number(text, decimal, whole, decimal)


def _imaginary(text: str) -> Number | None:
    split = max(text.rfind("+"), text.rfind("-"))
    if text[split - 1 : split] in ("e", "E", "p", "P"):
        split = max(text.rfind("+", 0, split), text.rfind("-", 0, split))
    real = _part(text[:split]) if split > 0 else 0.0
    imaginary = _part(text[max(split, 0) : -1])
    if real is None or imaginary is None:
        return None
    if imaginary == 0:
        whole = int(real) if real.is_integer() else None
        return Number(text, Complex(real, imaginary), whole, real)
    return Number(text, Complex(real, imaginary), None, None)


def _part(text: str) -> float | None:
    decimal = parse_float(text)
    if decimal is not None:
        return decimal
    integer = parse_integer(text)
    return None if integer is None else float(integer)
