"""Split an expression into tokens."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from ccm_agent.templates.expr.evaluation_errors import EvaluationError
from ccm_agent.templates.scan import GO_SPACE

NAME = "name"
NUMBER = "number"
STRING = "string"
BYTES = "bytes"
OPERATOR = "operator"
BRACKET = "bracket"
END = "end"

WORD_OPERATORS = frozenset(
    {"not", "in", "or", "and", "matches", "contains", "startsWith", "endsWith", "let", "if", "else"}
)

# ASCII classes, negated if they accept all other characters, because large classes take long to compile
_WORD = r"[^\x00-\#%-/:-@\[-^`{-\x7f]"
_WORD_START = r"[^\x00-\#%-@\[-^`{-\x7f]"
_TOKEN = re.compile(
    rf"""
      (?P<space>[\t-\r\ ]+ | //[^\n]* | /\*(?s:.*?)\*/)
    | (?P<number>
          0[xX][0-9a-fA-F_]*(?:\.(?!\.)[0-9a-fA-F_]*)?(?:[eE][+-]?[0-9a-fA-F_]*)?
        | 0[oO][0-7_]*(?:\.(?!\.)[0-7_]*)?(?:[eE][+-]?[0-7_]*)?
        | 0[bB][01_]*(?:\.(?!\.)[01_]*)?(?:[eE][+-]?[01_]*)?
        | [0-9][0-9_]*(?:\.(?!\.)[0-9_]*)?(?:[eE][+-]?[0-9_]*)?
        | \.[0-9][0-9_]*(?:[eE][+-]?[0-9_]*)?
      )
    | (?P<string>[bB]?(?:"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*'))
    | (?P<raw>`(?:[^`]|``)*`)
    | (?P<name>{_WORD_START}{_WORD}*)
    | (?P<pointer>\#\#?{_WORD}*)
    | (?P<operator>\?[.?]? | \|\|? | ::? | \.\.? | [&!=*<>][&=*]? | /(?!\*) | [,;%+\-^])
    | (?P<bracket>[()\[\]{{}}])
    """,
    re.VERBOSE,
)
_ALPHANUMERIC = re.compile(_WORD)
_ESCAPE = re.compile(
    r"""\\(?:
        (?P<simple>[abfnrtv\\"'])
      | (?P<octal>[0-7]{3})
      | x(?P<hex>[0-9a-fA-F]{2})
      | u\{(?P<braced>[0-9a-fA-F]{1,6})\}
      | u(?P<short>[0-9a-fA-F]{4})
      | U(?P<long>[0-9a-fA-F]{8})
    )""",
    re.VERBOSE,
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}


class Token(NamedTuple):
    """
    One token of an expression.

    Attributes:
        kind: NAME, NUMBER, STRING, BYTES, OPERATOR, BRACKET or END.
        text: The content: for a string the value without quotes and escapes, for bytes one character per byte.
        offset: The position at which it begins, in characters from 0.
    """

    kind: str
    text: str
    offset: int

    def __str__(self) -> str:
        return "end of the expression" if self.kind == END else f"{self.kind} {self.text!r}"


def tokenize(text: str) -> list[Token]:
    """
    Return all tokens of an expression; the last one is END.

    Raises:
        EvaluationError: The text has an unknown character, an unterminated literal or an invalid escape.
    """
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _strange(text, at)
        kind = match.lastgroup
        word = match.group()
        if kind == "space" or word[0] in GO_SPACE:
            at += len(word) if kind == "space" else 1
            continue
        if kind in ("name", "pointer"):
            word = _cut_word(text, at, word)
            _add_word(tokens, kind, word, at)
        elif kind == "number":
            if _ALPHANUMERIC.match(text, match.end()) and _is_word(text[match.end()]):
                raise EvaluationError(
                    "this number is followed by a letter or digit that does not belong to it", at
                )
            tokens.append(Token(NUMBER, word, at))
        elif kind == "string":
            tokens.append(_string(word, at))
        elif kind == "raw":
            tokens.append(Token(STRING, word[1:-1].replace("``", "`"), at))
        else:
            tokens.append(Token(OPERATOR if kind == "operator" else BRACKET, word, at))
        at += len(word)
    tokens.append(Token(END, "", len(text)))
    return tokens


def _add_word(tokens: list[Token], kind: str, word: str, at: int) -> None:
    if kind == "name":
        tokens.append(Token(OPERATOR if word in WORD_OPERATORS else NAME, word, at))
        return
    sharp = "##" if word.startswith("##") else "#"
    tokens.append(Token(OPERATOR, sharp, at))
    if len(word) > len(sharp):
        tokens.append(Token(NAME, word[len(sharp) :], at + len(sharp)))


def _is_word(char: str) -> bool:
    """Whether a character can be part of a name: letters, decimal digits (by Go's Unicode tables), `_` and `$`."""
    if char.isascii():
        return char.isalnum() or char in "_$"
    return unicodedata.category(char) in ("Lu", "Ll", "Lt", "Lm", "Lo", "Nd")


def _cut_word(text: str, at: int, word: str) -> str:
    """Return the part of a word that Go accepts as a name. The pattern accepts every non-ASCII character."""
    if word.isascii():
        return word
    if not word.startswith("#") and unicodedata.category(word[0]) == "Nd":
        raise _strange(text, at)
    for index, char in enumerate(word):
        if char != "#" and not _is_word(char):
            if index == 0:
                raise _strange(text, at)
            return word[:index]
    return word


def _strange(text: str, at: int) -> EvaluationError:
    char = text[at]
    if char in "\"'`" or (char in "bB" and text[at + 1 : at + 2] in ("'", '"')):
        return EvaluationError("this text literal never ends: its closing quote is missing", at)
    if text.startswith("/*", at):
        return EvaluationError("this comment never ends: close it with */", at)
    return EvaluationError(f"the character {char!r} (U+{ord(char):04X}) means nothing here", at)


def _string(word: str, at: int) -> Token:
    is_bytes = word[0] in "bB"
    quoted = word[1:] if is_bytes else word
    quote, body = quoted[0], quoted[1:-1]
    body = body.replace("\r", "\n")
    start = at + len(word) - len(quoted) + 1
    if is_bytes:
        return Token(BYTES, _bytes_body(body, quote, start), at)
    if "\\" not in body:
        return Token(STRING, body, at)
    out: list[str] = []
    done = 0
    while (escape := body.find("\\", done)) >= 0:
        out.append(body[done:escape])
        match = _escape(body, escape, quote, start)
        out.append(_escaped(match, start))
        done = match.end()
    out.append(body[done:])
    return Token(STRING, "".join(out), at)


def _escape(body: str, at: int, quote: str, start: int) -> re.Match[str]:
    match = _ESCAPE.match(body, at)
    other_quote = "'" if quote == '"' else '"'
    if match is None or match.group("simple") == other_quote:
        raise EvaluationError(
            f"{body[at : at + 2]!r} is not an escape; write \\\\ for a backslash", start + at
        )
    return match


def _escaped(match: re.Match[str], start: int) -> str:
    simple = match.group("simple")
    if simple:
        return _SIMPLE.get(simple, simple)
    if match.group("octal"):
        code = int(match.group("octal"), 8)
        if code > 0o377:
            raise EvaluationError("an octal escape ends at \\377", start + match.start())
    else:
        code = int(
            match.group("hex") or match.group("braced") or match.group("short") or match.group("long"), 16
        )
    if code > 0x10FFFF:
        raise EvaluationError(
            "this escape is beyond the last character of Unicode, \\u{10FFFF}", start + match.start()
        )
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else chr(code)


def _bytes_body(body: str, quote: str, start: int) -> str:
    """Return the bytes of a `b"…"` literal, one character per byte."""
    out: list[str] = []
    at = 0
    while at < len(body):
        if body[at] != "\\":
            out.append(body[at].encode("utf-8", "replace").decode("latin-1"))
            at += 1
            continue
        match = _escape(body, at, quote, start)
        if match.group("braced") or match.group("short") or match.group("long"):
            raise EvaluationError("bytes have no Unicode escapes; use \\x", start + at)
        out.append(_escaped(match, start))
        at = match.end()
    return "".join(out)
