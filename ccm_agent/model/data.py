"""
Types for hiera data: the hierarchy, the merge strategy, and the rules that a document declares for its own
data.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct

DEFAULT_ORDER = ("default",)
"""The order that applies if a document has no `hierarchy`."""


class Merge(StrEnum):
    """How matching overrides are merged."""

    FIRST = "first"
    """The first match replaces its top-level keys; the others are ignored."""

    DEEP = "deep"
    """All matches apply, in order: mappings are merged, lists joined, other values replaced."""


class Hierarchy(Struct, frozen=True, kw_only=True):
    """The `hierarchy` key of a document."""

    order: Annotated[
        tuple[str, ...],
        Meta(description="Names of overrides in lookup order; expressions are rendered."),
    ] = DEFAULT_ORDER
    merge: Annotated[
        str,
        Meta(description="`first` (the default): the first match applies; `deep`: all matches are merged."),
    ] = Merge.FIRST
    secret: Annotated[
        tuple[str, ...],
        Meta(
            description="Keys whose values are masked everywhere, as dotted paths with `*` and `**`; not in Choria CCM."
        ),
    ] = ()


class DataRule(Struct, frozen=True, kw_only=True):
    """
    A rule from a comment for a key of the resolved data.

    Attributes:
        path: Keys from the root of the data.
        required: Whether the value must not be null or the empty text.
        expression: A boolean expression about `value`; "" if there is none.
        source: The document with the comment.
        line: The line of the comment, from 1.
    """

    path: tuple[str, ...]
    required: bool = False
    expression: str = ""
    source: str = ""
    line: int = 0


class Resolved(Struct, frozen=True, kw_only=True):
    """
    The data of one document for one node, before its rules are checked.

    Attributes:
        data: The resolved values.
        rules: The rules from the document's comments. They apply to the data after all merges.
        warnings: Probable mistakes, as sentences.
        secret: Keys that the document declares secret. They apply to the data after all merges.
    """

    data: dict[str, Any]
    rules: tuple[DataRule, ...] = ()
    warnings: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
