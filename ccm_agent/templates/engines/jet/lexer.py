"""
Cuts a Jet template into tokens.

Some of what it does is surprising and on purpose, for templates are written against it: comments are `{* *}` whatever the
delimiters, and are seen only where a later character begins a delimiter; `5 -3` are two terms, `5-3` and `5 - 3` are not;
a trim marker is a dash and a space, no other white space.

Source: https://github.com/CloudyKit/jet, docs/syntax.md; the rest was found out by trying.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from unicodedata import category

from ccm_agent.model.errors import Place, TemplateError

_SPACE = " \t\r\n"
_COMMENT_OPEN, _COMMENT_CLOSE = "{*", "*}"
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F]*(?:\.[0-9a-fA-F]*)?|[0-9]*(?:\.[0-9]*)?)(?:[eE][+-]?[0-9]*)?i?"
)
_AFTER_NAME = frozenset(" \t\r\n.,|:)=(;?[]+-/%*&!<>")


class Kind(Enum):
    """What a token is. Operators and keywords are told apart by their text."""

    TEXT = auto()
    LEFT = auto()
    RIGHT = auto()
    NAME = auto()
    FIELD = auto()
    NUMBER = auto()
    STRING = auto()
    CHAR = auto()
    BOOL = auto()
    KEYWORD = auto()
    UNDERSCORE = auto()
    OPERATOR = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """
    A piece of a template.

    Attributes:
        kind: What it is.
        text: As written; of an operator its canonical form (`and` is `&&`).
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


_CONTROLS = ("if", "else", "end", "range", "try", "catch", "return", "block", "yield", "content", "include")
KEYWORDS = frozenset((*_CONTROLS, "import", "extends", "nil", "msg", "trans"))
_WORD_OPERATORS = {"and": "&&", "or": "||", "not": "!"}
_TWO = frozenset(("&&", "||", "<=", ">=", "!=", "==", ":="))
_ONE = frozenset(",;*/%+-?<>!=:|[]()")

# After these a sign before a digit is an operator; after anything else it belongs to the number.
_OPERAND_ENDS = frozenset((Kind.NUMBER, Kind.NAME, Kind.STRING, Kind.CHAR, Kind.BOOL, Kind.FIELD))


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
        while (action := self._text_run(position)) is not None:
            position = self._action(action)
        self._add(Kind.END, "", len(self._text))
        return self._tokens

    def _line(self, position: int) -> int:
        offset, line = self._counted
        line += self._text.count("\n", offset, position)
        self._counted = (position, line)
        return line

    def _add(self, kind: Kind, text: str, position: int, spaced: bool = False) -> None:
        self._tokens.append(Token(kind, text, self._line(position), spaced))

    def _fail(self, message: str, position: int) -> TemplateError:
        line = self._text.count("\n", 0, position) + 1
        return TemplateError(message, place=Place(source=self._name, line=line))

    def _text_run(self, start: int) -> int | None:
        """Emit text up to the next action; gives the place inside that action, None at the end."""
        position = start
        while True:
            opening = self._text.find(self._left[0], position)
            comment = self._text.find(_COMMENT_OPEN[0], position)
            is_last = (
                opening < 0
            )  # the reference sees no comment behind the last action, nor minds one that is not closed
            if comment >= 0 and (is_last or comment < opening):
                opening = comment
            if opening < 0:
                self._emit_text(start, len(self._text))
                return None
            if self._text.startswith(self._left, opening):
                return self._open(start, opening)
            if self._text.startswith(_COMMENT_OPEN, opening):
                closing = self._text.find(_COMMENT_CLOSE, opening + 2)
                if closing < 0 and is_last:
                    position = opening + 1
                    continue
                if closing < 0:
                    raise self._fail("a comment is not closed: no '*}' follows its '{*'", opening)
                self._emit_text(start, opening)
                start = position = closing + 2
            else:
                position = opening + 1

    def _open(self, start: int, opening: int) -> int:
        inside = opening + len(self._left)
        trims = self._text.startswith("- ", inside)
        end = start + len(self._text[start:opening].rstrip(_SPACE)) if trims else opening
        self._emit_text(start, end)
        self._add(Kind.LEFT, self._left, opening)
        return inside + 2 if trims else inside

    def _emit_text(self, start: int, end: int) -> None:
        if end > start:
            self._add(Kind.TEXT, self._text[start:end], start)

    def _action(self, position: int) -> int:
        """Emit the tokens of an action; gives the place after it."""
        text, right = self._text, self._right
        opened = position
        depth = 0
        spaced = False
        while True:
            trims = text.startswith(" -" + right, position)
            if trims or text.startswith(right, position):
                if depth:
                    raise self._fail("a parenthesis is not closed before the action ends", position)
                return self._close(position, trims, spaced)
            if position >= len(text):
                raise self._fail(f"an action is not closed: no {right!r} follows", opened)
            if text[position] in _SPACE:
                position += 1
                spaced = True
                continue
            depth += {"(": 1, ")": -1}.get(text[position], 0)
            if depth < 0:
                raise self._fail("a closing parenthesis has no opening one", position)
            position = self._token(position, spaced)
            spaced = False

    def _close(self, position: int, trims: bool, spaced: bool) -> int:
        end = position + len(self._right) + (2 if trims else 0)
        self._add(Kind.RIGHT, self._right, position, spaced or trims)
        if trims:
            while end < len(self._text) and self._text[end] in _SPACE:
                end += 1
        return end

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
            self._add(Kind.OPERATOR, operator, position, spaced)
            return position + 2
        if char in _ONE:
            self._add(Kind.OPERATOR, char, position, spaced)
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
        if _is_word(char):
            return self._word(position, spaced)
        raise self._fail(f"character {char!r} has no meaning here", position)

    def _after_operand(self, spaced: bool) -> bool:
        last = self._tokens[-1]
        if spaced:
            return False
        return last.kind in _OPERAND_ENDS or (last.kind is Kind.OPERATOR and last.text in ("+", "-"))

    def _number(self, position: int, spaced: bool) -> int:
        match = _NUMBER.match(self._text, position)
        end = match.end() if match else position
        if end < len(self._text) and _is_word(self._text[end]):
            raise self._fail(f"number {self._text[position : end + 1]!r} is malformed", position)
        self._add(Kind.NUMBER, self._text[position:end], position, spaced)
        return end

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

    def _field(self, position: int, spaced: bool) -> int:
        end = self._word_end(position + 1)
        self._check_after(end)
        word = self._text[position:end]
        self._add(Kind.NAME if word == "." else Kind.FIELD, word, position, spaced)
        return end

    def _word(self, position: int, spaced: bool) -> int:
        end = self._word_end(position)
        word = self._text[position:end]
        if word != "_":
            self._check_after(end)
        if word in _WORD_OPERATORS:
            self._add(Kind.OPERATOR, _WORD_OPERATORS[word], position, spaced)
        else:
            self._add(_kind_of_word(word), word, position, spaced)
        return end

    def _word_end(self, position: int) -> int:
        while position < len(self._text) and _is_word(self._text[position]):
            position += 1
        return position

    def _check_after(self, position: int) -> None:
        following = self._text[position : position + 1]
        if following and following not in _AFTER_NAME and following != self._right[0]:
            raise self._fail(f"character {following!r} cannot stand after a name", position)


def _kind_of_word(word: str) -> Kind:
    if word in KEYWORDS:
        return Kind.KEYWORD
    if word in ("true", "false"):
        return Kind.BOOL
    return Kind.UNDERSCORE if word == "_" else Kind.NAME


def _is_word(char: str) -> bool:
    return char == "_" or char.isalpha() or category(char) == "Nd"
