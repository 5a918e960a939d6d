"""
Where the expressions stand in a string: `{{ expression }}` and `${ expression }`.

`{{` ends at the first `}}` outside quotes; `${` ends at its own closing brace, braces between are counted. Quotes
are `"…"` and `'…'` with backslash escapes, and raw backquotes. `${{ 1 }}` is a dollar sign and an expression. What never
ends is text. A backslash before an opener means nothing.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# White space as Go's strings.TrimSpace knows it; Python's own strip() also takes U+001C to U+001F.
GO_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
)

_OPENER = re.compile(r"\{\{|\$\{(?!\{)")
_OPENERS = re.compile(r"[${]{2,}")
_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`"""
# Quotes that never end swallow the rest, so that the expression never ends either.
_INSIDE_DOUBLE = re.compile(rf"{_QUOTED}|[\"'`]|\}}\}}", re.DOTALL)
_INSIDE_DOLLAR = re.compile(rf"{_QUOTED}|[\"'`]|[{{}}]", re.DOTALL)

_PATIENCE = 200_000


class Span(NamedTuple):
    """
    An expression in a string.

    Attributes:
        start: Where its opener begins.
        end: Behind its closer.
        expression: What is between them, without the white space around it.
    """

    start: int
    end: int
    expression: str


def find_spans(text: str) -> list[Span]:
    """
    Every expression of a string, in order; they never overlap.

    What looking for closers in vain may cost is bounded: a string of thousands of openers that never end is text.
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
    """Whether the string holds an expression; without one it is text and stays as it is."""
    return ("{{" in text or "${" in text) and bool(find_spans(text))


def as_template(text: str) -> str:
    """
    A template that renders to this very text.

    A text without expressions is that already. In others each opener becomes an expression that gives it, with the dollar signs
    and braces around it, which would make another opener of what is left.
    """
    if not has_expression(text):
        return text
    return _OPENERS.sub(
        lambda run: f'{{{{ "{run.group()}" }}}}' if _OPENER.search(run.group()) else run.group(), text
    )


def _find_closer(text: str, start: int, tokens: re.Pattern[str]) -> tuple[re.Match[str] | None, int]:
    """The closer of an opener that ends at `start`, and how many tokens were looked at."""
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
