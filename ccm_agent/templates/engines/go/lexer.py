"""
Splits a Go template into tokens.

Source: the documentation of Go's package text/template.
"""

from __future__ import annotations

import re
from typing import ClassVar

from ccm_agent.templates.engines.lexer import SPACE, ActionLexer, Token, TokenKind, is_word

_COMMENT_OPEN, _COMMENT_CLOSE = "/*", "*/"


def tokenize(text: str, name: str, left: str, right: str) -> list[Token]:
    """Split a template into tokens; see `ActionLexer` for the arguments and for errors."""
    return _Lexer(text, name, left, right).run()


class _Lexer(ActionLexer):
    TRIM_SPACE = SPACE
    NUMBER = re.compile(
        r"[+-]?(?:0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]*)?|0[oO][0-7_]*(?:\.[0-7_]*)?"
        r"|0[bB][01_]*(?:\.[01_]*)?|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?)i?"
    )
    KEYWORDS: ClassVar[frozenset[str]] = frozenset(
        ("block", "break", "continue", "define", "else", "end", "if", "range", "template", "with", "nil")
    )

    def _template(self) -> None:
        position = 0
        while (opening := self._text.find(self._left, position)) >= 0:
            inside = self._text_before(position, opening)
            if self._text.startswith(_COMMENT_OPEN, inside):
                position = self._comment(inside)
            else:
                self._add(TokenKind.LEFT, self._left, opening)
                position = self._action(inside)
        self._add_text(position, len(self._text))

    def _comment(self, position: int) -> int:
        closing = self._text.find(_COMMENT_CLOSE, position)
        if closing < 0:
            raise self._fail("a comment is not closed: no '*/' follows its '/*'", position)
        end = closing + len(_COMMENT_CLOSE)
        length = self._right_length(end)
        if not length:
            raise self._fail(
                f"a comment must be all of its action: {self._right!r} does not follow its '*/'", closing
            )
        return self._after_right(end, length)

    def _token(self, position: int, spaced: bool) -> int:
        text = self._text
        char = text[position]
        following = text[position + 1 : position + 2]
        if char == ":":
            if following != "=":
                raise self._fail("':' has no meaning here; a variable is made with ':='", position)
            self._add(TokenKind.OPERATOR, ":=", position, spaced)
            return position + 2
        if char in "\"'`":
            return self._quoted(position, spaced)
        if char == "$":
            return self._named(TokenKind.VARIABLE, position, spaced)
        if char == "." and not ("0" <= following <= "9"):
            return self._named(TokenKind.FIELD, position, spaced)
        if char in "+-." or "0" <= char <= "9":
            return self._number(position, spaced)
        if is_word(char):
            return self._word(position, spaced)
        if char.isascii() and char.isprintable():
            self._add(TokenKind.OPERATOR, char, position, spaced)
            return position + 1
        raise self._fail(f"character {char!r} has no meaning here", position)

    def _number(self, position: int, spaced: bool) -> int:
        end = self._number_end(position)
        if self._text[end : end + 1] in ("+", "-"):  # 1+2i, without spaces
            end = self._number_end(end)
            if self._text[end - 1] != "i":
                raise self._fail(
                    f"number {self._text[position:end]!r} is malformed; sums are 'add 1 2'", position
                )
        self._add(TokenKind.NUMBER, self._text[position:end], position, spaced)
        return end

    def _named(self, kind: TokenKind, position: int, spaced: bool) -> int:
        end = self._word_end(position + 1)
        self._check_after(end)
        word = self._text[position:end]
        self._add(TokenKind.DOT if word == "." else kind, word, position, spaced)
        return end

    def _word(self, position: int, spaced: bool) -> int:
        end = self._word_end(position)
        self._check_after(end)
        word = self._text[position:end]
        self._add(self._name_kind(word), word, position, spaced)
        return end

    def _check_after(self, position: int) -> None:
        following = self._text[position : position + 1]
        if not following or following in " \t\r\n.,|:()" or self._text.startswith(self._right, position):
            return
        hint = "; elements are looked up with 'index'" if following == "[" else ""
        raise self._fail(f"character {following!r} is not allowed after a name{hint}", position)
