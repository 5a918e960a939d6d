"""
The common part of the lexers for Jet and Go templates: text between actions, trim markers, quoted texts, names.

The languages differ in comments, in operators and in the tokens that may follow a name. Their lexers extend `ActionLexer`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar
from unicodedata import category

from ccm_agent.model.errors import Place, TemplateError

SPACE = " \t\r\n"


class TokenKind(Enum):
    """
    The kind of a token. Operators and keywords are distinguished by their text.

    Go templates have no UNDERSCORE; Jet templates have no DOT and no VARIABLE.
    """

    TEXT = auto()
    LEFT = auto()
    RIGHT = auto()
    NAME = auto()
    DOT = auto()
    FIELD = auto()
    VARIABLE = auto()
    UNDERSCORE = auto()
    NUMBER = auto()
    STRING = auto()
    CHAR = auto()
    BOOL = auto()
    KEYWORD = auto()
    OPERATOR = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """
    A piece of a template.

    Attributes:
        kind: The kind of token.
        text: As written; for a Jet operator its canonical form (`and` is `&&`).
        line: The line on which it begins, from 1.
        spaced: Whether there is white space before it.
    """

    kind: TokenKind
    text: str
    line: int
    spaced: bool = False

    def shown(self) -> str:
        """Format the token for an error message."""
        return "the end of the template" if self.kind is TokenKind.END else repr(self.text)


class ActionLexer(ABC):
    """
    Splits a template into tokens.

    Attributes:
        TRIM_SPACE: White space that separates the dash of a trim marker from the action.
        NUMBER: Matches a number at a position where a number may begin; the match may be empty.
        KEYWORDS: Words that are not names.
    """

    TRIM_SPACE: ClassVar[str]
    NUMBER: ClassVar[re.Pattern[str]]
    KEYWORDS: ClassVar[frozenset[str]]

    def __init__(self, text: str, name: str, left: str, right: str) -> None:
        """
        Args:
            text: The template.
            name: Its name in errors.
            left: The delimiter that opens an action.
            right: The delimiter that closes an action.
        """
        self._text = text
        self._name = name
        self._left = left
        self._right = right
        self._tokens: list[Token] = []
        self._counted = (0, 1)  # an offset and its line

    def run(self) -> list[Token]:
        """
        Return the tokens. The last token is END.

        Raises:
            TemplateError: A comment, action or quoted text is not closed, or a character has no meaning.
        """
        self._template()
        self._add(TokenKind.END, "", len(self._text))
        return self._tokens

    @abstractmethod
    def _template(self) -> None:
        """Add the tokens of the whole template, without END."""

    @abstractmethod
    def _token(self, position: int, spaced: bool) -> int:
        """Add the token that begins here, within an action; return the position after it."""

    def _add(self, kind: TokenKind, text: str, position: int, spaced: bool = False) -> None:
        offset, line = self._counted
        line += self._text.count("\n", offset, position)
        self._counted = (position, line)
        self._tokens.append(Token(kind, text, line, spaced))

    def _fail(self, message: str, position: int) -> TemplateError:
        line = self._text.count("\n", 0, position) + 1
        return TemplateError(message, place=Place(source=self._name, line=line))

    # -- between actions

    def _add_text(self, start: int, end: int) -> None:
        if end > start:
            self._add(TokenKind.TEXT, self._text[start:end], start)

    def _text_before(self, start: int, opening: int) -> int:
        """
        Add the text before an action without the white space that its trim marker removes. Return the
        position inside the action.
        """
        inside = opening + len(self._left)
        trims = self._text[inside : inside + 1] == "-" and self._is_trim_space(inside + 1)
        end = start + len(self._text[start:opening].rstrip(SPACE)) if trims else opening
        self._add_text(start, end)
        return inside + 2 if trims else inside

    def _right_length(self, position: int) -> int:
        """
        Return the length of the closing delimiter at this position, with its trim marker; 0 if there is
        none.
        """
        if self._text.startswith(self._right, position):
            return len(self._right)
        trims = self._is_trim_space(position) and self._text.startswith("-" + self._right, position + 1)
        return len(self._right) + 2 if trims else 0

    def _after_right(self, position: int, length: int) -> int:
        """Return the position after the end of an action, and after white space that it trims."""
        end = position + length
        if length > len(self._right):
            while end < len(self._text) and self._text[end] in SPACE:
                end += 1
        return end

    def _is_trim_space(self, position: int) -> bool:
        char = self._text[position : position + 1]
        return bool(char) and char in self.TRIM_SPACE

    # -- in an action

    def _action(self, position: int) -> int:
        """Add the tokens of an action; return the position after it."""
        text = self._text
        opened = position
        depth = 0
        spaced = False
        while True:
            if length := self._right_length(position):
                if depth:
                    raise self._fail("a parenthesis is not closed before the action ends", position)
                self._add(TokenKind.RIGHT, self._right, position, spaced or length > len(self._right))
                return self._after_right(position, length)
            if position >= len(text):
                raise self._fail(f"an action is not closed: no {self._right!r} follows", opened)
            if text[position] in SPACE:
                position += 1
                spaced = True
                continue
            depth += {"(": 1, ")": -1}.get(text[position], 0)
            if depth < 0:
                raise self._fail("a closing parenthesis has no opening one", position)
            position = self._token(position, spaced)
            spaced = False

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
        self._add(TokenKind.CHAR if quote == "'" else TokenKind.STRING, text[position:end], position, spaced)
        return end

    def _number_end(self, position: int) -> int:
        match = self.NUMBER.match(self._text, position)
        end = match.end() if match else position
        if end < len(self._text) and is_word(self._text[end]):
            raise self._fail(f"number {self._text[position : end + 1]!r} is malformed", position)
        return end

    def _name_kind(self, word: str) -> TokenKind:
        if word in self.KEYWORDS:
            return TokenKind.KEYWORD
        return TokenKind.BOOL if word in ("true", "false") else TokenKind.NAME

    def _word_end(self, position: int) -> int:
        while position < len(self._text) and is_word(self._text[position]):
            position += 1
        return position


def is_word(char: str) -> bool:
    """Whether a character can be part of a name."""
    return char == "_" or char.isalpha() or category(char) == "Nd"
