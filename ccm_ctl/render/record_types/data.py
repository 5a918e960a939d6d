"""The records about Hiera data and assigned facts."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct

from ccm_ctl.render.record_types.line import (
    Count,
    Flag,
    Line,
    Message,
    Node,
    Revision,
    Text,
    Texts,
    Unverified,
    WrittenAt,
    WrittenBy,
)


class DocumentLine(Line, frozen=True, kw_only=True, tag="document"):
    """A Hiera document or the assigned facts of a node, or a revision of one."""

    key: Annotated[str, Meta(description="Its key.")]
    revision: Revision = None
    number: Annotated[Count, Meta(description="Agents refuse documents with lower numbers.")] = None
    written_by: WrittenBy = None
    unverified: Unverified = None
    time: WrittenAt = None
    message: Message = None
    plain: Annotated[
        Flag, Meta(description="Whether it has no number, because another program wrote it.")
    ] = None
    body: Annotated[Any, Meta(description="Its content.")] = None
    changed: Annotated[
        Flag,
        Meta(description="Whether the command changed it; for `data diff`, whether there is a difference."),
    ] = None
    removed: Annotated[Flag, Meta(description="This revision removed it.")] = None
    diff: Annotated[Text, Meta(description="The difference; in `data diff`.")] = None
    revisions: Annotated[
        Count, Meta(description="Number of revisions that every node can read; in `data protect`.")
    ] = None
    readers: Annotated[Text, Meta(description="Its readers: `every node`, or one node.")] = None
    exposed: Annotated[Flag, Meta(description="Every node can read a document of one node.")] = None
    movable: Annotated[Flag, Meta(description="Whether it can be moved; in `data protect`.")] = None


class ExplainedLayer(Struct, frozen=True, kw_only=True):
    """A layer of a Hiera document."""

    document: Annotated[str, Meta(description="Name of the document.")]
    revision: Annotated[int, Meta(description="Its revision; 0 for a file.")] = 0
    merge: Annotated[str, Meta(description="`first` or `deep`; empty without a hierarchy.")] = ""
    entry: Annotated[str, Meta(description="The entry of the order; empty for the base.")] = ""
    layer: Annotated[str, Meta(description="`data`, or the name of the override.")] = ""
    line: Annotated[int, Meta(description="The line of the key, or of the layer.")] = 0
    effect: Annotated[str, Meta(description="The layer's effect, such as `wins` or `overridden`.")] = ""
    value: Annotated[Any, Meta(description="Its value of the key.")] = UNSET


class ExplainedLine(Line, frozen=True, kw_only=True, tag="explained"):
    """The origin of a value of Hiera data."""

    key: Annotated[str, Meta(description="The dotted path.")]
    node: Node
    found: Annotated[bool, Meta(description="The node has the key.")]
    value: Annotated[Any, Meta(description="The value; secrets are `***`.")] = None
    layers: Annotated[list[ExplainedLayer], Meta(description="All layers, in the order of merging.")] = []
    rules: Annotated[list[dict[str, Any]] | None, Meta(description="The key's rules.")] = None
    broken: Annotated[Texts, Meta(description="Rules that the value violates, as sentences.")] = None
