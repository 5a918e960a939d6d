"""
Find the expressions in a string: `{{ expression }}` and `${ expression }`.

`{{` ends at the first `}}` outside quotes; `${` ends at its own closing brace; braces inside are balanced. Quotes
are `"…"` and `'…'` with backslash escapes, and raw backquotes. `${{ 1 }}` is a dollar sign and an expression. An unclosed
expression is text. A backslash before an opener has no meaning.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# white space as in Go's strings.TrimSpace; Python's strip() also removes U+001C to U+001F
GO_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
)

_OPENER = re.compile(r"\{\{|\$\{(?!\{)")
_OPENERS = re.compile(r"[${]{2,}")
_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`"""
# an unclosed quote extends to the end, so the expression is also unclosed
_INSIDE_DOUBLE = re.compile(rf"{_QUOTED}|[\"'`]|\}}\}}", re.DOTALL)
_INSIDE_DOLLAR = re.compile(rf"{_QUOTED}|[\"'`]|[{{}}]", re.DOTALL)

_PATIENCE = 200_000


class Span(NamedTuple):
    """
    An expression in a string.

    Attributes:
        start: The position of its opener.
        end: The position after its closer.
        expression: The text between them, without surrounding white space.
    """

    start: int
    end: int
    expression: str


def find_spans(text: str) -> list[Span]:
    """
    Return all expressions of a string, in order; they never overlap.

    The cost of failed searches for closers is bounded: a string of thousands of unclosed openers is text.
    """
    spans: list[Span] = []
    patience = _PATIENCE
    at = 0
    while patience > 0 and (opener := _OPENER.search(text, at)) is not None:
        at = opener.end()
        closer, looked = _find_closer(text, at, _INSIDE_DOUBLE if opener.group() == "{{" else _INSIDE_DOLLAR)
        if closer is None:
            patience -= looked + (len(text) - at) // 64
            continue
        spans.append(Span(opener.start(), closer.end(), text[at : closer.start()].strip(GO_SPACE)))
        at = closer.end()
    return spans


def has_expression(text: str) -> bool:
    """Whether the string contains an expression; otherwise it renders unchanged."""
    return ("{{" in text or "${" in text) and bool(find_spans(text))


def as_template(text: str) -> str:
    """
    Return a template that renders to exactly this text.

    A text without expressions is returned unchanged. In other texts each opener, with adjacent dollar signs and
    braces, is replaced with an expression for it. The adjacent characters could otherwise form a new opener.
    """
    if not has_expression(text):
        return text
    return _OPENERS.sub(
        lambda run: f'{{{{ "{run.group()}" }}}}' if _OPENER.search(run.group()) else run.group(), text
    )


def _find_closer(text: str, start: int, tokens: re.Pattern[str]) -> tuple[re.Match[str] | None, int]:
    """Return the closer for an opener that ends at `start`, and the number of examined tokens."""
    depth = 1
    looked = 0
    for token in tokens.finditer(text, start):
        looked += 1
        found = token.group()
        if found == "{":
            depth += 1
        elif found in ("}", "}}"):
            depth -= 1
            if depth == 0:
                return token, looked
        elif len(found) == 1:
            break
    return None, looked
