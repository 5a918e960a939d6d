"""
Build the syntax tree of a Go template from its tokens.

Functions and variables are looked up while parsing, as in Go. A template with an unknown name is refused before
it runs, even if the name is in a branch that is never taken.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from ccm_agent.model.errors import Place, TemplateError
from ccm_agent.templates.engines.go.lexer import tokenize
from ccm_agent.templates.engines.go.nodes import (
    Action,
    Argument,
    Body,
    Bool,
    Break,
    Chain,
    Continue,
    Dot,
    Field,
    Identifier,
    If,
    Include,
    Nil,
    Number,
    Pipeline,
    Range,
    Statement,
    String,
    Template,
    Variable,
    With,
)
from ccm_agent.templates.engines.go.numbers import parse_number
from ccm_agent.templates.engines.lexer import Token, TokenKind
from ccm_agent.templates.engines.literals import unquote
from ccm_agent.templates.engines.nodes import Marker, Text
from ccm_agent.templates.engines.token_cursor import TokenCursor


def parse(text: str, name: str, left: str, right: str, functions: Container[str]) -> Template:
    """
    Parse a template.

    Args:
        text: The template.
        name: Its name in errors and in `template` actions.
        left: The opening delimiter.
        right: The closing delimiter.
        functions: The names of functions.

    Raises:
        TemplateError: The template does not parse; the error includes the line.
    """
    try:
        return _Parser(tokenize(text, name, left, right), name, functions).template()
    except RecursionError:
        raise TemplateError("template is nested too deeply", place=Place(source=name)) from None


class _Parser(TokenCursor):
    def __init__(self, tokens: list[Token], name: str, functions: Container[str]) -> None:
        super().__init__(tokens, name)
        self._functions = functions
        self._variables = ["$"]
        self._ranges = 0
        self._bodies: dict[str, Body] = {}

    # -- templates

    def template(self) -> Template:
        body: list[Statement] = []
        while not self._on(TokenKind.END):
            following = self._tokens[min(self._position + 1, len(self._tokens) - 1)]
            if (
                self._on(TokenKind.LEFT)
                and following.kind is TokenKind.KEYWORD
                and following.text == "define"
            ):
                self._position += 2
                self._define()
                continue
            statement = self._statement()
            if isinstance(statement, Marker):
                raise self._fail(f"'{statement.word}' belongs to nothing: nothing is open", statement.line)
            body.append(statement)
        self._keep(self._name, tuple(body))
        return Template(self._name, self._bodies)

    def _keep(self, name: str, body: Body) -> None:
        """
        Store a template. An empty template never replaces another one. A second template with content is an error.
        """
        known = self._bodies.get(name)
        if known is None or _is_empty(known):
            self._bodies[name] = body
        elif not _is_empty(body):
            raise self._fail(f"template {name!r} is defined twice")

    def _define(self) -> None:
        name = self._template_name("define")
        self._expect_right()
        self._keep(name, self._own_body("define"))

    def _own_body(self, what: str) -> Body:
        """Parse the body of another template, which cannot use the variables of this one."""
        variables, ranges = self._variables, self._ranges
        self._variables, self._ranges = ["$"], 0
        self._deeper()
        body, end = self._body()
        if end.word != "end":
            raise self._fail(f"'{end.word}' is not allowed in a {what}", end.line)
        self._depth -= 1
        self._variables, self._ranges = variables, ranges
        return body

    def _template_name(self, what: str) -> str:
        if not self._on(TokenKind.STRING):
            raise self._unexpected(f"the name of the template to {what}, in quotes,")
        return self._string(self._next())

    # -- statements

    def _body(self) -> tuple[Body, Marker]:
        statements: list[Statement] = []
        while not self._on(TokenKind.END):
            statement = self._statement()
            if isinstance(statement, Marker):
                return tuple(statements), statement
            statements.append(statement)
        raise self._fail("the template ends inside a block: an 'end' is missing")

    def _statement(self) -> Statement:
        token = self._token
        if token.kind is TokenKind.TEXT:
            self._position += 1
            return Text(token.line, token.text)
        if token.kind is not TokenKind.LEFT:
            raise self._unexpected("text or an action")
        self._position += 1
        line = self._token.line
        control = _CONTROLS.get(self._token.text) if self._on(TokenKind.KEYWORD) else None
        if control is not None:
            self._position += 1
            self._deeper()
            statement = control(self, line)
            self._depth -= 1
            return statement
        return Action(line, self._pipeline("command"))

    def _end(self, line: int) -> Marker:
        self._expect_right()
        return Marker(line, "end")

    def _else(self, line: int) -> Marker:
        if not self._on(TokenKind.KEYWORD, "if") and not self._on(TokenKind.KEYWORD, "with"):
            self._expect_right()
        return Marker(line, "else")

    def _if(self, line: int) -> Statement:
        return If(line, *self._control("if"))

    def _with(self, line: int) -> Statement:
        return With(line, *self._control("with"))

    def _range(self, line: int) -> Statement:
        return Range(line, *self._control("range"))

    def _control(self, word: str) -> tuple[Pipeline, Body, Body]:
        known = len(self._variables)
        pipeline = self._pipeline(word)
        self._ranges += word == "range"
        body, end = self._body()
        self._ranges -= word == "range"
        otherwise: Body = ()
        if end.word == "else":
            otherwise = self._otherwise(word, end.line)
        del self._variables[known:]
        return pipeline, body, otherwise

    def _otherwise(self, word: str, line: int) -> Body:
        if word in ("if", "with") and self._on(TokenKind.KEYWORD, word):
            self._position += 1
            self._deeper()
            nested = _CONTROLS[word](self, line)
            self._depth -= 1
            return (nested,)
        body, end = self._body()
        if end.word != "end":
            raise self._fail("an 'else' follows an 'else'", end.line)
        return body

    def _break(self, line: int) -> Break:
        self._check_in_range("break")
        return Break(line)

    def _continue(self, line: int) -> Continue:
        self._check_in_range("continue")
        return Continue(line)

    def _check_in_range(self, word: str) -> None:
        self._expect_right()
        if not self._ranges:
            raise self._fail(f"'{word}' is outside a range")

    def _include(self, line: int) -> Include:
        name = self._template_name("include")
        if self._on(TokenKind.RIGHT):
            self._position += 1
            return Include(line, name, None)
        return Include(line, name, self._pipeline("template"))

    def _block(self, line: int) -> Include:
        name = self._template_name("define")
        pipeline = self._pipeline("block")
        self._keep(name, self._own_body("block"))
        return Include(line, name, pipeline)

    # -- pipelines

    def _pipeline(self, word: str, end: str = "") -> Pipeline:
        """Parse a pipeline up to the end of the action or up to `end`, which is consumed."""
        variables, assigns = self._declarations(word)
        commands: list[tuple[Argument, ...]] = []
        while not self._at_end(end):
            commands.append(self._command(first=not commands))
        if not commands:
            raise self._fail(f"a value is missing in '{word}'")
        self._position += 1
        return Pipeline(variables, assigns, tuple(commands))

    def _at_end(self, end: str) -> bool:
        return self._on(TokenKind.OPERATOR, end) if end else self._on(TokenKind.RIGHT)

    def _declarations(self, word: str) -> tuple[tuple[str, ...], bool]:
        names: list[str] = []
        while self._on(TokenKind.VARIABLE):
            following = self._tokens[self._position + 1]
            if following.kind is not TokenKind.OPERATOR or following.text not in ("=", ":=", ","):
                if names:
                    raise self._unexpected("an assignment to the variables")
                return (), False
            name = self._next().text
            mark = self._next().text
            names.append(name)
            self._variables.append(name)
            if mark != ",":
                return tuple(names), mark == "="
            if word != "range" or len(names) > 1:
                raise self._fail(f"'{word}' declares too many variables: only 'range' can have two")
        if names:
            raise self._unexpected("a second variable")
        return (), False

    def _command(self, *, first: bool) -> tuple[Argument, ...]:
        arguments: list[Argument] = []
        while True:
            operand = self._operand()
            if operand is not None:
                arguments.append(operand)
                if self._token.spaced:
                    continue
            if self._on(TokenKind.OPERATOR, "|"):
                self._position += 1
                break
            if self._on(TokenKind.RIGHT) or self._on(TokenKind.OPERATOR, ")"):
                break
            raise self._unexpected("an argument")
        if not arguments:
            raise self._unexpected("a command")
        if not first and isinstance(arguments[0], (Bool, Dot, Nil, Number, String)):
            raise self._fail("a value can be piped into a function only")
        return tuple(arguments)

    def _operand(self) -> Argument | None:
        term = self._term()
        names: list[str] = []
        while term is not None and self._on(TokenKind.FIELD) and not self._token.spaced:
            names.append(self._next().text[1:])
        if term is None or not names:
            return term
        if isinstance(term, Field):
            return Field(term.names + tuple(names))
        if isinstance(term, Variable):
            return Variable(term.name, tuple(names))
        if isinstance(term, (Bool, Dot, Nil, Number, String)):
            raise self._fail("a literal has no fields")
        return Chain(term, tuple(names))

    def _term(self) -> Argument | None:
        token = self._token
        if token.kind is TokenKind.OPERATOR and token.text == "(":
            self._position += 1
            self._deeper()
            pipeline = self._pipeline("parentheses", ")")
            self._depth -= 1
            return pipeline
        make = _TERMS.get(token.kind)
        if make is None and not (token.kind is TokenKind.KEYWORD and token.text == "nil"):
            return None
        self._position += 1
        return make(self, token) if make is not None else Nil()

    def _identifier(self, token: Token) -> Argument:
        if token.text not in self._functions:
            raise self._fail(f"function {token.text!r} is not known", token.line)
        return Identifier(token.text)

    def _variable(self, token: Token) -> Argument:
        if token.text not in self._variables:
            raise self._fail(f"variable {token.text!r} does not exist here", token.line)
        return Variable(token.text)

    def _field(self, token: Token) -> Argument:
        return Field((token.text[1:],))

    def _dot(self, token: Token) -> Argument:
        return Dot()

    def _bool(self, token: Token) -> Argument:
        return Bool(token.text == "true")

    def _text(self, token: Token) -> Argument:
        return String(self._string(token))

    def _string(self, token: Token) -> str:
        text = unquote(token.text)
        if text is None:
            raise self._fail(f"quoted text {token.text} has a malformed escape", token.line)
        return text

    def _number(self, token: Token) -> Argument:
        number = parse_number(token.text)
        if number is None:
            raise self._fail(f"number {token.text} is malformed or too large", token.line)
        return number


def _is_empty(body: Body) -> bool:
    return all(isinstance(statement, Text) and not statement.text.strip() for statement in body)


_CONTROLS: dict[str, Callable[[_Parser, int], Statement]] = {
    "block": _Parser._block,
    "break": _Parser._break,
    "continue": _Parser._continue,
    "else": _Parser._else,
    "end": _Parser._end,
    "if": _Parser._if,
    "range": _Parser._range,
    "template": _Parser._include,
    "with": _Parser._with,
}

_TERMS: dict[TokenKind, Callable[[_Parser, Token], Argument]] = {
    TokenKind.NAME: _Parser._identifier,
    TokenKind.VARIABLE: _Parser._variable,
    TokenKind.FIELD: _Parser._field,
    TokenKind.DOT: _Parser._dot,
    TokenKind.BOOL: _Parser._bool,
    TokenKind.STRING: _Parser._text,
    TokenKind.NUMBER: _Parser._number,
    TokenKind.CHAR: _Parser._number,
}
