"""A position in the tokens of a template: the common part of the parsers for Jet and Go templates."""

from __future__ import annotations

from ccm_agent.model.errors import Place, TemplateError
from ccm_agent.templates.engines.bounds import DEPTH_MAX
from ccm_agent.templates.engines.lexer import Token, TokenKind


class TokenCursor:
    """
    The tokens of a template and the current position.

    Args:
        tokens: The tokens; the last is END.
        name: The template's name in errors.
    """

    def __init__(self, tokens: list[Token], name: str) -> None:
        self._tokens = tokens
        self._position = 0
        self._name = name
        self._depth = 0

    @property
    def _token(self) -> Token:
        return self._tokens[self._position]

    def _next(self) -> Token:
        token = self._tokens[self._position]
        if token.kind is not TokenKind.END:
            self._position += 1
        return token

    def _on(self, kind: TokenKind, text: str = "") -> bool:
        token = self._tokens[self._position]
        return token.kind is kind and (not text or token.text == text)

    def _expect_right(self) -> None:
        if not self._on(TokenKind.RIGHT):
            raise self._unexpected("the end of the action")
        self._position += 1

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._fail(f"template is nested too deeply: more than {DEPTH_MAX} levels")

    def _fail(self, message: str, line: int = 0) -> TemplateError:
        return TemplateError(message, place=Place(source=self._name, line=line or self._token.line))

    def _unexpected(self, wanted: str) -> TemplateError:
        return self._fail(f"{self._token.shown()} is not allowed here: {wanted} is expected")
