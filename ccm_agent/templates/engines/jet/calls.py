"""The arguments of a Jet call: evaluated lazily, and converted to the parameter types of typed functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.gotypes import MISSING
from ccm_agent.templates.engines.jet import nodes
from ccm_agent.templates.engines.jet.values import Boxed, Function, to_int, type_of, unboxed
from ccm_agent.templates.values import from_bytes, is_number

if TYPE_CHECKING:
    from ccm_agent.templates.engines.jet.evaluate import Evaluator

NOT_PIPED = object()


class LazyArguments:
    """The arguments of a call to a lazy built-in: each is evaluated only when the built-in reads it."""

    def __init__(self, runtime: Evaluator, arguments: nodes.Arguments, piped: Any) -> None:
        self.runtime = runtime
        self._arguments = arguments
        self._piped = piped
        self._leading = piped is not NOT_PIPED and not arguments.has_slot

    def __len__(self) -> int:
        return len(self._arguments.expressions) + self._leading

    def value(self, index: int) -> Any:
        """The argument at a position; MISSING if there is none."""
        if self._leading:
            if index == 0:
                return self._piped
            index -= 1
        if index >= len(self._arguments.expressions):
            return MISSING
        return self.runtime.argument(self._arguments.expressions[index], self._piped)

    def is_set(self, index: int) -> bool:
        """Whether the argument at a position has a value; does not fail if it is missing."""
        if self._leading:
            if index == 0:
                return True
            index -= 1
        expression = self._arguments.expressions[index]
        if isinstance(expression, nodes.Underscore):
            return self._piped is not NOT_PIPED
        return self.runtime.expression_is_set(expression)

    def values(self) -> list[Any]:
        """All arguments."""
        return [self.value(index) for index in range(len(self))]


def converted(function: Function, call: LazyArguments) -> list[Any]:
    if len(call) != len(function.parameters):
        raise TemplateError(f"{function.name!r} takes {len(function.parameters)} arguments, not {len(call)}")
    return [
        _convert(function.name, wanted, value)
        for wanted, value in zip(function.parameters, call.values(), strict=True)
    ]


def _convert(name: str, wanted: str, value: Any) -> Any:
    if value is MISSING:
        raise TemplateError(f"{name!r} is given a missing value")
    if wanted == "any":
        return unboxed(value)
    if wanted == "int" and is_number(value):
        return to_int(value)
    if wanted == "string":
        if isinstance(value, str):
            return value
        if isinstance(value, bytes):
            return from_bytes(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return _rune(value)
    hint = "; name it with 'range i, v := …'" if isinstance(value, Boxed) else ""
    raise TemplateError(f"{name!r} needs a {wanted}, not a {type_of(value)}{hint}")


def _rune(number: int) -> str:
    """The character with this number: Go's conversion of an integer to text."""
    return chr(number) if 0 <= number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
