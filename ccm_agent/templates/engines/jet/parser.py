"""
Build the syntax tree of a Jet template from its tokens: `template = { extends | import } body`; expressions are in
`expressions.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from ccm_agent.model.errors import Place, TemplateError
from ccm_agent.templates.engines.jet.expressions import ExpressionParser
from ccm_agent.templates.engines.jet.lexer import tokenize
from ccm_agent.templates.engines.jet.nodes import (
    Action,
    Block,
    Body,
    Call,
    Catch,
    Command,
    Expression,
    If,
    Include,
    Parameter,
    Range,
    Return,
    Statement,
    Template,
    Try,
    Yield,
)
from ccm_agent.templates.engines.lexer import Token, TokenKind
from ccm_agent.templates.engines.nodes import Marker, Text


def parse(text: str, name: str, left: str, right: str) -> Template:
    """
    Parse a template.

    Args:
        text: The template.
        name: Its name in errors.
        left: The opening delimiter.
        right: The closing delimiter.

    Raises:
        TemplateError: The template does not parse; the error includes the line.
    """
    try:
        return _Parser(tokenize(text, name, left, right), name).template()
    except RecursionError:
        raise TemplateError("template is nested too deeply", place=Place(source=name)) from None


class _Parser(ExpressionParser):
    def __init__(self, tokens: list[Token], name: str) -> None:
        super().__init__(tokens, name)
        self._blocks: dict[str, Block] = {}

    def template(self) -> Template:
        extends, imports = self._header()
        body: list[Statement] = []
        while not self._on(TokenKind.END):
            statement = self._statement()
            if isinstance(statement, Marker):
                raise TemplateError(
                    f"'{statement.word}' belongs to nothing: no block is open",
                    place=Place(source=self._name, line=statement.line),
                )
            body.append(statement)
        return Template(self._name, tuple(body), self._blocks, extends, imports)

    def _header(self) -> tuple[str, tuple[str, ...]]:
        """
        Parse `extends` and `import`. White space before them is dropped; without them, white space before
        the first action.
        """
        extends = ""
        imports: list[str] = []
        while True:
            if self._on(TokenKind.TEXT) and not self._token.text.strip():
                self._position += 1
            elif self._on(TokenKind.LEFT) and self._tokens[self._position + 1].text in (
                "extends",
                "import",
            ):
                self._position += 1
                word = self._next()
                path = self._string()
                if not path:
                    raise self._fail(f"'{word.text}' needs the name of a template", word.line)
                if word.text == "import":
                    imports.append(path)
                elif extends or imports:
                    raise self._fail("'extends' is allowed only once, before every 'import'", word.line)
                else:
                    extends = path
                self._expect_right()
            else:
                return extends, tuple(imports)

    def _statement(self) -> Statement:
        token = self._token
        if token.kind is TokenKind.TEXT:
            self._position += 1
            return Text(token.line, token.text)
        if token.kind is not TokenKind.LEFT:
            raise self._unexpected("text or an action")
        self._position += 1
        self._deeper()
        statement = self._action()
        self._depth -= 1
        return statement

    def _action(self) -> Statement:
        token = self._token
        if token.kind is TokenKind.KEYWORD:
            if token.text in ("import", "extends"):
                raise self._fail(f"'{token.text}' must be at the beginning of the template")
            control = _CONTROLS.get(token.text)
            if control is not None:
                self._position += 1
                return control(self, token.line)
        return self._plain_action(token.line)

    def _plain_action(self, line: int) -> Action:
        assign, expression = self._assign_or_expression(in_range=False)
        if assign is not None:
            if self._on(TokenKind.RIGHT):
                self._position += 1
                return Action(line, assign, ())
            if not self._accept(";"):
                raise self._unexpected("';' or the end of the action")
            expression = self._expression()
        assert expression is not None
        return Action(line, assign, self._pipeline(expression))

    def _pipeline(self, first: Expression) -> tuple[Command, ...]:
        commands = [self._command(first)]
        while not self._on(TokenKind.RIGHT):
            if not self._accept("|"):
                raise self._unexpected("'|' or the end of the action")
            if self._token.kind not in (TokenKind.NAME, TokenKind.FIELD):
                raise self._unexpected("a function")
            commands.append(self._command(self._expression()))
        self._position += 1
        return tuple(commands)

    def _command(self, base: Expression) -> Command:
        if isinstance(base, Call):
            return Command(base.base, base.arguments)
        return Command(base, self._arguments()) if self._accept(":") else Command(base)

    def _body(self, *ends: str) -> tuple[Body, Statement]:
        """
        Parse statements up to the one that ends the body (a Marker of these words, or a Catch). Return
        both.
        """
        statements: list[Statement] = []
        while not self._on(TokenKind.END):
            statement = self._statement()
            word = (
                statement.word
                if isinstance(statement, Marker)
                else "catch"
                if isinstance(statement, Catch)
                else ""
            )
            if word in ends:
                return tuple(statements), statement
            statements.append(statement)
        raise self._fail("the template ends inside a block: an 'end' is missing")

    def _end(self, line: int) -> Marker:
        self._expect_right()
        return Marker(line, "end")

    def _content(self, line: int) -> Marker:
        self._expect_right()
        return Marker(line, "content")

    def _else(self, line: int) -> Marker:
        if not self._at_word("if"):
            self._expect_right()
        return Marker(line, "else")

    def _if(self, line: int) -> If:
        assign, condition = self._assign_or_expression(in_range=False)
        if assign is not None:
            self._expect(";")
            condition = self._expression()
        assert condition is not None
        self._expect_right()
        body, end = self._body("else", "end")
        otherwise: Body = ()
        if isinstance(end, Marker) and end.word == "else":
            if self._at_word("if"):
                self._position += 1
                otherwise = (self._nested_if(end.line),)
            else:
                otherwise = self._body("end")[0]
        return If(line, assign, condition, body, otherwise)

    def _nested_if(self, line: int) -> If:
        self._deeper()
        nested = self._if(line)
        self._depth -= 1
        return nested

    def _range(self, line: int) -> Range:
        assign, source = self._assign_or_expression(in_range=True)
        if assign is not None:
            source = assign.values[0]
        assert source is not None
        self._expect_right()
        body, end = self._body("else", "end")
        otherwise: Body = ()
        if isinstance(end, Marker) and end.word == "else":
            otherwise = self._body("end")[0]
        return Range(line, assign, source, body, otherwise)

    def _try(self, line: int) -> Try:
        self._expect_right()
        body, end = self._body("catch", "end")
        return Try(line, body, end if isinstance(end, Catch) else None)

    def _catch(self, line: int) -> Catch:
        name = ""
        if self._on(TokenKind.NAME):
            name = self._next().text
        self._expect_right()
        return Catch(line, name, self._body("end")[0])

    def _block(self, line: int) -> Block:
        if not self._on(TokenKind.NAME):
            raise self._unexpected("the block's name")
        name = self._next().text
        parameters = self._parameters(declaring=True)
        context = None if self._on(TokenKind.RIGHT) else self._expression()
        self._expect_right()
        body, end = self._body("content", "end")
        content = None
        if isinstance(end, Marker) and end.word == "content":
            content = self._body("end")[0]
        block = Block(line, name, parameters, context, body, content)
        self._blocks[name] = block
        return block

    def _yield(self, line: int) -> Yield:
        if self._at_word("content"):
            self._position += 1
            context = None if self._on(TokenKind.RIGHT) else self._expression()
            self._expect_right()
            return Yield(line, "", context=context)
        if not self._on(TokenKind.NAME):
            raise self._unexpected("a block's name")
        name = self._next().text
        parameters = self._parameters(declaring=False)
        context = None
        if not self._on(TokenKind.RIGHT) and not self._at_word("content"):
            context = self._expression()
        content = None
        if self._at_word("content"):
            self._position += 1
            self._expect_right()
            content = self._body("end")[0]
        else:
            self._expect_right()
        return Yield(line, name, parameters, context, content)

    def _parameters(self, *, declaring: bool) -> tuple[Parameter, ...]:
        self._expect("(")
        parameters: list[Parameter] = []
        while not self._at(")"):
            parameters.append(self._parameter(declaring=declaring))
            if not self._accept(","):
                break
        self._expect(")")
        return tuple(parameters)

    def _parameter(self, *, declaring: bool) -> Parameter:
        following = self._tokens[min(self._position + 1, len(self._tokens) - 1)]
        if self._on(TokenKind.NAME) and following.kind is TokenKind.OPERATOR:
            if following.text in ("=", ":="):
                name = self._next().text
                self._position += 1
                return Parameter(name, self._expression())
            if following.text in (",", ")"):
                return Parameter(self._next().text, None)
        if declaring:
            raise self._unexpected("a parameter's name, with or without '=' and its default")
        return Parameter("", self._expression())

    def _include(self, line: int) -> Include:
        name = self._expression()
        context = None if self._on(TokenKind.RIGHT) else self._expression()
        self._expect_right()
        return Include(line, name, context)

    def _return(self, line: int) -> Return:
        value = self._expression()
        self._expect_right()
        return Return(line, value)


_CONTROLS: dict[str, Callable[[_Parser, int], Statement]] = {
    "include": _Parser._include,
    "block": _Parser._block,
    "end": _Parser._end,
    "yield": _Parser._yield,
    "content": _Parser._content,
    "if": _Parser._if,
    "else": _Parser._else,
    "range": _Parser._range,
    "try": _Parser._try,
    "catch": _Parser._catch,
    "return": _Parser._return,
}
