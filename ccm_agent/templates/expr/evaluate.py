"""
Compile a checked tree to one Python closure, which takes a Frame and returns the value.

Closures are created once for each expression, so an evaluation costs only one call for each node. A node adds
its place to the EvaluationErrors of its operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ccm_agent.model.errors import CcmError, ExpressionLimitError
from ccm_agent.templates.expr import operators
from ccm_agent.templates.expr.binary_operators import binary_operator, literal_range, sum_of_range
from ccm_agent.templates.expr.collections import is_nil
from ccm_agent.templates.expr.evaluation_errors import EvaluationError, EvaluationLimitError
from ccm_agent.templates.expr.frame import MAP_BYTES, Frame, weight
from ccm_agent.templates.expr.functions import FUNCTIONS
from ccm_agent.templates.expr.methods import Method
from ccm_agent.templates.expr.nodes import (
    LONG_ROW,
    Array,
    Binary,
    Builtin,
    Call,
    Chain,
    Conditional,
    Constant,
    Let,
    Map,
    Member,
    Name,
    Node,
    Pointer,
    Predicate,
    Sequence,
    Slice,
    Unary,
)
from ccm_agent.templates.expr.operators import EnvironmentValue, describe
from ccm_agent.templates.expr.parser import PREDICATES
from ccm_agent.templates.expr.predicate_functions import PredicateCall
from ccm_agent.templates.expr.static_types import INT, STRING

Run = Callable[[Frame], Any]


class _ChainEnd(Exception):
    """Signals that the value before a `?.` is nil, which makes the whole chain nil."""


class Compiler:
    """
    Compiles one expression's tree to a closure.

    Attributes:
        slots: The number of `let` values.
    """

    def __init__(self) -> None:
        self.lets: list[str] = []
        self.slots = 0

    def compile(self, node: Node) -> Run:
        return _COMPILERS[type(node)](self, node)

    def constant(self, node: Constant) -> Run:
        value = node.value

        def run(_frame: Frame) -> Any:
            return value

        return run

    def name(self, node: Name) -> Run:
        name, offset = node.name, node.offset
        for slot in range(len(self.lets) - 1, -1, -1):
            if self.lets[slot] == name:
                return lambda frame: frame.slots[slot]
        if name == "$env":
            return lambda frame: EnvironmentValue(frame.variables)

        def run(frame: Frame) -> Any:
            try:
                return frame.variables[name]
            except KeyError:
                raise EvaluationError(f"{name} is not a value", offset) from None

        return run

    def unary(self, node: Unary) -> Run:
        operand, offset = self.compile(node.operand), node.offset
        if node.operator == "+":
            return operand
        if node.operator == "-":

            def run_negate(frame: Frame) -> Any:
                value = operand(frame)
                try:
                    return operators.negate(value)
                except EvaluationError as fault:
                    raise fault.at(offset) from None

            return run_negate

        def run_not(frame: Frame) -> bool:
            return not _boolean(operand(frame), "not", offset)

        return run_not

    def binary(self, node: Binary) -> Run:
        if node.operators > LONG_ROW:
            return self.long_row(node)
        return self.operator(node, self.compile(node.left))

    def long_row(self, node: Binary) -> Run:
        """Run a long row of operators in a loop, with the intermediate value in an unnamed slot."""
        first, operators = node.row()
        slot = self.new_slot("")
        start = self.compile(first)
        steps = [self.operator(one, lambda frame: frame.slots[slot]) for one in operators]
        self.lets.pop()

        def run(frame: Frame) -> Any:
            value = start(frame)
            for step in steps:
                frame.slots[slot] = value
                value = step(frame)
            return value

        return run

    def new_slot(self, name: str) -> int:
        """Allocate a slot of the frame for a `let` value. It is valid until the name is popped off `lets`."""
        self.lets.append(name)
        self.slots = max(self.slots, len(self.lets))
        return len(self.lets) - 1

    def operator(self, node: Binary, left: Run) -> Run:
        """Return the closure of an operator with a left side that is already compiled."""
        sign = node.operator
        if sign in ("==", "!="):
            return self.equality(node, left, sign == "!=")
        right, offset = self.compile(node.right), node.offset
        if sign in ("and", "&&"):
            return lambda frame: right(frame) if _boolean(left(frame), sign, offset) else False
        if sign in ("or", "||"):
            return lambda frame: True if _boolean(left(frame), sign, offset) else right(frame)
        if sign == "??":

            def run_otherwise(frame: Frame) -> Any:
                value = left(frame)
                return right(frame) if is_nil(value) else value

            return run_otherwise
        return binary_operator(node, left, right)

    def equality(self, node: Binary, left: Run, is_negated: bool) -> Run:
        right, offset = self.compile(node.right), node.offset
        natures = [side.nature for side in (node.left, node.right)]
        strict: type | None = None
        if all(nature is not None and nature.type == INT.type for nature in natures):
            strict = int
        elif all(nature is not None and nature.type == STRING.type for nature in natures):
            strict = str

        def run(frame: Frame) -> bool:
            a, b = left(frame), right(frame)
            if strict is not None and (type(a) is not strict or type(b) is not strict):
                wrong = b if type(a) is strict else a
                raise EvaluationError(f"expected {describe(strict())}, not {describe(wrong)}", offset)
            try:
                return operators.equal(frame, a, b) is not is_negated
            except EvaluationError as fault:
                raise fault.at(offset) from None

        return run

    def chain(self, node: Chain) -> Run:
        inner = self.compile(node.inner)

        def run(frame: Frame) -> Any:
            try:
                value = inner(frame)
            except _ChainEnd:
                return None
            return None if is_nil(value) else value

        return run

    def member(self, node: Member) -> Run:
        path = _path_of(node)
        if path is not None and path[0].name not in self.lets and path[0].name != "$env":
            return _path(path[0], path[1])
        base, key, offset = self.compile(node.base), self.compile(node.key), node.offset
        is_optional = node.is_optional

        def run(frame: Frame) -> Any:
            value = base(frame)
            if is_optional and is_nil(value):
                raise _ChainEnd
            wanted = key(frame)
            try:
                return operators.fetch(value, wanted)
            except EvaluationError as fault:
                raise fault.at(offset) from None

        return run

    def slice(self, node: Slice) -> Run:
        base, offset = self.compile(node.base), node.offset
        start = None if node.start is None else self.compile(node.start)
        stop = None if node.stop is None else self.compile(node.stop)

        def run(frame: Frame) -> Any:
            value = base(frame)
            last = None if stop is None else stop(frame)
            first = 0 if start is None else start(frame)
            try:
                if stop is not None and last is None:
                    raise EvaluationError("a slice ends at an integer, not at nil")
                frame.spend(weight(value))
                return operators.cut(value, first, last)
            except EvaluationError as fault:
                raise fault.at(offset) from None

        return run

    def call(self, node: Call) -> Run:
        arguments = [self.compile(argument) for argument in node.arguments]
        offset = node.offset
        if isinstance(node.callee, Name) and node.callee.name not in self.lets:
            name = node.callee.name

            def run_function(frame: Frame) -> Any:
                values = [argument(frame) for argument in arguments]
                function = frame.functions.get(name)
                if function is None:
                    raise EvaluationError(f"{name} is not a function", offset)
                return _called(function, name, values, offset)

            return run_function
        callee = self.compile(node.callee)

        def run_method(frame: Frame) -> Any:
            values = [argument(frame) for argument in arguments]
            method = callee(frame)
            if not isinstance(method, Method):
                raise EvaluationError(f"{describe(method)} is not a function", offset)
            try:
                return method(*values)
            except EvaluationError as fault:
                raise fault.at(offset) from None

        return run_method

    def builtin(self, node: Builtin) -> Run:
        if node.name in PREDICATES:
            return self.loop(node)
        function, offset = FUNCTIONS[node.name], node.offset
        arguments = [self.compile(argument) for argument in node.arguments]

        def run(frame: Frame) -> Any:
            values = [argument(frame) for argument in arguments]
            try:
                frame.spend(1 + sum(map(weight, values)))
                return function(frame, *values)
            except EvaluationError as fault:
                raise fault.at(offset) from None

        return run

    def loop(self, node: Builtin) -> Run:
        if node.name == "sum" and len(node.arguments) == 1:
            bounds = literal_range(node.arguments[0])
            if bounds is not None:
                return self.constant(Constant(node.offset, sum_of_range(*bounds)))
        source, *others = [self.compile(argument) for argument in node.arguments]
        body, extra = ([*others, None, None])[:2]
        return PredicateCall(node.name, node.offset, source, body, extra).compiled()

    def predicate(self, node: Predicate) -> Run:
        return self.compile(node.body)

    def pointer(self, node: Pointer) -> Run:
        if node.name == "index":
            return lambda frame: frame.index
        if node.name == "acc":
            return lambda frame: frame.acc
        return lambda frame: frame.item

    def let(self, node: Let) -> Run:
        value = self.compile(node.value)
        slot = self.new_slot(node.name)
        body = self.compile(node.body)
        self.lets.pop()

        def run(frame: Frame) -> Any:
            frame.slots[slot] = value(frame)
            return body(frame)

        return run

    def sequence(self, node: Sequence) -> Run:
        parts = [self.compile(part) for part in node.parts]

        def run(frame: Frame) -> Any:
            value = None
            for part in parts:
                value = part(frame)
            return value

        return run

    def conditional(self, node: Conditional) -> Run:
        condition, offset = self.compile(node.condition), node.condition.offset
        then, otherwise = self.compile(node.then), self.compile(node.otherwise)

        def run(frame: Frame) -> Any:
            return then(frame) if _boolean(condition(frame), "a condition", offset) else otherwise(frame)

        return run

    def array(self, node: Array) -> Run:
        items = [self.compile(item) for item in node.items]

        def run(frame: Frame) -> list[Any]:
            frame.grow(len(items))
            return [item(frame) for item in items]

        return run

    def map(self, node: Map) -> Run:
        pairs = [(self.compile(key), self.compile(value), key.offset) for key, value in node.pairs]

        def run(frame: Frame) -> dict[str, Any]:
            frame.grow(len(pairs))
            frame.hold(MAP_BYTES)
            made: dict[str, Any] = {}
            for key, value, offset in pairs:
                name = key(frame)
                if type(name) is not str:
                    raise EvaluationError(f"the keys of a map are text, and this is {describe(name)}", offset)
                found = value(frame)
                made.setdefault(name, found)  # the first of equal keys is used
            return made

        return run


def _boolean(value: Any, sign: str, offset: int) -> bool:
    if value is True or value is False:
        return bool(value)
    raise EvaluationError(f"{sign} needs a boolean, and this is {describe(value)}", offset)


def _called(function: Callable[..., Any], name: str, values: list[Any], offset: int) -> Any:
    """Call a function of the environment. Its errors include the place of the call."""
    try:
        return function(*values)
    except EvaluationError as fault:
        raise fault.at(offset) from None
    except TypeError as err:
        if (
            err.__traceback__ is not None and err.__traceback__.tb_next is None
        ):  # raised by the call itself, not inside the function
            raise EvaluationError(f"{name}() does not take {len(values)} arguments", offset) from None
        raise
    except ExpressionLimitError as err:
        raise EvaluationLimitError(err.message, offset) from None
    except CcmError as err:
        raise EvaluationError(f"{name}() failed: {err.message}", offset) from err


def _path_of(node: Member) -> tuple[Name, list[tuple[str, int]]] | None:
    """Return the names of `a.b.c`, the most common expression; None for any other expression."""
    keys: list[tuple[str, int]] = []
    current: Node = node
    while isinstance(current, Member):
        key = current.key
        if current.is_optional or not isinstance(key, Constant) or type(key.value) is not str:
            return None
        keys.append((key.value, current.offset))
        current = current.base
    return (current, keys[::-1]) if isinstance(current, Name) else None


def _path(name: Name, keys: list[tuple[str, int]]) -> Run:
    root, root_offset = name.name, name.offset

    def run(frame: Frame) -> Any:
        try:
            value = frame.variables[root]
        except KeyError:
            raise EvaluationError(f"{root} is not a value", root_offset) from None
        for key, offset in keys:
            if type(value) is dict:
                value = value.get(key)
                continue
            try:
                value = operators.fetch(value, key)
            except EvaluationError as fault:
                raise fault.at(offset) from None
        return value

    return run


_COMPILERS: dict[type[Node], Callable[..., Run]] = {
    Constant: Compiler.constant,
    Name: Compiler.name,
    Unary: Compiler.unary,
    Binary: Compiler.binary,
    Chain: Compiler.chain,
    Member: Compiler.member,
    Slice: Compiler.slice,
    Call: Compiler.call,
    Builtin: Compiler.builtin,
    Predicate: Compiler.predicate,
    Pointer: Compiler.pointer,
    Let: Compiler.let,
    Sequence: Compiler.sequence,
    Conditional: Compiler.conditional,
    Array: Compiler.array,
    Map: Compiler.map,
}
