"""
The static check. It finds errors before the expression runs, even in branches that are never taken.

Source of the rules: the language definition of Expr (expr-lang.org) and the cases in tests/conformance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ccm_agent.model.suggestions import nearest
from ccm_agent.templates.expr.evaluation_errors import EvaluationError
from ccm_agent.templates.expr.nodes import (
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
from ccm_agent.templates.expr.rules import BINARY_RULES
from ccm_agent.templates.expr.signatures import SIGNATURES
from ccm_agent.templates.expr.static_types import (
    ANY,
    ARRAY,
    BOOL,
    BYTES,
    FLOAT,
    GROUPS,
    INT,
    MAP,
    NIL,
    STRING,
    UNKNOWN,
    FunctionType,
    StaticType,
    array_of,
    method_of,
)

_ENVIRONMENT = "$env"

PATTERN_SIZE_LIMIT = 250_000
"""
Limit of the instructions of all literal patterns in an expression. Compiling this many takes a few tenths
of a second.
"""


def check(
    root: Node,
    variables: Mapping[str, StaticType],
    functions: frozenset[str],
    members: Mapping[str, tuple[str, ...]] | None = None,
) -> StaticType:
    """
    Check a syntax tree and set the static types of its nodes.

    Args:
        root: The tree.
        variables: The names of the environment and their types.
        functions: The functions of the environment; their arguments and results may be of any type.
        members: The keys of variables that are maps with known keys.

    Returns:
        The static type of the value.

    Raises:
        EvaluationError: Types do not match, a name is unknown, or the arguments of a call are wrong.
    """
    return _Checker(variables, functions, members or {}).visit(root)


class _Checker:
    def __init__(
        self,
        variables: Mapping[str, StaticType],
        functions: frozenset[str],
        members: Mapping[str, tuple[str, ...]],
    ) -> None:
        self.variables = variables
        self.functions = functions
        self.members = members
        self.pattern_size = 0
        self.lets: list[tuple[str, StaticType]] = []
        # for each enclosing predicate: the list that it iterates over, and its pointers other than `#`
        self.scopes: list[tuple[StaticType, dict[str, StaticType]]] = []

    def visit(self, node: Node) -> StaticType:
        nature = _VISITORS[type(node)](self, node)
        node.nature = nature
        return nature

    def constant(self, node: Constant) -> StaticType:
        return nature_of(node.value)

    def name(self, node: Name) -> StaticType:
        for name, nature in reversed(self.lets):
            if name == node.name:
                return nature
        if node.name == _ENVIRONMENT:
            return UNKNOWN
        if node.name in self.variables:
            return self.variables[node.name]
        if node.name in self.functions:
            return StaticType(
                "func", "func", function=FunctionType(node.name, ((ANY,),), ANY, is_variadic=True)
            )
        signature = SIGNATURES.get(node.name)
        if signature is not None:
            return StaticType("func", "func", function=signature)
        raise EvaluationError(f"unknown name {node.name}{self.hint(node.name)}", node.offset)

    def hint(self, name: str) -> str:
        """Return a hint with the most similar name, or a hint to quote a text."""
        near = nearest(name, (*self.variables, *self.functions, *SIGNATURES))
        return f"; did you mean {near}?" if near else "; quote it if it is text"

    def unary(self, node: Unary) -> StaticType:
        operand = self.visit(node.operand)
        if node.operator in ("not", "!"):
            if operand.kind == "bool" or operand.is_unknown:
                return BOOL
        elif operand.is_number:
            return operand
        elif operand.is_unknown:
            return UNKNOWN
        raise EvaluationError(f"{node.operator} does not take {operand}", node.offset)

    def binary(self, node: Binary) -> StaticType:
        first, operators = node.row()
        left = self.visit(first)
        for one in operators:
            left = one.nature = self.operator(one, left)
        return left

    def operator(self, node: Binary, left: StaticType) -> StaticType:
        right = self.visit(node.right)
        result = BINARY_RULES[node.operator](left, right)
        if (
            node.operator == "matches"
            and isinstance(node.right, Constant)
            and isinstance(node.right.value, str)
        ):
            self.pattern(node.right)
        if result is None:
            raise EvaluationError(f"{node.operator} does not go between {left} and {right}", node.offset)
        return result

    def pattern(self, node: Constant) -> None:
        from ccm_agent.templates.regex import PatternError, compile_pattern

        try:
            self.pattern_size += compile_pattern(node.value).size
        except PatternError as err:
            raise EvaluationError(f"the pattern does not parse: {err}", node.offset) from None
        if self.pattern_size > PATTERN_SIZE_LIMIT:
            raise EvaluationError(
                "the patterns of the expression are too large together; repeat less", node.offset
            )

    def chain(self, node: Chain) -> StaticType:
        return self.visit(node.inner)

    def member(self, node: Member) -> StaticType:
        key = node.key.value if isinstance(node.key, Constant) and isinstance(node.key.value, str) else None
        if isinstance(node.base, Name) and node.base.name == _ENVIRONMENT:
            return self.environment_member(node, key)
        base = self.visit(node.base)
        nature = self.visit(node.key)
        if base.is_unknown:
            return UNKNOWN
        if key is not None and isinstance(node.base, Name):
            self.known_member(node.base.name, key, node.offset)
        if key is not None:
            method = method_of(base, key)
            if method is not None:
                return method
        if base.kind == "map" and base.key is not None:
            if not nature.assignable_to(base.key) and not nature.is_unknown:
                raise EvaluationError(f"{nature} is not a key of {base}", node.key.offset)
            return base.element or ANY
        if base.is_list:
            if not nature.is_integer and not nature.is_unknown:
                raise EvaluationError(
                    f"an element of a list is chosen by an integer, not by {nature}", node.key.offset
                )
            return base.element or ANY
        what = "method" if node.is_method else "field"
        raise EvaluationError(
            f"{base} has no {what} {key}" if key is not None else f"{base} has no elements", node.offset
        )

    def known_member(self, name: str, key: str, offset: int) -> None:
        """Refuse a key that a map with known keys does not have."""
        known = self.members.get(name, ())
        if known and key not in known:
            there = ", ".join(f"{name}.{one}" for one in known)
            raise EvaluationError(f"there is no {name}.{key}; there are {there}", offset)

    def environment_member(self, node: Member, key: str | None) -> StaticType:
        if key is None:
            return UNKNOWN
        if key in self.variables:
            return self.variables[key]
        if node.is_optional:
            return UNKNOWN
        raise EvaluationError(f"unknown name {key}{self.hint(key)}", node.offset)

    def slice(self, node: Slice) -> StaticType:
        base = self.visit(node.base)
        if base.is_unknown:
            return UNKNOWN
        if base.kind not in ("string", "slice"):
            raise EvaluationError(f"{base} cannot be sliced; only lists and text can", node.offset)
        for end in (node.start, node.stop):
            if end is not None:
                nature = self.visit(end)
                if not nature.is_integer and not nature.is_unknown:
                    raise EvaluationError(
                        f"a slice begins and ends at an integer, not at {nature}", end.offset
                    )
        return base

    def call(self, node: Call) -> StaticType:
        if isinstance(node.callee, Name) and node.callee.name == _ENVIRONMENT:
            raise EvaluationError(f"{_ENVIRONMENT} is not a function", node.offset)
        callee = self.visit(node.callee)
        if callee.is_unknown:
            return UNKNOWN
        if callee.function is None:
            raise EvaluationError(f"{callee} is not a function", node.offset)
        return self.function(callee.function, node, node.arguments)

    def function(self, function: FunctionType, node: Node, arguments: list[Node]) -> StaticType:
        natures = [self.visit(argument) for argument in arguments]
        if function.validate is not None:
            try:
                return function.validate(function.name, natures)
            except EvaluationError as err:
                raise err.at(node.offset) from None
        fault: EvaluationError | None = None
        for overload in function.overloads:
            fault = _misfit(function, overload, natures, node, arguments)
            if fault is None:
                return function.returns
        if fault is None:
            return function.returns
        raise fault

    def builtin(self, node: Builtin) -> StaticType:
        if node.name == "get":
            return self.get(node)
        visitor = _LOOPS.get(node.name)
        if visitor is None:
            return self.function(SIGNATURES[node.name], node, node.arguments)
        source = self.visit(node.arguments[0])
        if not source.is_list and not source.is_unknown:
            raise EvaluationError(
                f"{node.name}() goes over a list, not over {source}", node.arguments[0].offset
            )
        body: StaticType | None = None
        if len(node.arguments) > 1:
            self.scopes.append((source, _POINTERS.get(node.name, {})))
            body = self.visit(node.arguments[1])
            self.scopes.pop()
            if body.is_nil:
                raise EvaluationError(
                    f"the predicate of {node.name}() is always nil", node.arguments[1].offset
                )
        for extra in node.arguments[2:]:
            nature = self.visit(extra)
            if node.name == "sortBy" and nature.kind != "string" and not nature.is_unknown:
                raise EvaluationError(
                    f'sortBy() takes "asc" or "desc" as its order, not {nature}', extra.offset
                )
        if node.name in _CONDITIONS and body is not None and body.kind != "bool" and not body.is_unknown:
            raise EvaluationError(
                f"{node.name}() needs a condition, and this is {body}", node.arguments[1].offset
            )
        return visitor(source, body)

    def get(self, node: Builtin) -> StaticType:
        if len(node.arguments) != 2:
            raise EvaluationError(f"get() takes 2 arguments, not {len(node.arguments)}", node.offset)
        source, key = node.arguments
        base = self.visit(source)
        nature = self.visit(key)
        if isinstance(source, Name) and source.name == _ENVIRONMENT:
            return self.variables.get(key.value, UNKNOWN) if isinstance(key, Constant) else UNKNOWN
        if base.is_unknown:
            return UNKNOWN
        if base.is_list:
            if not nature.is_integer and not nature.is_unknown:
                raise EvaluationError(
                    f"an element of a list is chosen by an integer, not by {nature}", key.offset
                )
        elif base.kind == "map" and base.key is not None:
            if not nature.assignable_to(base.key) and not nature.is_unknown:
                raise EvaluationError(f"{nature} is not a key of {base}", key.offset)
        else:
            raise EvaluationError(f"get() does not take {base}", source.offset)
        return base.element or ANY

    def predicate(self, node: Predicate) -> StaticType:
        return self.visit(node.body)

    def pointer(self, node: Pointer) -> StaticType:
        if not self.scopes:
            raise EvaluationError("# can be used in a predicate only", node.offset)
        source, pointers = self.scopes[-1]
        if not node.name:
            return UNKNOWN if source.is_unknown else source.element or ANY
        if node.name in pointers:
            return pointers[node.name]
        raise EvaluationError(f"there is no #{node.name} here", node.offset)

    def let(self, node: Let) -> StaticType:
        taken = node.name in self.variables or node.name in self.functions or node.name in SIGNATURES
        if taken or node.name in _LOOPS or any(name == node.name for name, _ in self.lets):
            raise EvaluationError(f"{node.name} is already defined; choose another name", node.offset)
        self.lets.append((node.name, self.visit(node.value)))
        body = self.visit(node.body)
        self.lets.pop()
        return body

    def sequence(self, node: Sequence) -> StaticType:
        return [self.visit(part) for part in node.parts][-1]

    def conditional(self, node: Conditional) -> StaticType:
        condition = self.visit(node.condition)
        if condition.kind != "bool" and not condition.is_unknown:
            raise EvaluationError(
                f"a condition must be a boolean, and this is {condition}", node.condition.offset
            )
        then = self.visit(node.then)
        otherwise = self.visit(node.otherwise)
        if then.is_nil or otherwise.is_nil:
            return otherwise if then.is_nil else then
        if not then.assignable_to(otherwise):
            return UNKNOWN
        if then.is_list and otherwise.is_list:
            a, b = then.element or ANY, otherwise.element or ANY
            if not a.assignable_to(b) or not b.assignable_to(a):
                return ARRAY
        return then

    def array(self, node: Array) -> StaticType:
        natures = [self.visit(item) for item in node.items]
        if len({nature.kind for nature in natures}) > 1:
            return ARRAY
        return array_of(natures[-1] if natures else UNKNOWN)

    def map(self, node: Map) -> StaticType:
        for key, value in node.pairs:
            self.visit(key)
            self.visit(value)
        return MAP


def nature_of(value: object) -> StaticType:
    """Return the static type of a literal."""
    if value is None:
        return NIL
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return INT
    if isinstance(value, float):
        return FLOAT
    return STRING if isinstance(value, str) else BYTES if isinstance(value, bytes) else ARRAY


def _misfit(
    function: FunctionType,
    overload: tuple[StaticType, ...],
    natures: list[StaticType],
    node: Node,
    arguments: list[Node],
) -> EvaluationError | None:
    """Return the reason why the arguments do not match an overload; None if they match."""
    least = len(overload) - 1 if function.is_variadic else len(overload)
    if len(natures) < least or (len(natures) > len(overload) and not function.is_variadic):
        plural = "" if least == 1 else "s"
        return EvaluationError(
            f"{function.name}() takes {least} argument{plural}, not {len(natures)}", node.offset
        )
    for index, nature in enumerate(natures):
        wanted = overload[min(index, len(overload) - 1)]
        if nature.is_unknown or (wanted.is_integer and nature.is_integer):
            continue
        if nature.is_nil and wanted.kind in ("ptr", "interface"):
            continue
        if nature.is_nil or not nature.assignable_to(wanted):
            return EvaluationError(
                f"{function.name}() takes {wanted} here, not {nature}", arguments[index].offset
            )
    return None


_CONDITIONS = frozenset(
    ("all", "none", "any", "one", "filter", "count", "find", "findLast", "findIndex", "findLastIndex")
)
_POINTERS = {"map": {"index": INT}, "reduce": {"index": INT, "acc": UNKNOWN}}


def _element(source: StaticType, _body: StaticType | None) -> StaticType:
    return UNKNOWN if source.is_unknown else source.element or ANY


def _filtered(source: StaticType, _body: StaticType | None) -> StaticType:
    return ARRAY if source.is_unknown else array_of(source.element or ANY)


_LOOPS: dict[str, Callable[[StaticType, StaticType | None], StaticType]] = {
    **dict.fromkeys(("all", "none", "any", "one"), lambda _source, _body: BOOL),
    "filter": _filtered,
    "map": lambda _source, body: array_of(body or UNKNOWN),
    **dict.fromkeys(("count", "findIndex", "findLastIndex"), lambda _source, _body: INT),
    "sum": lambda source, body: _element(source, body) if body is None else body,
    **dict.fromkeys(("find", "findLast"), _element),
    "groupBy": lambda _source, _body: GROUPS,
    "sortBy": lambda source, _body: source,
    "reduce": lambda _source, body: body or UNKNOWN,
}

_VISITORS: dict[type[Node], Callable[..., StaticType]] = {
    Constant: _Checker.constant,
    Name: _Checker.name,
    Unary: _Checker.unary,
    Binary: _Checker.binary,
    Chain: _Checker.chain,
    Member: _Checker.member,
    Slice: _Checker.slice,
    Call: _Checker.call,
    Builtin: _Checker.builtin,
    Predicate: _Checker.predicate,
    Pointer: _Checker.pointer,
    Let: _Checker.let,
    Sequence: _Checker.sequence,
    Conditional: _Checker.conditional,
    Array: _Checker.array,
    Map: _Checker.map,
}
