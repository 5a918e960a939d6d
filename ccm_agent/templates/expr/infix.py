"""Operators between two values, as closures; those that short-cut or compare are `evaluate.py`'s own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ccm_agent.templates.expr import operators
from ccm_agent.templates.expr.collections import is_nil
from ccm_agent.templates.expr.faults import Fault
from ccm_agent.templates.expr.frame import Frame, weight
from ccm_agent.templates.expr.nodes import Binary, Constant
from ccm_agent.templates.expr.operators import describe
from ccm_agent.templates.expr.optimize import TextSet
from ccm_agent.templates.values import clean_text

Run = Callable[[Frame], Any]


def infix(node: Binary, left: Run, right: Run) -> Run:
    """The closure of an operator, with its place for what goes wrong."""
    sign, offset = node.operator, node.offset
    if isinstance(node.right, Constant):
        if sign == "matches" and isinstance(node.right.value, str):
            return _matches_constant(left, node.right.value, offset)
        if sign == "in" and isinstance(node.right.value, TextSet):
            return _in_texts(left, node.right.value, offset)
    with_frame = _WITH_FRAME.get(sign)
    if with_frame is not None:
        return _framed(with_frame, left, right, offset)
    return _plain(_PLAIN[sign], left, right, offset)


def _plain(operate: Callable[[Any, Any], Any], left: Run, right: Run, offset: int) -> Run:
    def run(frame: Frame) -> Any:
        a, b = left(frame), right(frame)
        try:
            return operate(a, b)
        except Fault as fault:
            raise fault.at(offset) from None

    return run


def _framed(operate: Callable[[Frame, Any, Any], Any], left: Run, right: Run, offset: int) -> Run:
    def run(frame: Frame) -> Any:
        a, b = left(frame), right(frame)
        try:
            return operate(frame, a, b)
        except Fault as fault:
            raise fault.at(offset) from None

    return run


def _add(frame: Frame, left: Any, right: Any) -> Any:
    if type(left) is str and type(right) is str:
        frame.write(len(left) + len(right))
        return left + right
    return operators.add(left, right)


def _range(frame: Frame, left: Any, right: Any) -> list[int]:
    low, high = operators.to_int(left), operators.to_int(right)
    if high < low:
        return []
    frame.grow(high - low + 1)
    return list(range(low, high + 1))


def _texts(operate: Callable[[str, str], bool], sign: str) -> Callable[[Frame, Any, Any], bool]:
    def run(frame: Frame, left: Any, right: Any) -> bool:
        if is_nil(left) or is_nil(right):
            return False
        if type(left) is not str or type(right) is not str:
            wrong = left if type(left) is not str else right
            raise Fault(f"{sign} goes between texts, and this is {describe(wrong)}")
        frame.spend(weight(left))
        return operate(left, right)

    return run


def _matches(frame: Frame, left: Any, right: Any) -> bool:
    from ccm_agent.templates.regex import PatternError, compile_pattern

    if is_nil(left) or is_nil(right):
        return False
    if type(right) is not str:
        raise Fault(f"a pattern is text, and this is {describe(right)}")
    try:
        pattern = compile_pattern(right)
    except PatternError as err:
        raise Fault(f"the pattern does not parse: {err}") from None
    return _match(frame, pattern.matches, left)


def _match(frame: Frame, matches: Callable[[str], bool], value: Any) -> bool:
    if isinstance(value, bytes):
        value = clean_text(value.decode("utf-8", "replace"))
    elif type(value) is not str:
        raise Fault(f"matches looks at text, not at {describe(value)}")
    frame.spend(len(value) >> 3)
    return matches(value)


def _matches_constant(left: Run, text: str, offset: int) -> Run:
    from ccm_agent.templates.regex import compile_pattern

    matches = compile_pattern(text).matches

    def run(frame: Frame) -> bool:
        value = left(frame)
        if is_nil(value):
            return False
        try:
            return _match(frame, matches, value)
        except Fault as fault:
            raise fault.at(offset) from None

    return run


def _in_texts(left: Run, texts: TextSet, offset: int) -> Run:
    def run(frame: Frame) -> bool:
        try:
            return operators.text_key(left(frame)) in texts
        except Fault as fault:
            raise fault.at(offset) from None

    return run


_PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    "<": operators.less,
    ">": operators.more,
    "<=": operators.less_or_equal,
    ">=": operators.more_or_equal,
    "-": operators.subtract,
    "*": operators.multiply,
    "/": operators.divide,
    "%": operators.modulo,
    "**": operators.power,
    "^": operators.power,
}
_WITH_FRAME: dict[str, Callable[[Frame, Any, Any], Any]] = {
    "+": _add,
    "..": _range,
    "in": operators.contained,
    "matches": _matches,
    "contains": _texts(lambda text, part: part in text, "contains"),
    "startsWith": _texts(str.startswith, "startsWith"),
    "endsWith": _texts(str.endswith, "endsWith"),
}
