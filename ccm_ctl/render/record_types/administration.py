"""The records about created objects, checks of `doctor`, notification rules, and errors."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ccm_ctl.render.record_types.line import Count, Line, Texts


class MadeLine(Line, frozen=True, kw_only=True, tag="made"):
    """A stream, bucket, key, list or certificate."""

    name: Annotated[str, Meta(description="Its name.")]
    kind: Annotated[
        str, Meta(description="The kind of object, such as `stream`, `bucket`, `keys`, `node` or `operator`.")
    ]
    action: Annotated[
        str,
        Meta(
            description="`created`, `updated`, `unchanged`, `skipped`, `published`, `migrated`, `accepted` or `revoked`."
        ),
    ]
    replicas: Annotated[Count, Meta(description="Number of servers with a copy.")] = None
    details: Annotated[Texts, Meta(description="The changes.")] = None
    number: Annotated[Count, Meta(description="Number of the signers list.")] = None
    servers: Annotated[Texts, Meta(description="Servers that applied a revocation.")] = None


class LeftLine(Line, frozen=True, kw_only=True, tag="left"):
    """A node or operator that still has credentials of the single-account layout (`init --security --migrate`)."""

    kind: Annotated[str, Meta(description="`node` or `operator`; empty if unknown.")]
    name: Annotated[str, Meta(description="The name.")]
    has_new: Annotated[bool, Meta(description="New credentials were created.")] = False
    connected: Annotated[bool, Meta(description="Whether it is connected with the old credentials.")] = False


class CheckResultLine(Line, frozen=True, kw_only=True, tag="check"):
    """The result of one check of `doctor`."""

    id: Annotated[str, Meta(description="The check, such as `broker.tls`.")]
    state: Annotated[str, Meta(description="`ok`, `warning`, `problem` or `unknown`.")]
    sentence: Annotated[str, Meta(description="The result.")]
    fix: Annotated[str, Meta(description="The command that fixes it.")] = ""
    names: Annotated[list[str], Meta(description="Nodes or operators that it concerns, at most 1,000.")] = []
    count: Annotated[int, Meta(description="Number of objects that it concerns.")] = 0


class ChecksLine(Line, frozen=True, kw_only=True, tag="checks"):
    """The last record of `doctor`."""

    counts: Annotated[dict[str, int], Meta(description="Checks by state.")]
    exit: Annotated[int, Meta(description="The exit code.")]


class NotificationRuleLine(Line, frozen=True, kw_only=True, tag="notification_rule"):
    """A rule that reports events in the fleet (`notify list`)."""

    name: Annotated[str, Meta(description="Name of the rule.")]
    on: Annotated[str, Meta(description="Its condition.")]
    channel: Annotated[str, Meta(description="Destination of notifications, without secrets.")]
    after: Annotated[
        str, Meta(description="How long a node may not match its assignment before it is stale.")
    ]


class ErrorLine(Line, frozen=True, kw_only=True, tag="error"):
    """An error. The message is also on standard error."""

    code: Annotated[str, Meta(description="The error code.")]
    message: Annotated[str, Meta(description="The sentence.")]
