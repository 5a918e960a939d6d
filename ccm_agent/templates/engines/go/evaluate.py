"""Runs a parsed Go template."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ccm_agent.model.errors import Place, TemplateError, TemplateLimitError
from ccm_agent.model.gathered import GatheredRecord
from ccm_agent.templates.engines.bounds import Budget, check_count, check_size, errors_with_place
from ccm_agent.templates.engines.go import nodes
from ccm_agent.templates.engines.go.methods import method
from ccm_agent.templates.engines.go.nodes import Argument, Body, Pipeline, Template
from ccm_agent.templates.engines.go.signature import (
    FunctionSignature,
    is_true,
    of_literal,
    of_nil,
    of_value,
    read_signature,
)
from ccm_agent.templates.engines.gotypes import MISSING, field_of, go_type
from ccm_agent.templates.engines.nodes import Text
from ccm_agent.templates.goprint import go_print, sorted_keys

_NO_VALUE = "<no value>"
_NOT_PIPED = object()

# how a body ended: normally, or by an action that ends an iteration of a range
_DONE, _CONTINUE, _BREAK = range(3)


class GoRuntime:
    """One run of one template."""

    def __init__(self, template: Template, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._template = template
        self._functions = functions
        self._budget = Budget()
        self._variables: list[tuple[str, Any]] = []
        self._out: list[str] = []
        self._line = 0
        self._runners = {kind: getattr(self, name) for kind, name in _STATEMENTS.items()}

    def render(self, context: Any) -> str:
        """
        Run the template with a context.

        Raises:
            TemplateError: The template fails; the error includes the line.
        """
        self._variables = [("$", context)]
        with errors_with_place(self._place):
            self._run(self._template.bodies[self._template.name], context)
        return "".join(self._out)

    def _place(self) -> Place:
        return Place(source=self._template.name, line=self._line)

    def _write(self, text: str) -> None:
        self._budget.write(len(text))
        self._out.append(text)

    # -- statements

    def _run(self, body: Body, dot: Any) -> int:
        for statement in body:
            if type(statement) is Text:
                self._write(statement.text)
                continue
            self._budget.step()
            self._line = statement.line
            ended: int = self._runners[type(statement)](statement, dot)
            if ended != _DONE:
                return ended
        return _DONE

    def _action(self, node: nodes.Action, dot: Any) -> int:
        value = self._pipeline(node.pipeline, dot)
        if not node.pipeline.variables:
            self._write(_NO_VALUE if value is MISSING else _printed(value))
        return _DONE

    def _if(self, node: nodes.If, dot: Any) -> int:
        known = len(self._variables)
        taken = is_true(self._pipeline(node.pipeline, dot))
        ended = self._run(node.body if taken else node.otherwise, dot)
        del self._variables[known:]
        return ended

    def _with(self, node: nodes.With, dot: Any) -> int:
        known = len(self._variables)
        value = self._pipeline(node.pipeline, dot)
        ended = self._run(node.body, value) if is_true(value) else self._run(node.otherwise, dot)
        del self._variables[known:]
        return ended

    def _range(self, node: nodes.Range, dot: Any) -> int:
        known = len(self._variables)
        source = self._pipeline(node.pipeline, dot)
        inner = len(self._variables)
        ended = _DONE
        empty = True
        for key, value in _items(source, len(node.pipeline.variables)):
            empty = False
            self._budget.step()
            self._set_range_variables(node.pipeline, inner, key, value)
            ended = self._run(node.body, value)
            del self._variables[inner:]
            if ended == _BREAK:
                break
        if empty:
            ended = self._run(node.otherwise, dot)
            del self._variables[known:]
            return ended
        del self._variables[known:]
        return _DONE

    def _set_range_variables(self, pipeline: Pipeline, top: int, key: Any, value: Any) -> None:
        names = pipeline.variables
        parts = (key, value) if len(names) == 2 else (value,)
        if pipeline.assigns:
            for name, part in zip(names, parts, strict=False):
                self._assign(name, part)
            return
        for index, name in enumerate(names):
            self._variables[top - len(names) + index] = (name, parts[index])

    def _include(self, node: nodes.Include, dot: Any) -> int:
        body = self._template.bodies.get(node.name)
        if body is None:
            raise TemplateError(f"template {node.name!r} is not defined")
        context = MISSING if node.pipeline is None else self._pipeline(node.pipeline, dot)
        self._budget.enter()
        outer, self._variables = self._variables, [("$", context)]
        self._run(body, context)
        self._variables = outer
        self._budget.leave()
        return _DONE

    def _break(self, node: nodes.Break, dot: Any) -> int:
        return _BREAK

    def _continue(self, node: nodes.Continue, dot: Any) -> int:
        return _CONTINUE

    # -- variables

    def _variable(self, name: str) -> Any:
        for known, value in reversed(self._variables):
            if known == name:
                return value
        raise TemplateError(f"variable {name!r} has no value here: no assignment ran before")

    def _assign(self, name: str, value: Any) -> None:
        for index in range(len(self._variables) - 1, -1, -1):
            if self._variables[index][0] == name:
                self._variables[index] = (name, value)
                return
        raise TemplateError(f"variable {name!r} does not exist yet: make it with ':='")

    # -- pipelines

    def _pipeline(self, pipeline: Pipeline, dot: Any) -> Any:
        """Evaluate a pipeline and set its variables; nil becomes MISSING."""
        value: Any = _NOT_PIPED
        for command in pipeline.commands:
            value = self._command(command, dot, value)
            if value is None:
                value = MISSING
        for name in pipeline.variables:
            if pipeline.assigns:
                self._assign(name, value)
            else:
                self._variables.append((name, value))
        return value

    def _command(self, command: tuple[Argument, ...], dot: Any, piped: Any) -> Any:
        first = command[0]
        if isinstance(first, nodes.Identifier):
            return self._call(first.name, command[1:], dot, piped)
        has_arguments = len(command) > 1 or piped is not _NOT_PIPED
        if isinstance(first, (nodes.Field, nodes.Variable, nodes.Chain)):
            base, names = self._base(first, dot)
            if not names and has_arguments:
                raise TemplateError("a variable is not a function: it takes no arguments")
            return self._fields(base, names, command[1:], dot, piped)
        if has_arguments:
            raise TemplateError("a value is not a function: it takes no arguments")
        if isinstance(first, Pipeline):
            return self._pipeline(first, dot)
        if isinstance(first, nodes.Dot):
            return dot
        if isinstance(first, nodes.Nil):
            raise TemplateError("'nil' is only allowed as an argument")
        return of_literal(first, "any")

    def _base(
        self, node: nodes.Field | nodes.Variable | nodes.Chain, dot: Any
    ) -> tuple[Any, tuple[str, ...]]:
        """Return the value in which a node's fields are looked up, and the names of the fields."""
        if isinstance(node, nodes.Field):
            return dot, node.names
        if isinstance(node, nodes.Variable):
            return self._variable(node.name), node.names
        if isinstance(node.base, Pipeline):
            return self._pipeline(node.base, dot), node.names
        if isinstance(node.base, nodes.Identifier):
            return self._call(node.base.name, (), dot, _NOT_PIPED), node.names
        raise TemplateError("'nil' has no fields")

    def _fields(
        self, base: Any, names: tuple[str, ...], arguments: tuple[Argument, ...], dot: Any, piped: Any
    ) -> Any:
        value = base
        for number, name in enumerate(names, 1):
            if number == len(names):
                return self._field(value, name, arguments, dot, piped)
            value = self._field(value, name, (), dot, _NOT_PIPED)
        return value

    def _field(self, value: Any, name: str, arguments: tuple[Argument, ...], dot: Any, piped: Any) -> Any:
        if value is MISSING:
            return MISSING
        if value is None:
            raise TemplateError(f"field {name!r} cannot be looked up: the value before it is null")
        if isinstance(value, dict):
            if arguments or piped is not _NOT_PIPED:
                raise TemplateError(f"field {name!r} is not a function: it takes no arguments")
            return field_of(value, name) if isinstance(value, GatheredRecord) else value.get(name, MISSING)
        found = method(value, name)
        if found is None:
            raise TemplateError(f"field {name!r} cannot be looked up in a {go_type(value)}")
        return self._apply(name, found, read_signature(found), arguments, dot, piped)

    # -- calls

    def _call(self, name: str, arguments: tuple[Argument, ...], dot: Any, piped: Any) -> Any:
        self._budget.step()
        if name in ("and", "or"):
            return self._logic(name, arguments, dot, piped)
        function = self._functions[name]
        return self._apply(name, function, read_signature(function), arguments, dot, piped)

    def _logic(self, name: str, arguments: tuple[Argument, ...], dot: Any, piped: Any) -> Any:
        """
        Evaluate `and` or `or`: return the first argument that decides, or the last. Later arguments are not
        evaluated.
        """
        FunctionSignature(("value",), "value").check_count(name, len(arguments) + (piped is not _NOT_PIPED))
        value: Any = MISSING
        for argument in arguments:
            value = self._argument(argument, "value", dot)
            if is_true(value) == (name == "or"):
                return value
        return value if piped is _NOT_PIPED else piped

    def _apply(
        self,
        name: str,
        function: Callable[..., Any],
        signature: FunctionSignature,
        arguments: tuple[Argument, ...],
        dot: Any,
        piped: Any,
    ) -> Any:
        count = len(arguments) + (piped is not _NOT_PIPED)
        signature.check_count(name, count)
        try:
            values = [
                self._argument(argument, signature.kind(index), dot)
                for index, argument in enumerate(arguments)
            ]
            if piped is not _NOT_PIPED:
                values.append(of_value(piped, signature.kind(count - 1)))
            result = function(*values)
        except TemplateError as err:
            if (
                isinstance(err, TemplateLimitError)
                or err.place is not None
                or err.message.startswith(f"{name!r}")
            ):
                raise
            raise TemplateError(f"{name!r}: {err.message}") from err
        check_size(result)
        return result

    def _argument(self, node: Argument, kind: str, dot: Any) -> Any:
        if isinstance(node, (nodes.Bool, nodes.Number, nodes.String)):
            return of_literal(node, kind)
        if isinstance(node, nodes.Nil):
            return of_nil(kind)
        return of_value(self._value(node, dot), kind)

    def _value(self, node: Argument, dot: Any) -> Any:
        if isinstance(node, nodes.Dot):
            return dot
        if isinstance(node, Pipeline):
            return self._pipeline(node, dot)
        if isinstance(node, nodes.Identifier):
            return self._call(node.name, (), dot, _NOT_PIPED)
        assert isinstance(node, (nodes.Field, nodes.Variable, nodes.Chain))
        base, names = self._base(node, dot)
        return self._fields(base, names, (), dot, _NOT_PIPED)


_STATEMENTS: dict[type, str] = {
    nodes.Action: "_action",
    nodes.If: "_if",
    nodes.With: "_with",
    nodes.Range: "_range",
    nodes.Include: "_include",
    nodes.Break: "_break",
    nodes.Continue: "_continue",
}


def _printed(value: Any) -> str:
    if callable(value):
        raise TemplateError("a function cannot be printed; is it missing its arguments?")
    return go_print(value)


def _items(source: Any, names: int) -> Iterable[tuple[Any, Any]]:
    """Return the items of a range: index or key, and value; maps are sorted by key."""
    if source is None or source is MISSING:
        return ()
    if isinstance(source, dict):
        return [(key, source[key]) for key in sorted_keys(source)]
    if isinstance(source, (list, tuple, bytes)):
        return list(enumerate(source))
    if isinstance(source, int) and not isinstance(source, bool):
        if names > 1:
            raise TemplateError("a range over a number has one variable")
        check_count(source)
        kind = type(source)
        return ((MISSING, kind(number)) for number in range(source))
    raise TemplateError(f"range goes over lists, maps and whole numbers, not over a {go_type(source)}")
