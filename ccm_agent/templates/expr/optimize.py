"""
Rewriting a checked tree before it runs.

These are the rewrites of the reference that a user can see, because they change which parts run at all: `x and true` is
`x` whatever that is, `first(filter(…))` ends at the first hit, `7 in 1..100000000` makes no list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ccm_agent.templates.expr import operators
from ccm_agent.templates.expr.faults import Fault
from ccm_agent.templates.expr.natures import BOOL, FLOAT, INT, STRING, Nature
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
    Node,
    Pointer,
    Predicate,
    Sequence,
    Slice,
    Unary,
)
from ccm_agent.templates.values import wrap_int


class TextSet(dict[str, None]):
    """The texts of a literal list behind `in`: only text, and nil as the empty one, can be asked for."""

    __slots__ = ()


def optimize(root: Node) -> Node:
    """
    The tree to run.

    Raises:
        Fault: A part that is made of literals alone cannot be computed.
    """
    return _walk(root)


def _walk(node: Node) -> Node:
    """Rewrite what is below, then the node itself."""
    _CHILDREN.get(type(node), _nothing)(node)
    rewrite = _REWRITES.get(type(node))
    if rewrite is None:
        return node
    new: Node = rewrite(node)
    if new is not node and new.nature is None:
        new.nature = node.nature
    return new


def _nothing(_node: Any) -> None:
    return


def _unary_child(node: Unary) -> None:
    node.operand = _walk(node.operand)


def _binary_children(node: Binary) -> None:
    if node.operator == "in" and isinstance(node.right, Array):
        # Before the list is folded into one constant: the reference makes a set of literal texts.
        texts = [item.value if isinstance(item, Constant) else None for item in node.right.items]
        is_integer = node.left.nature is not None and node.left.nature.kind == "int"
        integers = is_integer and all(type(text) is int for text in texts)
        if texts and not integers and all(type(text) is str for text in texts):
            node.right = Constant(node.right.offset, TextSet.fromkeys(texts))
    node.left = _walk(node.left)
    node.right = _walk(node.right)


def _chain_child(node: Chain) -> None:
    node.inner = _walk(node.inner)


def _member_children(node: Member) -> None:
    node.base = _walk(node.base)
    node.key = _walk(node.key)


def _slice_children(node: Slice) -> None:
    node.base = _walk(node.base)
    node.start = None if node.start is None else _walk(node.start)
    node.stop = None if node.stop is None else _walk(node.stop)


def _call_children(node: Call) -> None:
    node.callee = _walk(node.callee)
    node.arguments = [_walk(argument) for argument in node.arguments]


def _builtin_children(node: Builtin) -> None:
    node.arguments = [_walk(argument) for argument in node.arguments]


def _predicate_child(node: Predicate) -> None:
    node.body = _walk(node.body)


def _let_children(node: Let) -> None:
    node.value = _walk(node.value)
    node.body = _walk(node.body)


def _sequence_children(node: Sequence) -> None:
    node.parts = [_walk(part) for part in node.parts]


def _conditional_children(node: Conditional) -> None:
    node.condition = _walk(node.condition)
    node.then = _walk(node.then)
    node.otherwise = _walk(node.otherwise)


def _array_children(node: Array) -> None:
    node.items = [_walk(item) for item in node.items]


def _map_children(node: Map) -> None:
    node.pairs = [(_walk(key), _walk(value)) for key, value in node.pairs]


_CHILDREN: dict[type[Node], Callable[[Any], None]] = {
    Unary: _unary_child,
    Binary: _binary_children,
    Chain: _chain_child,
    Member: _member_children,
    Slice: _slice_children,
    Call: _call_children,
    Builtin: _builtin_children,
    Predicate: _predicate_child,
    Let: _let_children,
    Sequence: _sequence_children,
    Conditional: _conditional_children,
    Array: _array_children,
    Map: _map_children,
}


# Literals


def _literal(node: Node, value: Any) -> Constant:
    constant = Constant(node.offset, value)
    constant.nature = _nature(value)
    return constant


def _nature(value: Any) -> Nature:
    return {bool: BOOL, int: INT, float: FLOAT, str: STRING}[type(value)]


def _is_number(node: Node) -> bool:
    return isinstance(node, Constant) and type(node.value) in (int, float)


def _unary(node: Unary) -> Node:
    if not isinstance(node.operand, Constant):
        return node
    value = node.operand.value
    if node.operator in ("not", "!"):
        return _literal(node, not value) if type(value) is bool else node
    if not _is_number(node.operand):
        return node
    return _literal(node, operators.negate(value) if node.operator == "-" else value)


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operators.add,
    "-": operators.subtract,
    "*": operators.multiply,
    "/": operators.divide,
    "**": operators.power,
    "^": operators.power,
}


def _binary(node: Binary) -> Node:
    left, right, sign = node.left, node.right, node.operator
    if sign in ("and", "&&", "or", "||"):
        return _logic(node, sign in ("or", "||"))
    if sign == "in":
        return _in_range(node)
    if isinstance(left, Constant) and isinstance(right, Constant):
        a, b = left.value, right.value
        if sign in _ARITHMETIC and _is_number(left) and _is_number(right):
            return _literal(node, _ARITHMETIC[sign](a, b))
        if sign == "+" and type(a) is str and type(b) is str:
            return _literal(node, a + b)
        if sign == "%" and type(a) is int and type(b) is int:
            try:
                return _literal(node, operators.modulo(a, b))
            except Fault as fault:
                raise fault.at(node.offset) from None
        if sign == "==" and type(a) is type(b) and type(a) in (int, str, bool):
            return _literal(node, a == b)
        return node
    return _count_compared(node)


def _logic(node: Binary, is_or: bool) -> Node:
    """`x and true` is x, `x and false` is false, and the like; x need not even be a boolean then."""
    left, right = node.left, node.right
    if _is_bool(left, not is_or):
        return right
    if _is_bool(right, not is_or):
        return left
    if _is_bool(left, is_or) or _is_bool(right, is_or):
        return _literal(node, is_or)
    return node


def _is_bool(node: Node, value: bool) -> bool:
    return isinstance(node, Constant) and node.value is value


def _range_of(node: Node) -> tuple[int, int] | None:
    """The bounds of a range of literals."""
    if not isinstance(node, Binary) or node.operator != "..":
        return None
    if not isinstance(node.left, Constant) or not isinstance(node.right, Constant):
        return None
    low, high = node.left.value, node.right.value
    return (low, high) if type(low) is int and type(high) is int else None


def _in_range(node: Binary) -> Node:
    bounds = _range_of(node.right)
    if bounds is None or node.left.nature is None or node.left.nature.kind != "int":
        return node
    low = Binary(node.offset, ">=", node.left, _literal(node, bounds[0]))
    high = Binary(node.offset, "<=", node.left, _literal(node, bounds[1]))
    return Binary(node.offset, "and", low, high)


def _count_compared(node: Binary) -> Node:
    """A `count` that is compared with a literal ends as soon as the answer is known."""
    count = node.left
    if not isinstance(count, Builtin) or count.name != "count" or len(count.arguments) != 2:
        return node
    if not isinstance(node.right, Constant) or type(node.right.value) is not int or node.right.value < 0:
        return node
    enough = node.right.value + (1 if node.operator in (">", "<=") else 0)
    if node.operator not in (">", ">=", "<", "<="):
        return node
    if enough == 1 and node.operator in (">", ">="):
        return Builtin(count.offset, "any", count.arguments)
    if enough > 1:
        count.enough = enough
    return node


def _array(node: Array) -> Node:
    values = []
    for item in node.items:
        if not isinstance(item, Constant) or type(item.value) not in (int, float, str, bool):
            return node
        values.append(item.value)
    return Constant(node.offset, values) if values else node


# Functions


def _builtin(node: Builtin) -> Node:
    rewrite = _BUILTINS.get(node.name)
    return node if rewrite is None else rewrite(node)


def _is_call(node: Node, name: str, arguments: int) -> bool:
    return isinstance(node, Builtin) and node.name == name and len(node.arguments) == arguments


def _filter(node: Builtin) -> Node:
    inner = node.arguments[0]
    if not isinstance(inner, Builtin) or not _is_call(inner, "filter", 2) or inner.mapped is not None:
        return node
    first, second = inner.arguments[1], node.arguments[1]
    assert isinstance(first, Predicate)
    assert isinstance(second, Predicate)
    both = Predicate(second.offset, _logic(Binary(second.offset, "&&", first.body, second.body), is_or=False))
    return Builtin(node.offset, "filter", [inner.arguments[0], both])


def _map(node: Builtin) -> Node:
    inner, body = node.arguments
    if not isinstance(inner, Builtin) or inner.name != "filter" or inner.mapped is not None:
        return node
    if not isinstance(body, Predicate) or _uses_index(body.body):
        return node
    merged = Builtin(node.offset, "filter", inner.arguments)
    merged.mapped = body.body
    return merged


def _uses_index(node: Node) -> bool:
    """Whether `#index` is anywhere in it."""
    found = False

    def look(child: Node) -> None:
        nonlocal found
        if isinstance(child, Pointer) and child.name == "index":
            found = True
        for below in children(child):
            look(below)

    look(node)
    return found


def children(node: Node) -> list[Node]:
    """The nodes right below one."""
    if isinstance(node, Map):
        return [part for pair in node.pairs for part in pair]
    below: list[Node] = []
    for name in type(node).__slots__:
        value = getattr(node, name)
        if isinstance(value, Node):
            below.append(value)
        elif isinstance(value, list):
            below.extend(item for item in value if isinstance(item, Node))
    return below


def _len(node: Builtin) -> Node:
    inner = node.arguments[0]
    if isinstance(inner, Builtin) and _is_call(inner, "filter", 2):
        return Builtin(node.offset, "count", inner.arguments)
    return node


def _end(node: Builtin) -> Node:
    inner = node.arguments[0]
    if not isinstance(inner, Builtin) or not _is_call(inner, "filter", 2):
        return node
    return _find(node, "find" if node.name == "first" else "findLast", inner)


def _find(node: Node, name: str, inner: Builtin) -> Builtin:
    found = Builtin(node.offset, name, inner.arguments)
    found.mapped = inner.mapped
    return found


def _member(node: Member) -> Node:
    if node.is_optional or not isinstance(node.key, Constant) or not isinstance(node.base, Builtin):
        return node
    if (
        not _is_call(node.base, "filter", 2)
        or type(node.key.value) is not int
        or node.key.value not in (0, -1)
    ):
        return node
    found = _find(node, "findLast" if node.key.value else "find", node.base)
    found.must_find = True
    return found


def _sum(node: Builtin) -> Node:
    source = node.arguments[0]
    bounds = _range_of(source)
    if bounds is not None and bounds[0] <= bounds[1]:
        value = _sum_of_range(bounds, node.arguments[1] if len(node.arguments) > 1 else None)
        if value is not None:
            return _literal(node, wrap_int(value))
    if len(node.arguments) > 1:
        return node
    if isinstance(source, Array) and len(source.items) > 1:
        total = source.items[-1]
        for item in reversed(source.items[:-1]):
            total = Binary(node.offset, "+", item, total)
        return total
    if isinstance(source, Builtin) and _is_call(source, "map", 2):
        return Builtin(node.offset, "sum", source.arguments)
    return node


def _sum_of_range(bounds: tuple[int, int], predicate: Node | None) -> int | None:
    """The sum of a range, of its elements times, plus or minus a literal; None for anything else."""
    count = bounds[1] - bounds[0] + 1
    total = count * (bounds[0] + bounds[1]) // 2
    if predicate is None:
        return total
    body = predicate.body if isinstance(predicate, Predicate) else None
    if _is_element(body):
        return total
    if not isinstance(body, Binary):
        return None
    is_left = _is_element(body.left)
    other = body.right if is_left else body.left
    if (
        not (is_left or _is_element(body.right))
        or not isinstance(other, Constant)
        or type(other.value) is not int
    ):
        return None
    if body.operator == "*":
        return other.value * total
    if body.operator == "+":
        return total + count * other.value
    if body.operator == "-":
        return total - count * other.value if is_left else count * other.value - total
    return None


def _is_element(node: Node | None) -> bool:
    return isinstance(node, Pointer) and not node.name


def _reduce(node: Builtin) -> Node:
    bounds = _range_of(node.arguments[0])
    body = node.arguments[1].body if isinstance(node.arguments[1], Predicate) else None
    if bounds is None or bounds[0] > bounds[1] or not isinstance(body, Binary) or body.operator != "+":
        return node
    sides = [side.name if isinstance(side, Pointer) else None for side in (body.left, body.right)]
    start = node.arguments[2] if len(node.arguments) > 2 else _literal(node, 0)
    if (
        sorted(map(str, sides)) != ["", "acc"]
        or not isinstance(start, Constant)
        or type(start.value) is not int
    ):
        return node
    return _literal(node, wrap_int(start.value + (bounds[1] - bounds[0] + 1) * (bounds[0] + bounds[1]) // 2))


_BUILTINS: dict[str, Callable[[Builtin], Node]] = {
    "filter": _filter,
    "map": _map,
    "len": _len,
    "first": _end,
    "last": _end,
    "sum": _sum,
    "reduce": _reduce,
}
_REWRITES: dict[type[Node], Callable[[Any], Node]] = {
    Unary: _unary,
    Binary: _binary,
    Array: _array,
    Builtin: _builtin,
    Member: _member,
}
