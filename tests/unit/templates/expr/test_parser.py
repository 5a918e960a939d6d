"""Tokens to a tree: precedence, grammar, limits."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.templates.expr.evaluation_errors import EvaluationError
from ccm_agent.templates.expr.functions import FUNCTIONS
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
from ccm_agent.templates.expr.parser import MAX_LENGTH, MAX_NESTING, MAX_NODES, parse

BUILTINS = frozenset(FUNCTIONS)


def drawn(node: Node | None) -> Any:
    """A tree as text in brackets."""
    match node:
        case None:
            return "_"
        case Constant(value=value):
            return repr(value)
        case Name(name=name):
            return name
        case Unary(operator=operator, operand=operand):
            return f"({operator} {drawn(operand)})"
        case Binary(operator=operator, left=left, right=right):
            return f"({drawn(left)} {operator} {drawn(right)})"
        case Chain(inner=inner):
            return f"chain[{drawn(inner)}]"
        case Member(base=base, key=key, is_optional=is_optional):
            return f"{drawn(base)}{'?' if is_optional else ''}.[{drawn(key)}]"
        case Slice(base=base, start=start, stop=stop):
            return f"{drawn(base)}[{drawn(start)}:{drawn(stop)}]"
        case Call(callee=callee, arguments=arguments):
            return f"call {drawn(callee)}({', '.join(map(drawn, arguments))})"
        case Builtin(name=name, arguments=arguments):
            return f"{name}({', '.join(map(drawn, arguments))})"
        case Predicate(body=body):
            return f"{{{drawn(body)}}}"
        case Pointer(name=name):
            return f"#{name}"
        case Let(name=name, value=value, body=body):
            return f"let {name}={drawn(value)} in {drawn(body)}"
        case Sequence(parts=parts):
            return "; ".join(map(drawn, parts))
        case Conditional(condition=condition, then=then, otherwise=otherwise):
            return f"({drawn(condition)} ? {drawn(then)} : {drawn(otherwise)})"
        case Array(items=items):
            return f"[{', '.join(map(drawn, items))}]"
        case Map(pairs=pairs):
            return f"{{{', '.join(f'{drawn(key)}: {drawn(value)}' for key, value in pairs)}}}"
    raise AssertionError(node)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("1 + 2 * 3", "(1 + (2 * 3))"),
        ("1 - 2 - 3", "((1 - 2) - 3)"),
        ("2 ** 3 ** 2", "(2 ** (3 ** 2))"),
        ("-2 ** 2", "(- (2 ** 2))"),
        (
            "a or b and not c == d",
            "(a or (b and ((not c) == d)))",
        ),
        ("1 < 2 < 3", "((1 < 2) && (2 < 3))"),
        ("a + b ?? c", "(a + (b ?? c))"),
        ("a not in b", "(not (a in b))"),
        ("1..n - 1", "(1 .. (n - 1))"),
        ("a ? b : c ? d : e", "(a ? b : (c ? d : e))"),
        ("a ?: b", "(a ? a : b)"),
        ("if a { 1 } else if b { 2 } else { 3 }", "(a ? 1 : (b ? 2 : 3))"),
        ("let x = 1; let y = 2; x + y", "let x=1 in let y=2 in (x + y)"),
        ("a; b; c;", "a; b; c"),
        ("a.b?.c.d", "chain[a.['b']?.['c'].['d']]"),
        ("a?.b[0]", "chain[a?.['b']].[0]"),
        ("a?.[0]", "chain[a?.[0]]"),
        ("a[1:]", "a[1:_]"),
        ("a[:1]", "a[_:1]"),
        ("a[:]", "a[_:_]"),
        ("a.not.in", "a.['not'].['in']"),
        ("a.f(1,)", "call a.['f'](1)"),
        ("f()", "call f()"),
        ("a | f(b) | upper()", "upper(call f(a, b))"),
        ("::upper(a)", "upper(a)"),
        ("filter(a, # > 1)", "filter(a, {(# > 1)})"),
        ("map(a, .b)", "map(a, {#.['b']})"),
        ("map(a, {let x = #; x})", "map(a, {let x=# in x})"),
        ("reduce(a, #acc + #index, 0)", "reduce(a, {(#acc + #index)}, 0)"),
        ("count(a)", "count(a)"),
        ("{a: 1, 'b': 2, 3: 4, (c): 5,}", "{'a': 1, 'b': 2, '3': 4, c: 5}"),
        ("[1, [2],]", "[1, [2]]"),
        ("true and nil", "(True and None)"),
        ("0x1F + 0b11 + 0o17 + 1e3", "(((31 + 3) + 15) + 1000.0)"),
    ],
)
def test_trees(text: str, tree: str) -> None:
    assert drawn(parse(text, BUILTINS)) == tree


@pytest.mark.parametrize(
    ("text", "offset", "wrong"),
    [
        ("", 0, "unexpected end of expression"),
        ("1 +", 3, "unexpected end of expression"),
        ("1 2", 2, "unexpected number '2'"),
        ("(1", 2, "unexpected end of the expression where ')' must follow"),
        ("1)", 1, "unexpected bracket ')'"),
        ("a ?? b + c", 7, "?? cannot be mixed with +"),
        ("a not b", 6, "unexpected name 'b'"),
        ("{in: 1}", 1, "a key is a name, a number"),
        ("{a}", 2, "':' must follow"),
        ("[,]", 1, "unexpected operator ','"),
        ("#", 0, "unexpected operator '#'"),
        ("map(a)", 5, "map() needs at least 2 arguments"),
        ("map(a, 1; 2)", 8, "put a predicate of several steps in { and }"),
        ("let x = 1", 9, "';' must follow"),
        ("true.a", 4, "unexpected operator '.'"),
        ("a.", 2, "a name must follow"),
        ("9223372036854775808", 0, "does not fit into 64 bits"),
        ("1e400", 0, "beyond the largest float"),
        ("0x", 0, "is not a number"),
        ("1 + if a { 1 } else { 2 }", 4, "unexpected operator 'if'"),
    ],
)
def test_an_invalid_expression_is_reported_with_its_place(text: str, offset: int, wrong: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        parse(text, BUILTINS)

    assert (caught.value.offset, wrong in caught.value.message) == (offset, True)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("(" * (MAX_NESTING + 1) + "1" + ")" * (MAX_NESTING + 1), "nested more than"),
        ("!" * 1000 + "true", "nested more than"),
        ("[" * 1000, "nested more than"),
        ("a" + ".b" * 1000, "nested more than"),
        ("if a { 1 } else " * 1000 + "{ 2 }", "nested more than"),
        ("[" + "1," * MAX_NODES + "1]", "more than 10000 parts"),
        ("x" * (MAX_LENGTH + 1), "longer than"),
    ],
)
def test_expressions_have_a_size(text: str, wrong: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        parse(text, BUILTINS)

    assert wrong in caught.value.message


@pytest.mark.parametrize(
    "text", ["(" * 60 + "1" + ")" * 60, "!" * 60 + "true", "1" + " + 1" * 499, "a" + ".a" * 200]
)
def test_ordinary_expressions_are_not_too_large(text: str) -> None:
    assert parse(text, BUILTINS) is not None
