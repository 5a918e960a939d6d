"""
Build the syntax tree from tokens, by operator precedence.

Names are not resolved here. Only the language's own functions have a special grammar: the second argument of `filter`, `map` and
similar functions is a predicate, in which `#` and `.field` can be used.
"""

from __future__ import annotations

from typing import TypeVar

from ccm_agent.templates.expr.evaluation_errors import EvaluationError
from ccm_agent.templates.expr.lexer import (
    BRACKET,
    BYTES,
    END,
    NAME,
    NUMBER,
    OPERATOR,
    STRING,
    Token,
    tokenize,
)
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
from ccm_agent.templates.values import INT_MAX, INT_MIN

MAX_LENGTH = 256 * 1024  # in characters of an expression
MAX_NODES = 10_000
# Nesting of brackets, operands and arguments. Each level takes some frames of Python's stack, and a caller leaves
# about 900 frames.
MAX_NESTING = 120
MAX_DEPTH = 250  # height of the tree; a long chain of members or calls is high without being nested

_N = TypeVar("_N", bound=Node)

UNARY = {"not": 50, "!": 50, "-": 90, "+": 90}
BINARY = {
    "|": 0,
    "or": 10,
    "||": 10,
    "and": 15,
    "&&": 15,
    **dict.fromkeys(
        ("==", "!=", "<", ">", ">=", "<=", "in", "matches", "contains", "startsWith", "endsWith"), 20
    ),
    "..": 25,
    "+": 30,
    "-": 30,
    "*": 60,
    "/": 60,
    "%": 60,
    "**": 100,
    "^": 100,
    "??": 500,
}
_RIGHT = ("**", "^")
_COMPARISONS = ("<", ">", ">=", "<=")
_NEGATABLE = ("contains", "matches", "startsWith", "endsWith", "in")

_WORDS = {"true": True, "false": False, "nil": None}

_OPTIONAL_PREDICATE = ("count", "sum")
_THIRD_ARGUMENT = ("sortBy", "reduce")
# fmt: off
PREDICATES = frozenset({
    "all", "none", "any", "one", "filter", "map", "count", "sum", "find", "findIndex", "findLast", "findLastIndex",
    "groupBy", "sortBy", "reduce",
})
# fmt: on


def parse(text: str, builtins: frozenset[str]) -> Node:
    """
    Parse an expression to its tree.

    Args:
        text: The expression.
        builtins: The functions of the language itself; other called names belong to the environment.

    Raises:
        EvaluationError: The text does not parse, or the expression is too large.
    """
    if len(text) > MAX_LENGTH:
        raise EvaluationError(f"an expression may not be longer than {MAX_LENGTH} characters", 0)
    return _Parser(tokenize(text), builtins).parse()


class _Parser:
    def __init__(self, tokens: list[Token], builtins: frozenset[str]) -> None:
        self.tokens = tokens
        self.at = 0
        self.current = tokens[0]
        self.builtins = builtins
        self.predicates = 0  # current nesting of predicates
        self.nesting = 0
        self.nodes = 0

    def parse(self) -> Node:
        node = self.sequence()
        if self.current.kind != END:
            raise self.unexpected()
        return node

    # tokens

    def advance(self) -> Token:
        token = self.current
        if token.kind == END:
            raise EvaluationError("unexpected end of expression", token.offset)
        self.at += 1
        self.current = self.tokens[self.at]
        return token

    def is_operator(self, text: str) -> bool:
        return self.current.text == text and self.current.kind == OPERATOR

    def is_bracket(self, text: str) -> bool:
        return self.current.text == text and self.current.kind == BRACKET

    def expect(self, kind: str, text: str = "") -> Token:
        if self.current.kind != kind or (text and self.current.text != text):
            raise self.unexpected(f"{text!r}" if text else kind)
        return self.advance()

    def unexpected(self, wanted: str = "") -> EvaluationError:
        tail = f" where {wanted} must follow" if wanted else ""
        return EvaluationError(f"unexpected {self.current}{tail}", self.current.offset)

    def keep(self, node: _N) -> _N:
        """Count a new node against the limits."""
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise EvaluationError(f"the expression has more than {MAX_NODES} parts", node.offset)
        if node.depth > MAX_DEPTH:
            raise EvaluationError(
                f"the expression is nested more than {MAX_DEPTH} deep; use let to split it", node.offset
            )
        return node

    # expressions

    def sequence(self) -> Node:
        parts = [self.expression(0)]
        while self.is_operator(";"):
            self.advance()
            if self.current.kind == END:
                break
            parts.append(self.expression(0))
        return parts[0] if len(parts) == 1 else self.keep(Sequence(parts[0].offset, parts))

    def expression(self, precedence: int) -> Node:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise EvaluationError(
                f"the expression is nested more than {MAX_NESTING} deep", self.current.offset
            )
        if precedence == 0 and self.is_operator("let"):
            node = self.let()
        elif precedence == 0 and self.is_operator("if"):
            node = self.conditional_if()
        else:
            node = self.operators(self.primary(), precedence)
            if precedence == 0:
                node = self.conditional(node)
        self.nesting -= 1
        return node

    def operators(self, left: Node, precedence: int) -> Node:
        previous = ""
        while self.current.kind == OPERATOR:
            negation = self.negation(precedence) if self.current.text == "not" else None
            operator = self.current
            if self.current.text == "not" or BINARY.get(operator.text, -1) < precedence:
                break
            self.advance()
            if operator.text == "|":
                left = self.call(self.expect(NAME), [left])
            elif previous == "??" and operator.text != "??":
                raise EvaluationError(
                    f"?? cannot be mixed with {operator.text}: put one of them in parentheses",
                    operator.offset,
                )
            elif operator.text in _COMPARISONS:
                left = self.comparison(left, operator)
            else:
                level = BINARY[operator.text]
                right = self.expression(level if operator.text in _RIGHT else level + 1)
                left = self.keep(Binary(operator.offset, operator.text, left, right))
                if negation is not None:
                    left = self.keep(Unary(negation.offset, "not", left))
            previous = operator.text
        return left

    def negation(self, precedence: int) -> Token | None:
        """
        Consume the `not` of `not in` and similar operators, unless the operator's precedence is too low at
        this position.
        """
        following = self.tokens[self.at + 1]
        if following.text not in _NEGATABLE or following.kind != OPERATOR:
            self.advance()
            raise self.unexpected()
        if BINARY[following.text] < precedence:
            return None
        return self.advance()

    def comparison(self, left: Node, operator: Token) -> Node:
        """Convert `a < b < c` to `a < b && b < c`."""
        whole: Node | None = None
        while True:
            right = self.expression(BINARY[operator.text] + 1)
            pair = self.keep(Binary(operator.offset, operator.text, left, right))
            whole = pair if whole is None else self.keep(Binary(operator.offset, "&&", whole, pair))
            if self.current.kind != OPERATOR or self.current.text not in _COMPARISONS:
                return whole
            left = right
            operator = self.advance()

    def let(self) -> Node:
        self.advance()
        name = self.expect(NAME)
        self.expect(OPERATOR, "=")
        value = self.expression(0)
        self.expect(OPERATOR, ";")
        return self.keep(Let(name.offset, name.text, value, self.sequence()))

    def conditional_if(self) -> Node:
        start = self.advance()
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise EvaluationError(f"the expression is nested more than {MAX_NESTING} deep", start.offset)
        condition = self.expression(0)
        then = self.block()
        self.expect(OPERATOR, "else")
        otherwise = self.conditional_if() if self.is_operator("if") else self.block()
        self.nesting -= 1
        return self.keep(Conditional(start.offset, condition, then, otherwise))

    def block(self) -> Node:
        self.expect(BRACKET, "{")
        body = self.sequence()
        self.expect(BRACKET, "}")
        return body

    def conditional(self, node: Node) -> Node:
        while self.is_operator("?"):
            mark = self.advance()
            if self.is_operator(":"):
                self.advance()
                node = self.keep(Conditional(mark.offset, node, node, self.expression(0)))
                continue
            then = self.expression(0)
            self.expect(OPERATOR, ":")
            node = self.keep(Conditional(mark.offset, node, then, self.expression(0)))
        return node

    # operands

    def primary(self) -> Node:
        token = self.current
        if token.kind == OPERATOR:
            if token.text in UNARY:
                self.advance()
                operand = self.expression(UNARY[token.text])
                return self.postfix(self.keep(Unary(token.offset, token.text, operand)))
            if self.predicates and token.text in ("#", "."):
                return self.postfix(self.pointer())
            if token.text == "::":
                self.advance()
                return self.postfix(self.call(self.expect(NAME), []))
            raise self.unexpected()
        if token.kind == BRACKET:
            if token.text == "(":
                self.advance()
                inner = self.sequence()
                self.expect(BRACKET, ")")
                return self.postfix(inner)
            if token.text == "[":
                return self.postfix(self.array())
            if token.text == "{":
                return self.postfix(self.map())
            raise self.unexpected()
        return self.literal_or_name()

    def literal_or_name(self) -> Node:
        token = self.advance()
        if token.kind == NUMBER:
            return self.keep(Constant(token.offset, _number(token)))
        if token.kind == STRING:
            return self.postfix(self.keep(Constant(token.offset, token.text)))
        if token.kind == BYTES:
            return self.postfix(self.keep(Constant(token.offset, token.text.encode("latin-1"))))
        if token.text in _WORDS:
            return self.keep(Constant(token.offset, _WORDS[token.text]))
        if self.is_bracket("("):
            return self.postfix(self.call(token, []))
        return self.postfix(self.keep(Name(token.offset, token.text)))

    def pointer(self) -> Node:
        """Parse `#` or `#index`; nothing is consumed before the `.` of `.field`."""
        token = self.current
        name = ""
        if token.text == "#":
            self.advance()
            if self.current.kind == NAME:
                name = self.advance().text
        return self.keep(Pointer(token.offset, name))

    def array(self) -> Node:
        start = self.advance()
        items: list[Node] = []
        while not self.is_bracket("]"):
            if items:
                self.expect(OPERATOR, ",")
                if self.is_bracket("]"):
                    break
            items.append(self.expression(0))
        self.advance()
        return self.keep(Array(start.offset, items))

    def map(self) -> Node:
        start = self.advance()
        pairs: list[tuple[Node, Node]] = []
        while not self.is_bracket("}"):
            if pairs:
                self.expect(OPERATOR, ",")
                if self.is_bracket("}"):
                    break
            key = self.map_key()
            self.expect(OPERATOR, ":")
            pairs.append((key, self.expression(0)))
        self.advance()
        return self.keep(Map(start.offset, pairs))

    def map_key(self) -> Node:
        if self.current.kind in (NUMBER, STRING, NAME):
            token = self.advance()
            return self.keep(Constant(token.offset, token.text))
        if self.is_bracket("("):
            return self.expression(0)
        raise EvaluationError(
            f"unexpected {self.current}: a key is a name, a number, text in quotes or an expression in parentheses",
            self.current.offset,
        )

    # calls

    def call(self, name: Token, arguments: list[Node]) -> Node:
        """Parse a call; `arguments` contains the piped value, which becomes the first argument."""
        if name.text in PREDICATES:
            return self.keep(Builtin(name.offset, name.text, self.predicate_arguments(name, arguments)))
        if name.text in self.builtins:
            return self.keep(Builtin(name.offset, name.text, self.arguments(arguments)))
        callee = self.keep(Name(name.offset, name.text))
        return self.keep(Call(name.offset, callee, self.arguments(arguments)))

    def arguments(self, arguments: list[Node]) -> list[Node]:
        piped = len(arguments)
        self.expect(BRACKET, "(")
        while not self.is_bracket(")"):
            if len(arguments) > piped:
                self.expect(OPERATOR, ",")
                if self.is_bracket(")"):
                    break
            arguments.append(self.expression(0))
        self.advance()
        return arguments

    def predicate_arguments(self, name: Token, arguments: list[Node]) -> list[Node]:
        piped = len(arguments)
        most = 3 if name.text in _THIRD_ARGUMENT else 2
        least = 1 if name.text in _OPTIONAL_PREDICATE else 2
        self.expect(BRACKET, "(")
        while len(arguments) < most:
            if self.is_bracket(")"):
                if len(arguments) >= least:
                    break
                raise EvaluationError(f"{name.text}() needs at least {least} arguments", self.current.offset)
            if len(arguments) > piped:
                self.expect(OPERATOR, ",")
            arguments.append(self.predicate() if len(arguments) == 1 else self.expression(0))
        if self.is_operator(","):
            self.advance()
        self.expect(BRACKET, ")")
        return arguments

    def predicate(self) -> Node:
        start = self.current
        self.predicates += 1
        if self.is_bracket("{"):
            body = self.block()
        else:
            body = self.expression(0)
            if self.is_operator(";"):
                raise EvaluationError("put a predicate of several steps in { and }", self.current.offset)
        self.predicates -= 1
        return self.keep(Predicate(start.offset, body))

    # suffixes of operands

    def postfix(self, node: Node) -> Node:
        while self.current.kind in (OPERATOR, BRACKET):
            mark = self.current.text
            if mark in (".", "?."):
                self.advance()
                if mark == "?." and self.is_bracket("["):
                    node = self.index(node, is_optional=True)
                else:
                    node = self.member(node, is_optional=mark == "?.")
            elif mark == "[":
                node = self.index(node, is_optional=False)
            else:
                break
        return node

    def member(self, node: Node, *, is_optional: bool) -> Node:
        name = self.current
        if name.kind != NAME and not (name.kind == OPERATOR and name.text.isalpha()):
            raise self.unexpected("a name")
        self.advance()
        key = self.keep(Constant(name.offset, name.text))
        is_chain = isinstance(node, Chain)
        base = node.inner if isinstance(node, Chain) else node
        member = self.keep(Member(name.offset, base, key, is_optional))
        result: Node = member
        if self.is_bracket("("):
            member.is_method = True
            result = self.keep(Call(name.offset, member, self.arguments([])))
        if is_chain or is_optional:
            result = self.keep(Chain(name.offset, result))
        return result

    def index(self, node: Node, *, is_optional: bool) -> Node:
        bracket = self.advance()
        start: Node | None = None
        if not self.is_operator(":"):
            start = self.expression(0)
            if not self.is_operator(":"):
                self.expect(BRACKET, "]")
                member = self.keep(Member(bracket.offset, node, start, is_optional))
                return self.keep(Chain(bracket.offset, member)) if is_optional else member
        self.advance()
        stop = None if self.is_bracket("]") else self.expression(0)
        self.expect(BRACKET, "]")
        return self.keep(Slice(bracket.offset, node, start, stop))


def _number(token: Token) -> int | float:
    text = token.text.replace("_", "").lower()
    try:
        if text.startswith(("0x", "0b", "0o")) and ("." not in text and (text[1] == "x" or "e" not in text)):
            value: int | float = int(text, 0)
        elif "." in text or "e" in text:
            value = float(text)
        else:
            value = int(text)
    except ValueError:
        raise EvaluationError(f"{token.text!r} is not a number", token.offset) from None
    if isinstance(value, int) and not INT_MIN <= value <= INT_MAX:
        raise EvaluationError("this integer does not fit into 64 bits", token.offset)
    if value == float("inf"):
        raise EvaluationError("this number is beyond the largest float", token.offset)
    return value
