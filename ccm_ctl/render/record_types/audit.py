"""The records of `ccmctl audit --json` and `ccmctl events --verify --json`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from ccm_ctl.render.record_types.line import Count, Line, Node, OneRun, Reason, Reasons, Text, Time

_AuthorKind = Annotated[str, Meta(description="Whether the author is an `operator` or a `node`.")]

_Author = Annotated[str, Meta(description="Name of the operator or node.")]


class NumberRange(Struct, frozen=True, kw_only=True):
    """A range of missing numbers."""

    first: Annotated[int, Meta(description="The first missing number.")]
    last: Annotated[int, Meta(description="The last missing number.")]


class AuditLine(Line, frozen=True, kw_only=True, tag="audit"):
    """An entry of the audit trail (`audit`)."""

    author_kind: _AuthorKind
    author: _Author
    stored: Annotated[datetime, Meta(tz=True, description="When the broker stored it.")]
    time: Annotated[Time, Meta(description="When it was written, by the author's clock.")] = None
    number: Annotated[Count, Meta(description="Its place among the author's entries.")] = None
    verdict: Annotated[str, Meta(description="`verified`, `unknown key` or `forged`.")]
    reason: Reason = None
    kind: Annotated[
        Text,
        Meta(
            description="The signed object: `request`, `schedule`, `document`, `deletion`, `object`, `rollout` …; "
            "`decision` of a node."
        ),
    ] = None
    action: Annotated[Text, Meta(description="The kind of request, such as `manifest.apply`.")] = None
    target: Annotated[
        Text, Meta(description="The scope of the request, or bucket and key of the document.")
    ] = None
    run: OneRun = None
    requester: Annotated[Text, Meta(description="The operator whose request the node decided about.")] = None
    state: Annotated[
        Text,
        Meta(description="The decision: `accepted`, `queued`, `refused`, `expired`, `superseded`, `done`."),
    ] = None
    code: Annotated[Text, Meta(description="Error code of a refusal.")] = None
    message: Annotated[Text, Meta(description="The decision in words.")] = None
    key: Annotated[Text, Meta(description="Public key of the operator who signed.")] = None
    digest: Annotated[Text, Meta(description="SHA-256 (hex) of the signed content.")] = None
    details: Annotated[
        dict[str, str] | None, Meta(description="Names and digests: manifest, schedule, undone run …")
    ] = None


class AuditAuthorLine(Line, frozen=True, kw_only=True, tag="audit_author"):
    """The check of one author's entries (`audit --verify`)."""

    author_kind: _AuthorKind
    author: _Author
    ok: Annotated[bool, Meta(description="No entry is missing, changed or forged.")]
    entries: Annotated[int, Meta(description="Number of entries read.")]
    counts: Annotated[dict[str, int], Meta(description="Entries by verdict.")]
    first: Annotated[Count, Meta(description="Number of the oldest verified entry.")] = None
    last: Annotated[Count, Meta(description="Number of the newest verified entry.")] = None
    gaps: Annotated[list[NumberRange] | None, Meta(description="Missing numbers, at most 100 ranges.")] = None
    missing: Annotated[Count, Meta(description="Number of missing entries.")] = None
    changed: Annotated[
        list[int] | None, Meta(description="Numbers of entries whose previous entry was changed or replaced.")
    ] = None
    restarts: Annotated[Count, Meta(description="How often numbering restarted.")] = None


class MissingRange(Struct, frozen=True, kw_only=True):
    """A range of missing events."""

    chain: Annotated[str, Meta(description="The chain.")]
    first: Annotated[int, Meta(description="The first missing place.")]
    last: Annotated[int, Meta(description="The last missing place.")]


class VerificationLine(Line, frozen=True, kw_only=True, tag="verification"):
    """The result of verifying the stored events of a node (`events --verify`)."""

    node: Node
    verdict: Annotated[str, Meta(description="The verdict on the node.")]
    events: Annotated[int, Meta(description="Number of stored events.")]
    counts: Annotated[dict[str, int], Meta(description="Events by verdict.")]
    verified_to: Annotated[
        Count, Meta(description="The place up to which events are genuine and complete.")
    ] = None
    chain: Annotated[Text, Meta(description="The chain of that place.")] = None
    missing: Annotated[list[MissingRange] | None, Meta(description="Missing events, at most 100 ranges.")] = (
        None
    )
    missing_count: Annotated[Count, Meta(description="Number of missing events.")] = None
    given_up: Annotated[Count, Meta(description="Events that the node reported as dropped.")] = None
    changed: Annotated[
        list[int] | None, Meta(description="Numbers of events that were changed, at most 100.")
    ] = None
    copies: Annotated[Count, Meta(description="Events that are copies.")] = None
    reordered: Annotated[Count, Meta(description="Events that are out of order.")] = None
    doubled: Annotated[Count, Meta(description="Events that are stored twice.")] = None
    reasons: Annotated[Reasons, Meta(description="Number of events that are not genuine, by reason.")] = None
