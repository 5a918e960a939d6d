"""The records of `ccmctl secret`. None of them has a value."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from ccm_ctl.render.run_record_types import Count, Flag, Line, Node, Text, Texts, Time, Unverified


class SecretLine(Line, frozen=True, kw_only=True, tag="secret", omit_defaults=True):
    """A secret, without its value, or what a command did with it."""

    name: Annotated[str, Meta(description="Its name.")]
    revision: Annotated[Count, Meta(description="Its newest revision.")]
    targets: Annotated[Texts, Meta(description="Selectors of the nodes that it is for.")] = UNSET
    by: Annotated[Text, Meta(description="The operator who stored the revision.")] = UNSET
    time: Annotated[Time, Meta(description="When it was stored.")] = UNSET
    message: Annotated[Text, Meta(description="The reason that the operator gave.")] = UNSET
    nodes: Annotated[Count, Meta(description="How many nodes can open the newest revision.")] = UNSET
    sealed: Annotated[Texts, Meta(description="The nodes that it was sealed to now.")] = UNSET
    removed: Annotated[Texts, Meta(description="The nodes that it was taken away from now.")] = UNSET
    stale: Annotated[
        Texts,
        Meta(description="Nodes that know the newest revision, and must not any longer: replace the value."),
    ] = UNSET
    older: Annotated[
        list[int] | UnsetType,
        Meta(description="Older revisions that are stored."),
    ] = UNSET
    waiting: Annotated[Texts, Meta(description="Nodes that may use one.")] = UNSET
    unverified: Unverified = UNSET


class SecretRevisionLine(Line, frozen=True, kw_only=True, tag="secret_revision", omit_defaults=True):
    """A revision of a secret, without its value."""

    name: Annotated[str, Meta(description="The secret.")]
    revision: Annotated[Count, Meta(description="Its number.")]
    by: Annotated[str, Meta(description="The operator who stored it.")]
    time: Annotated[Time, Meta(description="When it was stored.")] = UNSET
    message: Annotated[Text, Meta(description="The reason that the operator gave.")] = UNSET
    size_bytes: Annotated[Count, Meta(description="The size of its value.")] = UNSET
    purged: Annotated[Flag, Meta(description="Its value is no longer stored.")] = UNSET
    unverified: Unverified = UNSET


class SecretNodeLine(Line, frozen=True, kw_only=True, tag="secret_node", omit_defaults=True):
    """A node that can, could or should be able to open a secret."""

    name: Annotated[str, Meta(description="The secret.")]
    node: Node
    revision: Annotated[Count, Meta(description="The revision that it can open.")] = UNSET
    known: Annotated[Count, Meta(description="The revision that it could open before.")] = UNSET
    since: Annotated[Time, Meta(description="Since when.")] = UNSET
    by: Annotated[Text, Meta(description="The operator who sealed it, or took it away.")] = UNSET
    next: Annotated[Count, Meta(description="The revision that a rotation will bring to it.")] = UNSET
    uses: Annotated[Count, Meta(description="The revision that it uses, by its signed record.")] = UNSET
    uses_since: Annotated[Time, Meta(description="Since when it uses that, by the node's clock.")] = UNSET
    doubt: Annotated[Text, Meta(description="Why it is not known what the node uses.")] = UNSET
    problem: Annotated[Text, Meta(description="Why the node cannot open the newest revision.")] = UNSET


SECRET_RECORDS = (SecretLine, SecretRevisionLine, SecretNodeLine)
