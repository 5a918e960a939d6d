"""Evaluate Jet's expressions and pipelines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from ccm_agent.model.errors import TemplateError, TemplateLimitError
from ccm_agent.templates.engines.bounds import Budget, check_size
from ccm_agent.templates.engines.external import call_plain
from ccm_agent.templates.engines.gotypes import MISSING
from ccm_agent.templates.engines.jet import nodes
from ccm_agent.templates.engines.jet.calls import check_parameters, converted
from ccm_agent.templates.engines.jet.nodes import Expression, Template
from ccm_agent.templates.engines.jet.operators import arithmetic, negate, order
from ccm_agent.templates.engines.jet.scope import Scope
from ccm_agent.templates.engines.jet.values import (
    Function,
    PlainFunction,
    Writer,
    element,
    equal,
    is_function,
    is_set,
    is_true,
    member,
    plain,
    print_value,
    slice_value,
    to_int,
    type_of,
    unboxed,
)
from ccm_agent.templates.values import is_number

NOT_PIPED = object()


class Evaluator(ABC):
    """
    Evaluates expressions in a context and scope.

    Attributes:
        budget: The remaining limits of this render.
        context: The value of `.`.
        scope: Variables and blocks.
    """

    def __init__(self, scope: Scope, globals_: Mapping[str, Any], context: Any) -> None:
        self.budget = Budget()
        self.context = context
        self.scope = scope
        self._globals = globals_
        self._evaluators = {kind: getattr(self, name) for kind, name in _EXPRESSIONS.items()}

    @abstractmethod
    def write(self, text: str) -> None:
        """Add to the output."""

    @abstractmethod
    def aside(self, body: Callable[[], Any]) -> tuple[str, Any]:
        """Run a function with its output captured; return the output and the result."""

    @abstractmethod
    def find(self, path: str, asking: str = "/") -> Template:
        """Return the template at a path."""

    @abstractmethod
    def has_template(self, path: str) -> bool:
        """Whether there is a template at a path."""

    @abstractmethod
    def run_aside(self, template: Template, context: Any) -> Any:
        """Run another template inside this one, in a new scope; return its return value."""

    def evaluate(self, expression: Expression) -> Any:
        """Return the value of an expression."""
        return self._evaluators[type(expression)](expression)

    def _literal(self, node: nodes.Literal) -> Any:
        return node.value

    def resolve(self, name: str) -> Any:
        """
        Return the value of a name.

        Raises:
            TemplateError: The name is unknown.
        """
        if name == ".":
            return self.context
        scope = self.scope.holder(name)
        if scope is not None:
            return unboxed(scope.variables[name])
        if name in self._globals:
            return self._globals[name]
        raise TemplateError(f"name {name!r} is not known here: it is neither a variable nor a function")

    def knows(self, name: str) -> bool:
        """Whether a variable of this name is in scope."""
        return self.scope.holder(name) is not None

    def _name(self, node: nodes.Name) -> Any:
        return self.resolve(node.name)

    def _underscore(self, node: nodes.Underscore) -> Any:
        raise TemplateError(
            "'_' is not a value: in a call it marks the place of the piped value, in an assignment it discards a value"
        )

    def _field(self, node: nodes.Field) -> Any:
        value = self.context
        for name in node.names:
            value = member(value, name)
            if value is MISSING:
                raise TemplateError(f"'.{'.'.join(node.names)}': there is no member {name!r}")
        return value

    def _chain(self, node: nodes.Chain) -> Any:
        value = self.evaluate(node.base)
        for number, name in enumerate(node.names, 1):
            value = member(value, name)
            if value is MISSING and number < len(node.names):
                raise TemplateError(
                    f"there is no member {name!r}, so {node.names[number]!r} cannot be looked up in it"
                )
        return value

    def _index(self, node: nodes.Index) -> Any:
        return element(self.evaluate(node.base), self.evaluate(node.index))

    def _slice(self, node: nodes.Slice) -> Any:
        base = self.evaluate(node.base)
        start = 0 if node.start is None else self._bound(node.start)
        return slice_value(base, start, None if node.end is None else self._bound(node.end))

    def _bound(self, expression: Expression) -> int:
        value = self.evaluate(expression)
        if not is_number(value):
            raise TemplateError(f"a slice is bounded by numbers, not by a {type_of(value)}")
        return to_int(value)

    def _call_expression(self, node: nodes.Call) -> Any:
        function = self.evaluate(node.base)
        if not is_function(function):
            what = "nothing" if function is MISSING else f"a {type_of(function)}"
            raise TemplateError(f"{what} cannot be called: it is not a function")
        return self._call(function, node.arguments, NOT_PIPED)

    def _negative(self, node: nodes.Negative) -> Any:
        return negate(node.operator, self.evaluate(node.operand))

    def _binary(self, node: nodes.Binary) -> Any:
        sign = node.operator
        if sign == "&&":
            return is_true(self.evaluate(node.left)) and is_true(self.evaluate(node.right))
        if sign == "||":
            return is_true(self.evaluate(node.left)) or is_true(self.evaluate(node.right))
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        if sign == "==":
            return equal(left, right)
        if sign == "!=":
            return not equal(left, right)
        return order(sign, left, right) if sign in _ORDERS else arithmetic(sign, left, right)

    def _not(self, node: nodes.Not) -> bool:
        return not is_true(self.evaluate(node.operand))

    def _ternary(self, node: nodes.Ternary) -> Any:
        return self.evaluate(node.left if is_true(self.evaluate(node.condition)) else node.right)

    def expression_is_set(self, expression: Expression) -> bool:
        """
        Return the result of `isset` for an expression: names, members and elements can be missing;
        everything else is set.
        """
        try:
            if isinstance(expression, nodes.Index):
                return (
                    self.expression_is_set(expression.base)
                    and self.expression_is_set(expression.index)
                    and is_set(self.evaluate(expression))
                )
            if isinstance(expression, (nodes.Name, nodes.Field, nodes.Chain)):
                return is_set(self.evaluate(expression))
        except TemplateLimitError:
            raise
        except TemplateError:
            return False
        return True

    # -- pipelines and calls

    def _pipeline(self, commands: tuple[nodes.Command, ...]) -> Any:
        value = self._first_command(commands[0], last=len(commands) == 1)
        for number, command in enumerate(commands[1:], 2):
            value = self._piped_command(command, value, last=number == len(commands))
        return value

    def _first_command(self, command: nodes.Command, *, last: bool) -> Any:
        function = self.evaluate(command.base)
        if function is MISSING or command.arguments is None:
            return function
        if isinstance(function, Writer):
            return self._write_through(function, [], command.arguments, last=last)
        if not is_function(function):
            raise TemplateError(f"a {type_of(function)} cannot be called: it is not a function")
        return self._call(function, command.arguments, NOT_PIPED)

    def _piped_command(self, command: nodes.Command, value: Any, *, last: bool) -> Any:
        function = self.evaluate(command.base)
        arguments = command.arguments or nodes.Arguments()
        if isinstance(function, Writer):
            return self._write_through(function, [value], arguments, last=last)
        if not is_function(function):
            what = "nothing" if function is MISSING else f"a {type_of(function)}"
            raise TemplateError(f"a value can be piped into a function only, not into {what}")
        return self._call(function, arguments, value)

    def _write_through(
        self, writer: Writer, values: list[Any], arguments: nodes.Arguments, *, last: bool
    ) -> Any:
        if not last:
            raise TemplateError(f"{writer.name!r} writes to the output and must be the last in a pipeline")
        for value in [*values, *(self.evaluate(expression) for expression in arguments.expressions)]:
            if value is MISSING:
                raise TemplateError(f"{writer.name!r} has nothing to write: a member is missing")
            self.write(writer.escape(print_value(value)))
        return MISSING

    def _call(self, function: Any, arguments: nodes.Arguments, piped: Any) -> Any:
        self.budget.step()
        call = LazyArguments(self, arguments, piped)
        if isinstance(function, Function):
            check_parameters(function, len(call))
            result = function.call(*converted(function, call.values()))
        elif isinstance(function, PlainFunction):
            result = self._call_external(function, call)
        elif isinstance(function, Writer):
            raise TemplateError(f"{function.name!r} writes to the output: it cannot be part of an expression")
        else:
            result = function.call(call)
        check_size(result)
        return result

    def _call_external(self, function: PlainFunction, call: LazyArguments) -> Any:
        values = [plain(value) for value in call.values()]
        if any(value is MISSING for value in values):
            raise TemplateError(f"{function.name!r} is given a missing value")
        result = call_plain(function.name, function.call, values)
        return MISSING if result is None else result

    def argument(self, expression: Expression, piped: Any) -> Any:
        """Evaluate an argument; `_` is the piped value."""
        if not isinstance(expression, nodes.Underscore):
            return self.evaluate(expression)
        if piped is NOT_PIPED:
            raise TemplateError("'_' marks the place of a piped value, but no value is piped into this call")
        return piped


class LazyArguments:
    """The arguments of a call to a lazy built-in. Each is evaluated only when the built-in reads it."""

    def __init__(self, runtime: Evaluator, arguments: nodes.Arguments, piped: Any) -> None:
        self.runtime = runtime
        self._arguments = arguments
        self._piped = piped
        self._leading = piped is not NOT_PIPED and not arguments.has_slot

    def __len__(self) -> int:
        return len(self._arguments.expressions) + self._leading

    def value(self, index: int) -> Any:
        """Return the argument at a position; MISSING if there is none."""
        if self._leading:
            if index == 0:
                return self._piped
            index -= 1
        if index >= len(self._arguments.expressions):
            return MISSING
        return self.runtime.argument(self._arguments.expressions[index], self._piped)

    def is_set(self, index: int) -> bool:
        """Whether the argument at a position has a value. Does not fail if it is missing."""
        if self._leading:
            if index == 0:
                return True
            index -= 1
        expression = self._arguments.expressions[index]
        if isinstance(expression, nodes.Underscore):
            return self._piped is not NOT_PIPED
        return self.runtime.expression_is_set(expression)

    def values(self) -> list[Any]:
        """Return all arguments."""
        return [self.value(index) for index in range(len(self))]


_ORDERS = frozenset(("<", "<=", ">", ">="))

_EXPRESSIONS: dict[type, str] = {
    nodes.Literal: "_literal",
    nodes.Name: "_name",
    nodes.Underscore: "_underscore",
    nodes.Field: "_field",
    nodes.Chain: "_chain",
    nodes.Index: "_index",
    nodes.Slice: "_slice",
    nodes.Call: "_call_expression",
    nodes.Negative: "_negative",
    nodes.Binary: "_binary",
    nodes.Not: "_not",
    nodes.Ternary: "_ternary",
}
