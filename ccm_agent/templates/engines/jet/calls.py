"""The arguments of a Jet call: evaluated when asked for, and converted to what a typed function takes."""

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
    """The arguments of a call to a built-in that looks at them itself: evaluated when they are asked for, and only then."""

    def __init__(self, runtime: Evaluator, arguments: nodes.Arguments, piped: Any) -> None:
        self.runtime = runtime
        self._arguments = arguments
        self._piped = piped
        self._leading = piped is not NOT_PIPED and not arguments.has_slot

    def __len__(self) -> int:
        return len(self._arguments.expressions) + self._leading

    def value(self, index: int) -> Any:
        """The argument at a place; MISSING when there is none."""
        if self._leading:
            if index == 0:
                return self._piped
            index -= 1
        if index >= len(self._arguments.expressions):
            return MISSING
        return self.runtime.argument(self._arguments.expressions[index], self._piped)

    def is_set(self, index: int) -> bool:
        """Whether the argument at a place is something, without failing where it is not."""
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
        raise TemplateError(f"{name!r} is given a value that is not there")
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
    """The character of a number: what Go makes of an integer where text is wanted."""
    return chr(number) if 0 <= number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
