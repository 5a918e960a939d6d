"""
Splits a Jet template into tokens.

Some rules are surprising, and templates rely on them. Comments are `{* *}` with any delimiters, and are recognized only if a
delimiter follows later in the text. `5 -3` is parsed as two terms, `5-3` and `5 - 3` as one. A trim marker is a
dash and a space, not a dash and a newline.

Source: https://github.com/CloudyKit/jet, docs/syntax.md; the rest was determined by experiment.
"""

from __future__ import annotations

import re
from typing import ClassVar

from ccm_agent.templates.engines.lexer import ActionLexer, Token, TokenKind, is_word

_COMMENT_OPEN, _COMMENT_CLOSE = "{*", "*}"
_AFTER_NAME = frozenset(" \t\r\n.,|:)=(;?[]+-/%*&!<>")
_CONTROLS = ("if", "else", "end", "range", "try", "catch", "return", "block", "yield", "content", "include")
_WORD_OPERATORS = {"and": "&&", "or": "||", "not": "!"}
_TWO = frozenset(("&&", "||", "<=", ">=", "!=", "==", ":="))
_ONE = frozenset(",;*/%+-?<>!=:|[]()")

# after these tokens a sign before a digit is an operator; otherwise it belongs to the number
_OPERAND_ENDS = frozenset(
    (TokenKind.NUMBER, TokenKind.NAME, TokenKind.STRING, TokenKind.CHAR, TokenKind.BOOL, TokenKind.FIELD)
)


def tokenize(text: str, name: str, left: str, right: str) -> list[Token]:
    """Split a template into tokens; see `ActionLexer` for the arguments and for errors."""
    return _Lexer(text, name, left, right).run()


class _Lexer(ActionLexer):
    TRIM_SPACE = " "
    NUMBER = re.compile(
        r"[+-]?(?:0[xX][0-9a-fA-F]*(?:\.[0-9a-fA-F]*)?|[0-9]*(?:\.[0-9]*)?)(?:[eE][+-]?[0-9]*)?i?"
    )
    KEYWORDS: ClassVar[frozenset[str]] = frozenset((*_CONTROLS, "import", "extends", "nil", "msg", "trans"))

    def _template(self) -> None:
        position = 0
        while (action := self._text_run(position)) is not None:
            position = self._action(action)

    def _text_run(self, start: int) -> int | None:
        """Add the text up to the next action. Return the position inside that action, None at the end."""
        position = start
        while True:
            opening = self._text.find(self._left[0], position)
            comment = self._text.find(_COMMENT_OPEN[0], position)
            # the reference ignores a comment after the last action, and accepts it unclosed
            is_last = opening < 0
            if comment >= 0 and (is_last or comment < opening):
                opening = comment
            if opening < 0:
                self._add_text(start, len(self._text))
                return None
            if self._text.startswith(self._left, opening):
                inside = self._text_before(start, opening)
                self._add(TokenKind.LEFT, self._left, opening)
                return inside
            if self._text.startswith(_COMMENT_OPEN, opening):
                closing = self._text.find(_COMMENT_CLOSE, opening + 2)
                if closing < 0 and is_last:
                    position = opening + 1
                    continue
                if closing < 0:
                    raise self._fail("a comment is not closed: no '*}' follows its '{*'", opening)
                self._add_text(start, opening)
                start = position = closing + 2
            else:
                position = opening + 1

    def _token(self, position: int, spaced: bool) -> int:
        text = self._text
        char = text[position]
        if (
            char in "+-"
            and text[position + 1 : position + 2] in tuple("0123456789")
            and not self._after_operand(spaced)
        ):
            return self._number(position, spaced)
        if text[position : position + 2] in _TWO:
            operator = text[position : position + 2]
            self._add(TokenKind.OPERATOR, operator, position, spaced)
            return position + 2
        if char in _ONE:
            self._add(TokenKind.OPERATOR, char, position, spaced)
            return position + 1
        if char in "\"'`":
            return self._quoted(position, spaced)
        if char == ".":
            following = text[position + 1 : position + 2]
            if following and not ("0" <= following <= "9"):
                return self._field(position, spaced)
            return self._number(position, spaced)
        if "0" <= char <= "9":
            return self._number(position, spaced)
        if is_word(char):
            return self._word(position, spaced)
        raise self._fail(f"character {char!r} has no meaning here", position)

    def _after_operand(self, spaced: bool) -> bool:
        last = self._tokens[-1]
        if spaced:
            return False
        return last.kind in _OPERAND_ENDS or (last.kind is TokenKind.OPERATOR and last.text in ("+", "-"))

    def _number(self, position: int, spaced: bool) -> int:
        end = self._number_end(position)
        self._add(TokenKind.NUMBER, self._text[position:end], position, spaced)
        return end

    def _field(self, position: int, spaced: bool) -> int:
        end = self._word_end(position + 1)
        self._check_after(end)
        word = self._text[position:end]
        self._add(TokenKind.NAME if word == "." else TokenKind.FIELD, word, position, spaced)
        return end

    def _word(self, position: int, spaced: bool) -> int:
        end = self._word_end(position)
        word = self._text[position:end]
        if word != "_":
            self._check_after(end)
        if word in _WORD_OPERATORS:
            self._add(TokenKind.OPERATOR, _WORD_OPERATORS[word], position, spaced)
        else:
            self._add(TokenKind.UNDERSCORE if word == "_" else self._name_kind(word), word, position, spaced)
        return end

    def _check_after(self, position: int) -> None:
        following = self._text[position : position + 1]
        if following and following not in _AFTER_NAME and following != self._right[0]:
            raise self._fail(f"character {following!r} is not allowed after a name", position)
