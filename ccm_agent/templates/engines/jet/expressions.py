"""
Parse Jet's expressions and assignments from tokens.

    expression = logical [ "?" expression ":" expression ]
    logical    = equality { ("&&" | "||") equality }            same precedence, left-associative
    equality   = comparison { ("==" | "!=") comparison }
    comparison = sum { ("<" | "<=" | ">" | ">=") sum }
    sum        = product { ("+" | "-") product }
    product    = unary { ("*" | "/" | "%") unary }
    unary      = "!" equality | ("-" | "+") operand | operand   `!a == b` is `!(a == b)`
    operand    = term { .field | "(" arguments ")" | "[" index "]" | "[" [start] ":" [end] "]" }
"""

from __future__ import annotations

from ccm_agent.templates.engines.gotypes import MISSING
from ccm_agent.templates.engines.jet.nodes import (
    Arguments,
    Assign,
    Binary,
    Call,
    Chain,
    Expression,
    Field,
    Index,
    Literal,
    Name,
    Negative,
    Not,
    Slice,
    Target,
    Ternary,
    Underscore,
)
from ccm_agent.templates.engines.lexer import Token, TokenKind
from ccm_agent.templates.engines.literals import parse_float, parse_integer, unquote, unquote_char
from ccm_agent.templates.engines.token_cursor import TokenCursor

_UINT_MAX = 2**64 - 1

# operator precedence; all operators are left-associative; the operand of `!` has precedence _EQUALITY or
# higher
_EQUALITY = 2
_BINDING = {
    **dict.fromkeys(("&&", "||"), 1),
    **dict.fromkeys(("==", "!="), _EQUALITY),
    **dict.fromkeys((">", ">=", "<", "<="), 3),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "%"), 5),
}


class ExpressionParser(TokenCursor):
    """Parses expressions at a position in the tokens of a template."""

    def _at(self, operator: str) -> bool:
        return self._on(TokenKind.OPERATOR) and self._token.text == operator

    def _at_word(self, word: str) -> bool:
        return self._on(TokenKind.KEYWORD) and self._token.text == word

    def _accept(self, operator: str) -> bool:
        if self._at(operator):
            self._position += 1
            return True
        return False

    def _expect(self, operator: str) -> None:
        if not self._accept(operator):
            raise self._unexpected(f"'{operator}'")

    def _string(self) -> str:
        if not self._on(TokenKind.STRING):
            raise self._unexpected("a quoted path")
        return self._unquoted(self._next())

    def _unquoted(self, token: Token) -> str:
        text = unquote(token.text)
        if text is None:
            raise self._fail(f"quoted text {token.text} has a malformed escape", token.line)
        return text

    # -- assignments

    def _assign_or_expression(self, *, in_range: bool) -> tuple[Assign | None, Expression | None]:
        expression = self._expression()
        if not (self._at(",") or self._at("=") or self._at(":=")):
            return None, expression
        targets = [self._target(expression)]
        while self._accept(","):
            targets.append(self._target(self._expression()))
        declares = self._at(":=")
        if not declares and not self._at("="):
            raise self._unexpected("',' or an assignment")
        self._position += 1
        if declares and not all(isinstance(target, (Name, Underscore)) for target in targets):
            raise self._fail(
                "':=' declares variables, and its left side cannot be a member; assign to a member with '='"
            )
        values = [self._expression()]
        while self._accept(","):
            values.append(self._expression())
        with_ok = False
        if in_range:
            if len(targets) > 2 or len(values) > 1:
                raise self._fail("range assigns one value to one or two names")
        elif len(targets) != len(values):
            with_ok = len(targets) == 2 and len(values) == 1 and isinstance(values[0], Index)
            if not with_ok:
                raise self._fail(f"{len(targets)} names cannot be given {len(values)} values")
        return Assign(tuple(targets), tuple(values), declares, with_ok), None

    def _target(self, expression: Expression) -> Target:
        if not isinstance(expression, (Name, Underscore, Field, Chain)):
            raise self._fail("only a name or a member can be assigned to")
        return expression

    # -- expressions

    def _expression(self) -> Expression:
        self._deeper()
        condition = self._binary(1)
        if self._accept("?"):
            left = self._expression()
            self._expect(":")
            condition = Ternary(condition, left, self._expression())
        self._depth -= 1
        return condition

    def _binary(self, least: int) -> Expression:
        """Parse operands that are joined by operators of at least this precedence."""
        left = self._unary()
        while self._on(TokenKind.OPERATOR) and _BINDING.get(self._token.text, 0) >= least:
            operator = self._next().text
            left = Binary(operator, left, self._binary(_BINDING[operator] + 1))
        return left

    def _unary(self) -> Expression:
        if self._at("!"):
            self._deeper()
            self._position += 1
            operand = self._binary(_EQUALITY)
            self._depth -= 1
            return Not(operand)
        if self._at("-") or self._at("+"):
            operator = self._next().text
            return Negative(operator, self._operand())
        return self._operand()

    def _operand(self) -> Expression:
        term = self._term()
        while True:
            if self._on(TokenKind.FIELD) and not self._token.spaced:
                term = self._members(term)
            if not isinstance(term, (Name, Call, Field, Chain, Index)):
                return term
            if self._accept("("):
                term = Call(term, self._arguments())
                self._expect(")")
            elif self._accept("["):
                term = self._index(term)
            else:
                return term

    def _members(self, term: Expression) -> Expression:
        names: list[str] = []
        while self._on(TokenKind.FIELD):
            names.append(self._next().text[1:])
        if isinstance(term, Literal):
            raise self._fail("a literal has no members")
        if isinstance(term, Field):
            return Field(term.names + tuple(names))
        return Chain(term, tuple(names))

    def _index(self, base: Expression) -> Expression:
        start = None if self._at(":") else self._expression()
        if self._accept(":"):
            end = None if self._at("]") else self._expression()
            self._expect("]")
            return Slice(base, start, end)
        self._expect("]")
        assert start is not None
        return Index(base, start)

    def _arguments(self) -> Arguments:
        expressions: list[Expression] = []
        while not self._at(")"):
            expressions.append(self._expression())
            if not self._accept(","):
                break
        slots = sum(isinstance(expression, Underscore) for expression in expressions)
        if slots > 1:
            raise self._fail("a call can use '_' only once")
        return Arguments(tuple(expressions), slots == 1)

    def _term(self) -> Expression:
        token = self._token
        if token.kind is TokenKind.OPERATOR and token.text == "(":
            self._position += 1
            expression = self._expression()
            self._expect(")")
            return expression
        if token.kind is TokenKind.KEYWORD and token.text == "nil":
            self._position += 1
            return Literal(MISSING)
        term = self._plain_term(token)
        if term is None:
            raise self._unexpected("a value")
        self._position += 1
        return term

    def _plain_term(self, token: Token) -> Expression | None:
        match token.kind:
            case TokenKind.NAME:
                return Name(token.text)
            case TokenKind.UNDERSCORE:
                return Underscore()
            case TokenKind.FIELD:
                return Field((token.text[1:],))
            case TokenKind.BOOL:
                return Literal(token.text == "true")
            case TokenKind.STRING:
                return Literal(self._unquoted(token))
            case TokenKind.CHAR:
                number = unquote_char(token.text)
                if number is None:
                    raise self._fail(
                        f"{token.text} is not one character; text is written with double quotes", token.line
                    )
                return Literal(float(number))
            case TokenKind.NUMBER:
                return Literal(self._number(token))
        return None

    def _number(self, token: Token) -> float:
        integer = parse_integer(token.text) if "_" not in token.text else None
        if integer is not None and -(2**63) <= integer <= _UINT_MAX:
            return float(integer)
        number = parse_float(token.text)
        if number is None or (integer is None and not any(char in token.text for char in ".eE")):
            raise self._fail(f"number {token.text!r} is malformed", token.line)
        if integer is not None:
            raise self._fail(f"number {token.text} is too large", token.line)
        return number
