"""The records of `ccmctl secret --json`. They contain no values of secrets."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ccm_ctl.render.record_types.line import Count, Flag, Line, Message, Node, Text, Texts, Time, Unverified


class SecretLine(Line, frozen=True, kw_only=True, tag="secret"):
    """A secret without its value, or the result of a command on it."""

    name: Annotated[str, Meta(description="Its name.")]
    revision: Annotated[int, Meta(description="Its newest revision.")]
    targets: Annotated[Texts, Meta(description="Selectors of its nodes.")] = None
    by: Annotated[Text, Meta(description="The operator who stored the revision.")] = None
    time: Annotated[Time, Meta(description="When it was stored.")] = None
    message: Message = None
    nodes: Annotated[Count, Meta(description="Number of nodes that can decrypt the newest revision.")] = None
    sealed: Annotated[Texts, Meta(description="The nodes for which this command encrypted it.")] = None
    removed: Annotated[Texts, Meta(description="The nodes from which this command removed access.")] = None
    stale: Annotated[
        Texts,
        Meta(
            description="Nodes that lost access after they could decrypt the newest revision. Replace the value."
        ),
    ] = None
    older: Annotated[
        list[int] | None,
        Meta(description="Older revisions that are stored."),
    ] = None
    waiting: Annotated[Texts, Meta(description="Nodes that may still use an older revision.")] = None
    unverified: Unverified = None


class SecretRevisionLine(Line, frozen=True, kw_only=True, tag="secret_revision"):
    """A revision of a secret, without its value."""

    name: Annotated[str, Meta(description="The secret.")]
    revision: Annotated[int, Meta(description="Its number.")]
    by: Annotated[str, Meta(description="The operator who stored it.")]
    time: Annotated[Time, Meta(description="When it was stored.")] = None
    message: Message = None
    size_bytes: Annotated[Count, Meta(description="The size of its value.")] = None
    purged: Annotated[Flag, Meta(description="Its value is no longer stored.")] = None
    unverified: Unverified = None


class SecretNodeLine(Line, frozen=True, kw_only=True, tag="secret_node"):
    """A node that can, could or should be able to decrypt a secret."""

    name: Annotated[str, Meta(description="The secret.")]
    node: Node
    revision: Annotated[Count, Meta(description="The revision that it can open.")] = None
    known: Annotated[Count, Meta(description="The revision that it could open before.")] = None
    since: Annotated[Time, Meta(description="Since when.")] = None
    by: Annotated[Text, Meta(description="The operator who encrypted it for the node, or removed it.")] = None
    next: Annotated[
        Count, Meta(description="The revision that it will receive from the rotation in progress.")
    ] = None
    uses: Annotated[Count, Meta(description="The revision that it uses, according to its signed record.")] = (
        None
    )
    uses_since: Annotated[
        Time, Meta(description="When it began to use that revision, by the node's clock.")
    ] = None
    doubt: Annotated[Text, Meta(description="Why the revision that the node uses is unknown.")] = None
    problem: Annotated[Text, Meta(description="Why the node cannot decrypt the newest revision.")] = None
