"""The records about assignments, the states of nodes in them, and bundles."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from ccm_ctl.render.record_types.line import (
    Count,
    Flag,
    Line,
    Message,
    Node,
    OneRun,
    Reason,
    ReasonCode,
    Removed,
    Revision,
    Targets,
    Text,
    Texts,
    Time,
    Unverified,
    Where,
    WrittenAt,
    WrittenBy,
)


class BundleReferenceFields(Struct, frozen=True, kw_only=True):
    """An object on the broker that needs a bundle."""

    kind: Annotated[
        str,
        Meta(
            description="`assignment`; `revision`, an earlier one of an assignment; `schedule`; `run`, an open run; "
            "`ended run`, which can be sent again; `rollout`."
        ),
    ]
    name: Annotated[str, Meta(description="Name of the assignment or schedule, or id of the run.")]
    revision: Annotated[int | UnsetType, Meta(description="Revision of the assignment.")] = UNSET
    scope: Annotated[str | UnsetType, Meta(description="Scope of the assignment or schedule.")] = UNSET


class BundleLine(Line, frozen=True, kw_only=True, tag="bundle"):
    """A bundle in the object store."""

    digest: Annotated[str, Meta(description="SHA-256 of the bundle.")]
    size_bytes: Annotated[int, Meta(description="Its size, packed.")]
    stored: Annotated[datetime, Meta(tz=True, description="When it was stored.")]
    references: Annotated[
        list[BundleReferenceFields] | None,
        Meta(description="Objects that need it; in `bundle list`. Missing if there are none."),
    ] = None
    folder: Annotated[Text, Meta(description="Folder into which it was unpacked; in `bundle get`.")] = None
    removed: Annotated[
        Flag, Meta(description="Whether it was removed; in `bundle gc`. False with `--dry-run`.")
    ] = None


class AssignmentLine(Line, frozen=True, kw_only=True, tag="assignment"):
    """An assignment, or a revision of one."""

    name: Annotated[str, Meta(description="Its name.")]
    scope: Annotated[Text, Meta(description="Its scope: `all`, `node.<node>` or `fact.<key>.<value>`.")] = (
        None
    )
    revision: Revision = None
    targets: Targets = None
    where: Where = None
    manifest: Annotated[Text, Meta(description="Path of the manifest in its bundle.")] = None
    digest: Annotated[Text, Meta(description="SHA-256 of the bundle.")] = None
    commit: Annotated[
        Text, Meta(description="The git commit of the directory that it was assigned from.")
    ] = None
    commit_dirty: Annotated[Flag, Meta(description="The bundle differs from that commit.")] = None
    data: Annotated[Texts, Meta(description="Hiera documents.")] = None
    data_revision: Annotated[
        Count, Meta(description="The pinned revision of the data; 0 if the data is not pinned.")
    ] = None
    mode: Annotated[Text, Meta(description="`apply` or `plan`.")] = None
    interval_s: Annotated[float | None, Meta(description="Its own interval, in seconds.")] = None
    deadline: Annotated[Time, Meta(description="Nodes that have not started by then will not start.")] = None
    written_by: WrittenBy = None
    unverified: Unverified = None
    time: WrittenAt = None
    message: Message = None
    rolled_back_from: Annotated[Count, Meta(description="The revision that a rollback replaced.")] = None
    rollout: Annotated[
        Text, Meta(description="The run that rolled out, or rolls out, its newest revision.")
    ] = None
    next_digest: Annotated[Text, Meta(description="SHA-256 of the bundle that is being rolled out.")] = None
    rollout_phase: Annotated[
        Text, Meta(description="Phase of the rollout of `next_digest`, in `assignment status`.")
    ] = None
    rollout_reason: Annotated[Text, Meta(description="Why that rollout is paused or aborted.")] = None
    rollout_nodes: Annotated[Count, Meta(description="Number of nodes of that rollout.")] = None
    nodes: Annotated[Count, Meta(description="Number of nodes that it applies to.")] = None
    converged: Annotated[Count, Meta(description="Number of them that have converged; in `assignments`.")] = (
        None
    )
    states: Annotated[dict[str, int] | None, Meta(description="Nodes by state; in `assignments`.")] = None
    changed: Annotated[Flag, Meta(description="The command changed it.")] = None
    removed: Removed = None


class StandingFields(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a node in an assignment."""

    name: Annotated[str, Meta(description="Name of the assignment.")]
    scope: Annotated[str, Meta(description="Its scope.")]
    wanted: Annotated[int, Meta(description="Its revision.")]
    node: Node
    state: Annotated[str, Meta(description="State of the node, such as `converged`, `waiting` or `failed`.")]
    reason: Reason = None
    code: ReasonCode = None
    revision: Annotated[Count, Meta(description="The revision that the node applied last.")] = None
    digest: Annotated[Text, Meta(description="The bundle that the node applied last.")] = None
    data_revision: Annotated[
        Count, Meta(description="The revision of the data that the node applied last.")
    ] = None
    data_revisions: Annotated[
        dict[str, int] | None, Meta(description="Revision of each document that the node applied last.")
    ] = None
    older_data: Annotated[
        Texts, Meta(description="Documents that have a newer revision than the node applied.")
    ] = None
    has_drifted: Annotated[
        Flag, Meta(description="The assignment only plans, and its last plan would change something.")
    ] = None
    since: Annotated[Time, Meta(description="Since when the node has this state.")] = None
    run: OneRun = None
    next_time: Annotated[Time, Meta(description="When the node applies it again.")] = None
    offline: Annotated[Flag, Meta(description="The node is offline.")] = None
    offline_since: Annotated[Time, Meta(description="Since when.")] = None
    unverified: Annotated[
        Text,
        Meta(
            description="Entries that the node did not sign, with reasons; in `assignment status` and `why`."
        ),
    ] = None


class StandingLine(
    StandingFields, frozen=True, kw_only=True, tag_field="record", tag="standing", omit_defaults=True
):
    """The state of a node in an assignment."""
