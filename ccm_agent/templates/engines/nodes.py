"""Statements that the syntax trees of Go and Jet templates share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """Text that is printed as it is written."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Marker:
    """A word that ends a body, such as `end` or `else`, and is not part of it."""

    line: int
    word: str
