"""Binary operators as closures. `evaluate.py` contains the operators that short-circuit or compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.allowance import size_of
from ccm_agent.templates.expr import operators
from ccm_agent.templates.expr.collections import is_nil
from ccm_agent.templates.expr.evaluation_errors import EvaluationError
from ccm_agent.templates.expr.frame import Frame, weight
from ccm_agent.templates.expr.nodes import Array, Binary, Constant, Node
from ccm_agent.templates.expr.operators import describe
from ccm_agent.templates.expr.static_types import INT
from ccm_agent.templates.values import clean_text, wrap_int

if TYPE_CHECKING:
    from ccm_agent.templates.regex import Pattern

Run = Callable[[Frame], Any]


def binary_operator(node: Binary, left: Run, right: Run) -> Run:
    """Return the closure of an operator; errors include the operator's place in the expression."""
    sign, offset = node.operator, node.offset
    if sign == "matches" and isinstance(node.right, Constant) and isinstance(node.right.value, str):
        return _matches_constant(left, node.right.value, offset)
    if sign == "in" and (texts := _literal_texts(node.right)):
        return _in_texts(left, texts, offset)
    is_integer = node.left.nature is not None and node.left.nature.type == INT.type
    if sign == "in" and is_integer and (bounds := literal_range(node.right)):
        return _in_range(left, *bounds, offset)
    with_frame = _WITH_FRAME.get(sign)
    if with_frame is not None:
        return _framed(with_frame, left, right, offset)
    return _plain(_PLAIN[sign], left, right, offset)


def _plain(operate: Callable[[Any, Any], Any], left: Run, right: Run, offset: int) -> Run:
    def run(frame: Frame) -> Any:
        a, b = left(frame), right(frame)
        try:
            return operate(a, b)
        except EvaluationError as fault:
            raise fault.at(offset) from None

    return run


def _framed(operate: Callable[[Frame, Any, Any], Any], left: Run, right: Run, offset: int) -> Run:
    def run(frame: Frame) -> Any:
        a, b = left(frame), right(frame)
        try:
            return operate(frame, a, b)
        except EvaluationError as fault:
            raise fault.at(offset) from None

    return run


def _add(frame: Frame, left: Any, right: Any) -> Any:
    if type(left) is str and type(right) is str:
        frame.write(size_of(left) + size_of(right))
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
            raise EvaluationError(f"{sign} goes between texts, and this is {describe(wrong)}")
        frame.spend(weight(left))
        return operate(left, right)

    return run


def _matches(frame: Frame, left: Any, right: Any) -> bool:
    from ccm_agent.templates.regex import PatternError, compile_pattern

    if is_nil(left) or is_nil(right):
        return False
    if type(right) is not str:
        raise EvaluationError(f"a pattern is text, and this is {describe(right)}")
    try:
        pattern = compile_pattern(right)
    except PatternError as err:
        raise EvaluationError(f"the pattern does not parse: {err}") from None
    frame.spend(pattern.size >> 4)
    return _match(frame, pattern, left)


def _match(frame: Frame, pattern: Pattern, value: Any) -> bool:
    if isinstance(value, bytes):
        value = clean_text(value.decode("utf-8", "replace"))
    elif type(value) is not str:
        raise EvaluationError(f"matches looks at text, not at {describe(value)}")
    frame.spend(len(value) * pattern.size >> 5)
    try:
        return pattern.matches(value)
    except TemplateError as err:
        raise EvaluationError(err.message) from None


def _matches_constant(left: Run, text: str, offset: int) -> Run:
    """
    Match a constant pattern. A compiled pattern can take 8 MiB, so the expression keeps only its text, and
    `compile_pattern` caches a few patterns.
    """
    from ccm_agent.templates.regex import compile_pattern

    def run(frame: Frame) -> bool:
        value = left(frame)
        if is_nil(value):
            return False
        try:
            return _match(frame, compile_pattern(text), value)
        except EvaluationError as fault:
            raise fault.at(offset) from None

    return run


def _literal_texts(node: Node) -> frozenset[str]:
    """Return the items of a list of literal texts; empty for any other list."""
    items = node.items if isinstance(node, Array) else []
    texts = [item.value for item in items if isinstance(item, Constant) and type(item.value) is str]
    return frozenset(texts) if len(texts) == len(items) else frozenset()


def _in_texts(left: Run, texts: frozenset[str], offset: int) -> Run:
    """
    Whether a text is in a list of literal texts. As in the reference, the left side must be text or nil,
    and nil is treated as "".
    """

    def run(frame: Frame) -> bool:
        try:
            return operators.text_key(left(frame)) in texts
        except EvaluationError as fault:
            raise fault.at(offset) from None

    return run


def literal_range(node: Node) -> tuple[int, int] | None:
    """Return the bounds of `a..b` if both are literals."""
    if not isinstance(node, Binary) or node.operator != "..":
        return None
    if not isinstance(node.left, Constant) or not isinstance(node.right, Constant):
        return None
    low, high = node.left.value, node.right.value
    return (low, high) if type(low) is int and type(high) is int else None


def _in_range(left: Run, low: int, high: int, offset: int) -> Run:
    """Whether an integer is in a range, without building the list."""

    def run(frame: Frame) -> bool:
        value = left(frame)
        if type(value) is int:
            return low <= value <= high
        try:
            return operators.contained(frame, value, _range(frame, low, high))
        except EvaluationError as fault:
            raise fault.at(offset) from None

    return run


def sum_of_range(low: int, high: int) -> int:
    """Return the sum of `low..high` without building the list."""
    return wrap_int((high - low + 1) * (low + high) // 2) if low <= high else 0


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
