"""Hiera's words: the hierarchy, its overrides, and the rules that a document lays on its own data."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct

DEFAULT_ORDER = ("default",)
"""The order of a document without `hierarchy`."""


class Merge(StrEnum):
    """What becomes of the overrides that match."""

    FIRST = "first"
    """The first one replaces the top-level keys that it has; the rest is not looked at."""

    DEEP = "deep"
    """All of them, in order: mappings are merged, lists joined, anything else replaced."""


class Hierarchy(Struct, frozen=True, kw_only=True):
    """The `hierarchy` key of a document."""

    order: Annotated[
        tuple[str, ...],
        Meta(description="Names of overrides, expressions rendered, looked up in this order."),
    ] = DEFAULT_ORDER
    merge: Annotated[
        str,
        Meta(description="`first` (the default): one override counts; `deep`: all that match are merged."),
    ] = Merge.FIRST
    secret: Annotated[
        tuple[str, ...],
        Meta(
            description="Keys whose values are masked wherever they appear, as dotted paths with `*` and `**`; not in Choria CCM."
        ),
    ] = ()


class DataRule(Struct, frozen=True, kw_only=True):
    """
    What a comment demands of a key of the resolved data.

    Attributes:
        path: Keys from the root of the data.
        required: The value must not be null or the empty text.
        expression: A boolean expression about `value`; "" when there is none.
        source: The document that says so.
        line: Where in it, from 1.
    """

    path: tuple[str, ...]
    required: bool = False
    expression: str = ""
    source: str = ""
    line: int = 0


class Resolved(Struct, frozen=True, kw_only=True):
    """
    The data of one document for one node, before its rules were checked.

    Attributes:
        data: The resolved values.
        rules: What the document's comments demand; they hold for the data after every merge.
        warnings: What was probably meant otherwise, as sentences.
        secret: Keys that the document declares secret; they hold for the data after every merge.
    """

    data: dict[str, Any]
    rules: tuple[DataRule, ...] = ()
    warnings: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
