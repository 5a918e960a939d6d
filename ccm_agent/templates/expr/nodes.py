"""
The syntax tree of an expression.

Every node has its position (`offset`). After the check it also has the static type of its value (`nature`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccm_agent.templates.expr.static_types import StaticType


LONG_ROW = 4
"""The maximum length of an operator row that becomes nested calls. Longer rows run in a loop."""


class Node:
    """The base of all nodes. `depth` is the height of the subtree, which limits the recursion of every walk."""

    __slots__ = ("depth", "nature", "offset")

    offset: int
    nature: StaticType | None
    depth: int

    def __init__(self, offset: int, *children: Node | None) -> None:
        self.offset = offset
        self.nature = None
        self.depth = 1 + max((child.depth for child in children if child is not None), default=0)


class Constant(Node):
    """A literal: nil, a boolean, a number, text or bytes."""

    __slots__ = ("value",)

    def __init__(self, offset: int, value: Any) -> None:
        super().__init__(offset)
        self.value = value


class Name(Node):
    """A variable of the environment, a `let` or a function."""

    __slots__ = ("name",)

    def __init__(self, offset: int, name: str) -> None:
        super().__init__(offset)
        self.name = name


class Unary(Node):
    """A unary operation: `not x`, `-x`, `+x`."""

    __slots__ = ("operand", "operator")

    def __init__(self, offset: int, operator: str, operand: Node) -> None:
        super().__init__(offset, operand)
        self.operator = operator
        self.operand = operand


class Binary(Node):
    """
    A binary operation, such as `a + b`.

    Attributes:
        operators: The number of operators down to the leftmost operand: 2 in `a + b + c`. A row of more than
            `LONG_ROW` operators is processed in a loop, so it does not add height.
    """

    __slots__ = ("left", "operator", "operators", "right")

    def __init__(self, offset: int, operator: str, left: Node, right: Node) -> None:
        super().__init__(offset, left, right)
        self.operator = operator
        self.left = left
        self.right = right
        self.operators: int = 1 + (left.operators if isinstance(left, Binary) else 0)
        if self.operators > LONG_ROW:
            self.depth = max(left.depth, 1 + right.depth)

    def row(self) -> tuple[Node, list[Binary]]:
        """Return the leftmost operand, and the operators that follow it from left to right."""
        operators = [self]
        while isinstance(left := operators[-1].left, Binary):
            operators.append(left)
        return left, operators[::-1]


class Chain(Node):
    """
    Member accesses with at least one `?.`. The whole rest of the chain is nil if the value before `?.` is
    nil.
    """

    __slots__ = ("inner",)

    def __init__(self, offset: int, inner: Node) -> None:
        super().__init__(offset, inner)
        self.inner = inner


class Member(Node):
    """A member access: `a.b`, `a[b]` and their optional forms."""

    __slots__ = ("base", "is_method", "is_optional", "key")

    def __init__(self, offset: int, base: Node, key: Node, is_optional: bool) -> None:
        super().__init__(offset, base, key)
        self.base = base
        self.key = key
        self.is_optional = is_optional
        self.is_method = False


class Slice(Node):
    """A slice: `a[from:to]`; a missing end is None."""

    __slots__ = ("base", "start", "stop")

    def __init__(self, offset: int, base: Node, start: Node | None, stop: Node | None) -> None:
        super().__init__(offset, base, start, stop)
        self.base = base
        self.start = start
        self.stop = stop


class Call(Node):
    """A call of a function of the environment or of a method."""

    __slots__ = ("arguments", "callee")

    def __init__(self, offset: int, callee: Node, arguments: list[Node]) -> None:
        super().__init__(offset, callee, *arguments)
        self.callee = callee
        self.arguments = arguments


class Builtin(Node):
    """A call of a function of the language."""

    __slots__ = ("arguments", "name")

    def __init__(self, offset: int, name: str, arguments: list[Node]) -> None:
        super().__init__(offset, *arguments)
        self.name = name
        self.arguments = arguments


class Predicate(Node):
    """The expression that `filter`, `map` and similar functions evaluate for each element."""

    __slots__ = ("body",)

    def __init__(self, offset: int, body: Node) -> None:
        super().__init__(offset, body)
        self.body = body


class Pointer(Node):
    """
    A pointer: `#`, `#index` or `#acc`, which are the element, its index and the accumulator. `name` is ""
    for the element.
    """

    __slots__ = ("name",)

    def __init__(self, offset: int, name: str) -> None:
        super().__init__(offset)
        self.name = name


class Let(Node):
    """A declaration: `let name = value; body`."""

    __slots__ = ("body", "name", "value")

    def __init__(self, offset: int, name: str, value: Node, body: Node) -> None:
        super().__init__(offset, value, body)
        self.name = name
        self.value = value
        self.body = body


class Sequence(Node):
    """A sequence: `a; b; c`. All are evaluated, and the value is that of the last one."""

    __slots__ = ("parts",)

    def __init__(self, offset: int, parts: list[Node]) -> None:
        super().__init__(offset, *parts)
        self.parts = parts


class Conditional(Node):
    """A conditional: `c ? a : b` or `if c { a } else { b }`."""

    __slots__ = ("condition", "otherwise", "then")

    def __init__(self, offset: int, condition: Node, then: Node, otherwise: Node) -> None:
        super().__init__(offset, condition, then, otherwise)
        self.condition = condition
        self.then = then
        self.otherwise = otherwise


class Array(Node):
    """A list: `[a, b]`."""

    __slots__ = ("items",)

    def __init__(self, offset: int, items: list[Node]) -> None:
        super().__init__(offset, *items)
        self.items = items


class Map(Node):
    """A map: `{a: 1, ("b" + "c"): 2}`, as pairs of key and value."""

    __slots__ = ("pairs",)

    def __init__(self, offset: int, pairs: list[tuple[Node, Node]]) -> None:
        super().__init__(offset, *(node for pair in pairs for node in pair))
        self.pairs = pairs
