"""Runs a parsed Jet template."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ccm_agent.model.errors import CcmError, Place, TemplateError, TemplateLimitError
from ccm_agent.templates.engines.bounds import errors_with_place
from ccm_agent.templates.engines.gotypes import MISSING, TypedList, Uint8
from ccm_agent.templates.engines.jet import nodes
from ccm_agent.templates.engines.jet.evaluate import Evaluator
from ccm_agent.templates.engines.jet.nodes import Body, Expression, Template
from ccm_agent.templates.engines.jet.scope import Scope
from ccm_agent.templates.engines.jet.values import (
    Caught,
    Ints,
    boxed,
    is_true,
    member,
    print_value,
    type_of,
    unboxed,
)
from ccm_agent.templates.engines.nodes import Marker, Text
from ccm_agent.templates.goprint import sorted_keys
from ccm_agent.templates.values import StringMap


class JetRuntime(Evaluator):
    """One run of one template: its output, the value of `.` and the variables."""

    def __init__(
        self,
        template: Template,
        variables: Mapping[str, Any],
        globals_: Mapping[str, Any],
        context: Any,
        find: Callable[[str, str], Template | None],
    ) -> None:
        """
        Args:
            template: The template to run.
            variables: The variables of the template.
            globals_: Functions; variables can shadow them.
            context: The value of `.`.
            find: Returns a template by its path and the name of the including template; None if there is none.
        """
        super().__init__(Scope(None, template.blocks, dict(variables)), globals_, context)
        self._find = find
        self._content: Callable[[Expression | None], None] | None = None
        self._out: list[str] = []
        self._place = Place(source=template.name)
        self._runners = {kind: getattr(self, name) for kind, name in _STATEMENTS.items()}

    def render(self, template: Template) -> str:
        """
        Run the template and return its output.

        Raises:
            TemplateError: The template fails; the error includes the line.
        """
        with errors_with_place(lambda: self._place):
            self.run_template(template)
        return "".join(self._out)

    def run_template(self, template: Template) -> Any:
        """Run a template, or the template that it extends; return its return value."""
        blocks = template.blocks
        source = self._place
        root = self._outermost(template)
        self.scope.blocks = blocks
        self._place = Place(source=root.name)
        returned = self.run(root.body)
        self._place = source
        return returned

    def _outermost(self, template: Template) -> Template:
        for _ in range(100):
            if not template.extends:
                return template
            template = self.find(template.extends, template.name)
        raise TemplateError(f"{template.name!r} extends itself", place=self._place)

    def find(self, path: str, asking: str = "/") -> Template:
        """
        Return the template at a path.

        Raises:
            TemplateError: There is no such template.
        """
        found = self._find(path, asking)
        if found is None:
            raise TemplateError(f"template {path!r} does not exist")
        return found

    def has_template(self, path: str) -> bool:
        """Whether there is a template at a path."""
        return self._find(path, "/") is not None

    def write(self, text: str) -> None:
        """Add to the output."""
        self.budget.write(len(text))
        self._out.append(text)

    def aside(self, body: Callable[[], Any]) -> tuple[str, Any]:
        """Run a function with its output captured; return the output and the result."""
        outer, self._out = self._out, []
        try:
            result = body()
            return "".join(self._out), result
        finally:
            self._out = outer

    # -- statements

    def run(self, body: Body) -> Any:
        """Run statements. Return the return value of the last one, MISSING if it has no `return`."""
        outer = self.scope
        returned: Any = MISSING
        try:
            for statement in body:
                if type(statement) is Text:
                    self.write(statement.text)
                    continue
                self.budget.step()
                if statement.line != self._place.line:
                    self._place = Place(source=self._place.source, line=statement.line)
                if self.scope is outer and _declares(statement):
                    self._push()
                result = self._runners[type(statement)](statement)
                if type(statement) in _RETURNING:
                    returned = result
        finally:
            self.scope = outer
        return returned

    def _push(self) -> Scope:
        self.scope = Scope(self.scope, self.scope.blocks)
        return self.scope

    def _action(self, action: nodes.Action) -> None:
        if action.assign is not None:
            self._assign(action.assign)
        if action.pipeline:
            value = self._pipeline(action.pipeline)
            if value is not MISSING:
                self.write(print_value(value))

    def _if(self, node: nodes.If) -> Any:
        outer = self.scope
        if node.assign is not None:
            if node.assign.declares:
                self._push()
            self._assign(node.assign)
        returned = self.run(node.body if is_true(self.evaluate(node.condition)) else node.otherwise)
        self.scope = outer
        return returned

    def _range(self, node: nodes.Range) -> Any:
        outer, context = self.scope, self.context
        source = self.evaluate(node.source)
        names = node.assign.targets if node.assign is not None else ()
        if node.assign is not None and node.assign.declares:
            self._push()
        returned: Any = MISSING
        empty = True
        for key, value in _items(source):
            empty = False
            self.budget.step()
            if node.assign is not None:
                for target, part in zip(names, (key, value), strict=False):
                    self._set(target, part, declares=node.assign.declares)
            if len(names) < 2:
                self.context = value
            returned = self.run(node.body)
            if returned is not MISSING:
                break
        if empty:
            returned = self.run(node.otherwise)
        self.scope, self.context = outer, context
        return returned

    def _try(self, node: nodes.Try) -> Any:
        before = self.scope, self.context, self._content, self._place, self.budget.depth
        try:
            text, returned = self.aside(lambda: self.run(node.body))
        except TemplateLimitError:
            raise
        except (CcmError, RecursionError) as err:
            self.scope, self.context, self._content, self._place, self.budget.depth = before
            return self._catch(node.catch, err)
        self._out.append(text)
        return returned

    def _catch(self, catch: nodes.Catch | None, err: BaseException) -> Any:
        if catch is None:
            return MISSING
        outer = self.scope
        if catch.name:
            self._push().variables[catch.name] = Caught(str(err))
        returned = self.run(catch.body)
        self.scope = outer
        return returned

    def _block(self, node: nodes.Block) -> None:
        block = self.scope.block(node.name) or node
        self._run_block(block, block.parameters, block.context, block.content)

    def _yield(self, node: nodes.Yield) -> None:
        if not node.name:
            if self._content is not None:
                self._content(node.context)
            return
        block = self.scope.block(node.name)
        if block is None:
            raise TemplateError(f"block {node.name!r} is not defined")
        self._run_block(block, node.parameters, node.context, node.content)

    def _run_block(
        self,
        block: nodes.Block,
        given: tuple[nodes.Parameter, ...],
        context: Expression | None,
        content: Body | None,
    ) -> None:
        self.budget.enter()
        outer, outer_content, place = self.scope, self._content, self._place
        if block.parameters or given:
            self._bind(block, given)
        if content is not None:
            self._content = self._content_runner(content, self.scope, outer_content)
        self._in_context(block.body, context)
        self.scope, self._content, self._place = outer, outer_content, place
        self.budget.leave()

    def _bind(self, block: nodes.Block, given: tuple[nodes.Parameter, ...]) -> None:
        variables = self._push().variables
        for parameter in given:
            if parameter.value is None:
                raise TemplateError(f"block {block.name!r}: parameter {parameter.name!r} has no value")
            variables[parameter.name] = self.evaluate(parameter.value)
        for parameter in block.parameters:
            if parameter.name not in variables:
                variables[parameter.name] = (
                    False if parameter.value is None else self.evaluate(parameter.value)
                )

    def _content_runner(
        self, content: Body, scope: Scope, outer: Callable[[Expression | None], None] | None
    ) -> Callable[[Expression | None], None]:
        def run(context: Expression | None) -> None:
            self.budget.enter()
            inner, inner_content = self.scope, self._content
            self.scope, self._content = scope, outer
            self._in_context(content, context)
            self.scope, self._content = inner, inner_content
            self.budget.leave()

        return run

    def _in_context(self, body: Body, context: Expression | None) -> None:
        outer = self.context
        if context is not None:
            self.context = self.evaluate(context)
        self.run(body)
        self.context = outer

    def _include(self, node: nodes.Include) -> Any:
        path = unboxed(self.evaluate(node.name))
        if not isinstance(path, str):
            raise TemplateError(f"include needs a path, not a {type_of(path)}")
        template = self.find(path, self._place.source)
        context = self.context if node.context is None else self.evaluate(node.context)
        return self.run_aside(template, context)

    def run_aside(self, template: Template, context: Any) -> Any:
        """Run another template inside this one, in a new scope; return its return value."""
        self.budget.enter()
        scope, outer, place = self.scope, self.context, self._place
        self._push()
        self.context = context
        returned = self.run_template(template)
        self.scope, self.context, self._place = scope, outer, place
        self.budget.leave()
        return returned

    def _return(self, node: nodes.Return) -> Any:
        return self.evaluate(node.value)

    def _nothing(self, node: nodes.Statement) -> None:
        """Skip an `else` or `catch` without a matching statement."""

    # -- assignments

    def _assign(self, assign: nodes.Assign) -> None:
        if assign.with_ok:
            value = self.evaluate(assign.values[0])
            self._set(assign.targets[0], value, declares=assign.declares)
            self._set(assign.targets[1], value is not MISSING, declares=assign.declares)
            return
        for target, expression in zip(assign.targets, assign.values, strict=False):
            self._set(target, self.evaluate(expression), declares=assign.declares)

    def _set(self, target: nodes.Target, value: Any, *, declares: bool) -> None:
        if isinstance(target, nodes.Underscore):
            return
        if isinstance(target, nodes.Name):
            scope = self.scope if declares else self.scope.holder(target.name)
            if scope is None:
                raise TemplateError(f"variable {target.name!r} does not exist yet: make it with ':='")
            scope.variables[target.name] = unboxed(value)
            return
        holder = self.context if isinstance(target, nodes.Field) else self.evaluate(target.base)
        for name in target.names[:-1]:
            holder = member(holder, name)
        holder = unboxed(holder)
        if not isinstance(holder, dict):
            raise TemplateError(f"member {target.names[-1]!r} cannot be set in a {type_of(holder)}")
        if value is MISSING:
            holder.pop(target.names[-1], None)
        else:
            holder[target.names[-1]] = unboxed(value)


_STATEMENTS: dict[type, str] = {
    nodes.Action: "_action",
    nodes.If: "_if",
    nodes.Range: "_range",
    nodes.Try: "_try",
    nodes.Catch: "_nothing",
    nodes.Block: "_block",
    nodes.Yield: "_yield",
    nodes.Include: "_include",
    nodes.Return: "_return",
    Marker: "_nothing",
}

_RETURNING = frozenset((nodes.If, nodes.Range, nodes.Try, nodes.Include, nodes.Return))


def _declares(statement: nodes.Statement) -> bool:
    return isinstance(statement, nodes.Action) and statement.assign is not None and statement.assign.declares


def _items(source: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the items of a range: index or key, and value; maps are sorted by key."""
    value = unboxed(source)
    if isinstance(value, Ints):
        return ((number - value.start, number) for number in range(value.start, value.stop))
    if isinstance(value, dict):
        typed = isinstance(value, StringMap)
        return ((key, value[key] if typed else boxed(value[key])) for key in sorted_keys(value))
    if isinstance(value, bytes):
        return ((index, Uint8(byte)) for index, byte in enumerate(value))
    if isinstance(value, (list, tuple)):
        typed = isinstance(value, TypedList) and value.element != "interface {}"
        return ((index, item if typed else boxed(item)) for index, item in enumerate(list(value)))
    what = (
        "nothing: it is missing" if value is MISSING else "null" if value is None else f"a {type_of(value)}"
    )
    raise TemplateError(f"range goes over lists and maps, not over {what}")
