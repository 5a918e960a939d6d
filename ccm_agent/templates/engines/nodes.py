"""Statements that are common to the syntax trees of Go and Jet templates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """Text that is printed as written."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Marker:
    """A word that ends a body, such as `end` or `else`. It is not part of the body."""

    line: int
    word: str
