"""
Cuts a Go template into tokens.

Source: the documentation of Go's package text/template.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from unicodedata import category

from ccm_agent.model.errors import Place, TemplateError

_SPACE = " \t\r\n"
_COMMENT_OPEN, _COMMENT_CLOSE = "/*", "*/"
_KEYWORDS = frozenset(
    ("block", "break", "continue", "define", "else", "end", "if", "range", "template", "with", "nil")
)
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]*)?|0[oO][0-7_]*(?:\.[0-7_]*)?"
    r"|0[bB][01_]*(?:\.[01_]*)?|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?)i?"
)


class Kind(Enum):
    """What a token is. Keywords and marks are told apart by their text."""

    TEXT = auto()
    LEFT = auto()
    RIGHT = auto()
    DOT = auto()
    FIELD = auto()
    VARIABLE = auto()
    IDENTIFIER = auto()
    KEYWORD = auto()
    NUMBER = auto()
    BOOL = auto()
    CHAR = auto()
    STRING = auto()
    MARK = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """
    A piece of a template.

    Attributes:
        kind: What it is.
        text: As written.
        line: Where it begins, from 1.
        spaced: White space stands before it.
    """

    kind: Kind
    text: str
    line: int
    spaced: bool = False

    def shown(self) -> str:
        """The token for an error message."""
        return "the end of the template" if self.kind is Kind.END else repr(self.text)


def tokenize(text: str, name: str, left: str, right: str) -> list[Token]:
    """
    Cut a template into tokens, the last of which is END.

    Args:
        text: The template.
        name: What it is called in errors.
        left: What opens an action.
        right: What closes one.

    Raises:
        TemplateError: A comment, action or text literal is not closed, or a character means nothing.
    """
    return _Lexer(text, name, left, right).run()


class _Lexer:
    def __init__(self, text: str, name: str, left: str, right: str) -> None:
        self._text = text
        self._name = name
        self._left = left
        self._right = right
        self._tokens: list[Token] = []
        self._counted = (0, 1)  # an offset and the line it is on

    def run(self) -> list[Token]:
        position = 0
        while True:
            opening = self._text.find(self._left, position)
            if opening < 0:
                self._emit_text(position, len(self._text))
                self._add(Kind.END, "", len(self._text))
                return self._tokens
            inside = opening + len(self._left)
            trims = self._trims_left(inside)
            end = position + len(self._text[position:opening].rstrip(_SPACE)) if trims else opening
            self._emit_text(position, end)
            inside += 2 if trims else 0
            if self._text.startswith(_COMMENT_OPEN, inside):
                position = self._comment(inside)
            else:
                self._add(Kind.LEFT, self._left, opening)
                position = self._action(inside)

    def _trims_left(self, position: int) -> bool:
        return self._text.startswith("-", position) and self._text[position + 1 : position + 2] in tuple(
            _SPACE
        )

    def _right_length(self, position: int) -> int:
        """How long the end of an action is that stands here, with its trim marker; 0 when none does."""
        if self._text.startswith(self._right, position):
            return len(self._right)
        if self._text[position : position + 1] in tuple(_SPACE) and self._text.startswith(
            "-" + self._right, position + 1
        ):
            return len(self._right) + 2
        return 0

    def _after_right(self, position: int, length: int) -> int:
        """The place after the end of an action, and after white space that it trims."""
        end = position + length
        if length > len(self._right):
            while end < len(self._text) and self._text[end] in _SPACE:
                end += 1
        return end

    def _add(self, kind: Kind, text: str, position: int, spaced: bool = False) -> None:
        offset, line = self._counted
        line += self._text.count("\n", offset, position)
        self._counted = (position, line)
        self._tokens.append(Token(kind, text, line, spaced))

    def _fail(self, message: str, position: int) -> TemplateError:
        line = self._text.count("\n", 0, position) + 1
        return TemplateError(message, place=Place(source=self._name, line=line))

    def _emit_text(self, start: int, end: int) -> None:
        if end > start:
            self._add(Kind.TEXT, self._text[start:end], start)

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

    def _action(self, position: int) -> int:
        """Emit the tokens of an action; gives the place after it."""
        text = self._text
        opened = position
        depth = 0
        spaced = False
        while True:
            length = self._right_length(position)
            if length:
                if depth:
                    raise self._fail("a parenthesis is not closed before the action ends", position)
                self._add(Kind.RIGHT, self._right, position, spaced or length > len(self._right))
                return self._after_right(position, length)
            if position >= len(text):
                raise self._fail(f"an action is not closed: no {self._right!r} follows", opened)
            if text[position] in _SPACE:
                position += 1
                spaced = True
                continue
            depth += {"(": 1, ")": -1}.get(text[position], 0)
            if depth < 0:
                raise self._fail("a closing parenthesis has no opening one", position)
            position = self._token(position, spaced)
            spaced = False

    def _token(self, position: int, spaced: bool) -> int:
        text = self._text
        char = text[position]
        following = text[position + 1 : position + 2]
        if char == ":":
            if following != "=":
                raise self._fail("':' has no meaning here; a variable is made with ':='", position)
            self._add(Kind.MARK, ":=", position, spaced)
            return position + 2
        if char in "\"'`":
            return self._quoted(position, spaced)
        if char == "$":
            return self._named(Kind.VARIABLE, position, spaced)
        if char == "." and not ("0" <= following <= "9"):
            return self._named(Kind.FIELD, position, spaced)
        if char in "+-." or "0" <= char <= "9":
            return self._number(position, spaced)
        if _is_word(char):
            return self._word(position, spaced)
        if char.isascii() and char.isprintable():
            self._add(Kind.MARK, char, position, spaced)
            return position + 1
        raise self._fail(f"character {char!r} has no meaning here", position)

    def _quoted(self, position: int, spaced: bool) -> int:
        text = self._text
        quote = text[position]
        end = position + 1
        while end < len(text) and text[end] != quote:
            if quote != "`":
                if text[end] == "\\":
                    end += 1
                if text[end : end + 1] == "\n":
                    break
            end += 1
        if text[end : end + 1] != quote:
            raise self._fail(f"quoted text is not closed: no {quote} follows on its line", position)
        end += 1
        self._add(Kind.CHAR if quote == "'" else Kind.STRING, text[position:end], position, spaced)
        return end

    def _number(self, position: int, spaced: bool) -> int:
        end = self._one_number(position)
        if self._text[end : end + 1] in ("+", "-"):  # 1+2i, without spaces
            end = self._one_number(end)
            if self._text[end - 1] != "i":
                raise self._fail(
                    f"number {self._text[position:end]!r} is malformed; sums are 'add 1 2'", position
                )
        self._add(Kind.NUMBER, self._text[position:end], position, spaced)
        return end

    def _one_number(self, position: int) -> int:
        match = _NUMBER.match(self._text, position)
        end = match.end() if match else position
        if end < len(self._text) and _is_word(self._text[end]):
            raise self._fail(f"number {self._text[position : end + 1]!r} is malformed", position)
        return end

    def _named(self, kind: Kind, position: int, spaced: bool) -> int:
        end = self._word_end(position + 1)
        self._check_after(end)
        word = self._text[position:end]
        self._add(Kind.DOT if word == "." else kind, word, position, spaced)
        return end

    def _word(self, position: int, spaced: bool) -> int:
        end = self._word_end(position)
        self._check_after(end)
        word = self._text[position:end]
        kind = (
            Kind.KEYWORD if word in _KEYWORDS else Kind.BOOL if word in ("true", "false") else Kind.IDENTIFIER
        )
        self._add(kind, word, position, spaced)
        return end

    def _word_end(self, position: int) -> int:
        while position < len(self._text) and _is_word(self._text[position]):
            position += 1
        return position

    def _check_after(self, position: int) -> None:
        following = self._text[position : position + 1]
        if not following or following in " \t\r\n.,|:()" or self._text.startswith(self._right, position):
            return
        hint = "; elements are looked up with 'index'" if following == "[" else ""
        raise self._fail(f"character {following!r} cannot stand after a name{hint}", position)


def _is_word(char: str) -> bool:
    return char == "_" or char.isalpha() or category(char) == "Nd"
