"""
The shape of each record that `ccmctl --json` prints: one class per kind, from which schemas and the reference page are generated.

Commands write records as keyword arguments (`clikit.records`). Tests hold each record that they see against these classes, so a
field that is missing here fails a test. Nothing imports this module at run time.

A field that is UNSET by default can be left out of the record.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct

from ccm_agent.model.outcome import FailedResource, SessionSummary
from ccm_agent.model.wire import AgentEvent, Disabled
from ccm_ctl.render.access_record_types import JoinLine, SignerLine, TokenLine
from ccm_ctl.render.audit_record_types import AuditAuthorLine, AuditLine, VerificationLine
from ccm_ctl.render.impact_record_types import ImpactLine, ImpactSummaryLine
from ccm_ctl.render.past_record_types import DifferenceLine, SessionLine, StateLine
from ccm_ctl.render.run_record_types import (
    Count,
    EndLine,
    EventLine,
    Flag,
    GroupLine,
    Line,
    LockLine,
    Machine,
    Maybe,
    Message,
    Node,
    OutputLine,
    Reason,
    ReasonCode,
    Removed,
    ResultLine,
    Revision,
    RolloutLine,
    RolloutServerLine,
    RunLine,
    ScheduledStartLine,
    ScheduleLine,
    SlotLine,
    Started,
    Targets,
    Text,
    Texts,
    Time,
    Unverified,
    Where,
    WrittenAt,
    WrittenBy,
)
from ccm_ctl.render.secret_record_types import SECRET_RECORDS


class OneOfSeveral(Struct, frozen=True, kw_only=True):
    """One of several agents that use the same identity."""

    machine: Annotated[str, Meta(description="Machine id of its host.")]
    started: Annotated[str, Meta(description="When the agent started.")]


class NodeFields(Line, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a node."""

    node: Node
    state: Annotated[
        str,
        Meta(
            description="`present`, `offline`, `expected`, `silent`; `removed` or `reset` by a command; the condition in `why`."
        ),
    ]
    condition: Annotated[
        Text,
        Meta(
            description="The node in one word, as lists, `why` and the dashboard show it: `failed`, `duplicate`, `clock`, "
            "`refused`, `plans only`, `stopped`, `disk`, `expired`, `silent`, `refresh pending`, `undelivered`, `drifted`, "
            "`offline`, `never seen`, `disabled`, `waiting`, `running`, `unassigned` or `converged`."
        ),
    ] = UNSET
    heard: Annotated[
        Time, Meta(description="Its last heartbeat, or when it was last there if it is offline.")
    ] = UNSET
    late: Annotated[Flag, Meta(description="It missed a heartbeat, so what is shown may be old.")] = UNSET
    facts: Annotated[dict[str, Any] | Maybe, Meta(description="Routed and assigned facts.")] = UNSET
    version: Annotated[Text, Meta(description="Version of the agent.")] = UNSET
    machine: Machine = UNSET
    started: Started = UNSET
    last_run: Annotated[Text, Meta(description="Id of the newest finished run.")] = UNSET
    last_state: Annotated[Text, Meta(description="Its end state.")] = UNSET
    last_time: Annotated[Time, Meta(description="When it ended.")] = UNSET
    disabled: Annotated[
        Disabled | Maybe, Meta(description="Why the node makes no changes, since and until when.")
    ] = UNSET
    conflict: Annotated[Text, Meta(description="A problem with its identity, policy or assignments.")] = UNSET
    run: Annotated[Text, Meta(description="Id of the current run.")] = UNSET
    signatures: Annotated[Flag, Meta(description="The node obeys only signed requests and documents.")] = (
        UNSET
    )
    plans_only: Annotated[
        Text,
        Meta(
            description="Why the node accepts only plans: no administrator has confirmed its signers list for too long."
        ),
    ] = UNSET
    disk: Annotated[Text, Meta(description="Why it cannot write its state to disk.")] = UNSET
    wrong_clock: Annotated[
        Text, Meta(description="Why its clock is wrong, so that it refuses signed requests.")
    ] = UNSET
    unverified: Annotated[
        dict[str, str] | Maybe, Meta(description="Entries without a valid signature, with the reason.")
    ] = UNSET
    agents: Annotated[
        list[OneOfSeveral] | Maybe, Meta(description="The agents, if several use this identity.")
    ] = UNSET


class NodeLine(NodeFields, frozen=True, kw_only=True, tag="node", omit_defaults=True):
    """A node."""

    assigned: Annotated[dict[str, Any] | Maybe, Meta(description="Assigned facts; in `node show`.")] = UNSET


class ReplyLine(Line, frozen=True, kw_only=True, tag="reply", omit_defaults=True):
    """A node's answer to `ping`, `disable`, `enable`, `lock`, `unlock` or `run-now`."""

    node: Node
    state: Annotated[
        str,
        Meta(
            description="`accepted` or `refused`; `silent`, `unreachable` or `offline` without an answer; `disabled`, `enabled`, "
            "`locked`, `unlocked`, `not locked`; for `run-now` the worst state of what the node converges on."
        ),
    ]
    seconds: Annotated[float | Maybe, Meta(description="Time until the answer.")] = UNSET
    reason: Annotated[Text, Meta(description="Why the node refused, or what was not locked.")] = UNSET
    machine: Machine = UNSET
    started: Started = UNSET
    body: Annotated[
        dict[str, Any] | Maybe,
        Meta(description="The agent's report, such as its version, or how it converged."),
    ] = UNSET


class FactsLine(Line, frozen=True, kw_only=True, tag="facts", omit_defaults=True):
    """Facts of a node."""

    node: Node
    path: Annotated[Text, Meta(description="The requested path.")] = UNSET
    facts: Annotated[Any, Meta(description="The facts, or the value at the path.")] = UNSET
    unverified: Unverified = UNSET
    assigned: Annotated[dict[str, Any] | Maybe, Meta(description="All assigned facts after it.")] = UNSET
    state: Annotated[
        Text, Meta(description="`taken` by the node, `late`, or `waits` because the node is offline.")
    ] = UNSET


class DocumentLine(Line, frozen=True, kw_only=True, tag="document", omit_defaults=True):
    """A Hiera document or the assigned facts of a node, or a revision of one."""

    key: Annotated[str, Meta(description="Its key.")]
    revision: Revision = UNSET
    number: Annotated[Count, Meta(description="Agents refuse documents with lower numbers.")] = UNSET
    written_by: WrittenBy = UNSET
    unverified: Unverified = UNSET
    time: WrittenAt = UNSET
    message: Message = UNSET
    plain: Annotated[Flag, Meta(description="It has no number, because another program wrote it.")] = UNSET
    body: Annotated[Any, Meta(description="Its content.")] = UNSET
    changed: Annotated[
        Flag, Meta(description="The command changed it; for `data diff`, there is a difference.")
    ] = UNSET
    removed: Annotated[Flag, Meta(description="This revision removed it.")] = UNSET
    diff: Annotated[Text, Meta(description="The difference; in `data diff`.")] = UNSET
    revisions: Annotated[
        Count, Meta(description="How many revisions every node can read; in `data protect`.")
    ] = UNSET
    readers: Annotated[Text, Meta(description="Who can read it: `every node`, or one node.")] = UNSET
    exposed: Annotated[Flag, Meta(description="Every node can read a document of one node.")] = UNSET
    movable: Annotated[Flag, Meta(description="It can be moved; in `data protect`.")] = UNSET


class MadeLine(Line, frozen=True, kw_only=True, tag="made", omit_defaults=True):
    """A stream, bucket, key, list or certificate."""

    name: Annotated[str, Meta(description="Its name.")]
    kind: Annotated[
        str, Meta(description="What it is, such as `stream`, `bucket`, `keys`, `node` or `operator`.")
    ]
    action: Annotated[
        str,
        Meta(
            description="`created`, `updated`, `unchanged`, `skipped`, `published`, `migrated`, `accepted` or `revoked`."
        ),
    ]
    replicas: Annotated[Count, Meta(description="How many servers hold a copy.")] = UNSET
    details: Annotated[Texts, Meta(description="What was changed.")] = UNSET
    number: Annotated[Count, Meta(description="Number of the signers list.")] = UNSET
    servers: Annotated[Texts, Meta(description="Servers that applied a revocation.")] = UNSET


class BundleReferenceFields(Struct, frozen=True, kw_only=True):
    """Something on the broker that needs a bundle."""

    kind: Annotated[
        str,
        Meta(
            description="`assignment`; `revision`, an earlier one of an assignment; `schedule`; `run`, an open run; "
            "`ended run`, which can be sent again; `rollout`."
        ),
    ]
    name: Annotated[str, Meta(description="Name of the assignment or schedule, or id of the run.")]
    revision: Annotated[Count, Meta(description="Revision of the assignment.")] = UNSET
    scope: Annotated[Text, Meta(description="Scope of the assignment or schedule.")] = UNSET


class BundleLine(Line, frozen=True, kw_only=True, tag="bundle", omit_defaults=True):
    """A bundle in the object store."""

    digest: Annotated[str, Meta(description="SHA-256 of the bundle.")]
    size_bytes: Annotated[int, Meta(description="Its size, packed.")]
    stored: Annotated[str, Meta(description="When it was stored.")]
    references: Annotated[
        list[BundleReferenceFields] | Maybe,
        Meta(description="What needs it; in `bundle list`. Missing if nothing does."),
    ] = UNSET
    folder: Annotated[Text, Meta(description="Where it was unpacked; in `bundle get`.")] = UNSET
    removed: Annotated[
        Flag, Meta(description="Whether it was removed; in `bundle gc`. False with `--dry-run`.")
    ] = UNSET


class AssignmentLine(Line, frozen=True, kw_only=True, tag="assignment", omit_defaults=True):
    """An assignment, or a revision of one."""

    name: Annotated[str, Meta(description="Its name.")]
    scope: Annotated[Text, Meta(description="Its scope: `all`, `node.<node>` or `fact.<key>.<value>`.")] = (
        UNSET
    )
    revision: Revision = UNSET
    targets: Targets = UNSET
    where: Where = UNSET
    manifest: Annotated[Text, Meta(description="Path of the manifest in its bundle.")] = UNSET
    digest: Annotated[Text, Meta(description="SHA-256 of the bundle.")] = UNSET
    commit: Annotated[
        Text, Meta(description="The git commit of the directory that it was assigned from.")
    ] = UNSET
    commit_dirty: Annotated[Flag, Meta(description="The bundle differs from that commit.")] = UNSET
    data: Annotated[Texts, Meta(description="Hiera documents.")] = UNSET
    data_revision: Annotated[
        Count, Meta(description="Revision of the data that is pinned; 0 if none is.")
    ] = UNSET
    mode: Annotated[Text, Meta(description="`apply` or `plan`.")] = UNSET
    interval_s: Annotated[float | Maybe, Meta(description="Its own interval, in seconds.")] = UNSET
    deadline: Annotated[Time, Meta(description="Nodes that have not started by then will not start.")] = UNSET
    written_by: WrittenBy = UNSET
    unverified: Unverified = UNSET
    time: WrittenAt = UNSET
    message: Message = UNSET
    rolled_back_from: Annotated[Count, Meta(description="The revision that a rollback replaced.")] = UNSET
    rollout: Annotated[Text, Meta(description="The run that brought, or brings, its newest revision.")] = (
        UNSET
    )
    next_digest: Annotated[Text, Meta(description="SHA-256 of the bundle that a rollout brings.")] = UNSET
    rollout_phase: Annotated[
        Text, Meta(description="Phase of the rollout that brings `next_digest`, in `assignment status`.")
    ] = UNSET
    rollout_reason: Annotated[Text, Meta(description="Why that rollout is paused or aborted.")] = UNSET
    rollout_nodes: Annotated[Count, Meta(description="How many nodes that rollout is for.")] = UNSET
    nodes: Annotated[Count, Meta(description="How many nodes it applies to.")] = UNSET
    converged: Annotated[Count, Meta(description="How many of them have converged; in `assignments`.")] = (
        UNSET
    )
    states: Annotated[dict[str, int] | Maybe, Meta(description="Nodes by state; in `assignments`.")] = UNSET
    changed: Annotated[Flag, Meta(description="The command changed it.")] = UNSET
    removed: Removed = UNSET


class StandingFields(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a node in an assignment."""

    name: Annotated[str, Meta(description="Name of the assignment.")]
    scope: Annotated[str, Meta(description="Its scope.")]
    wanted: Annotated[int, Meta(description="Its revision.")]
    node: Node
    state: Annotated[str, Meta(description="State of the node, such as `converged`, `waiting` or `failed`.")]
    reason: Reason = UNSET
    code: ReasonCode = UNSET
    revision: Annotated[Count, Meta(description="The revision that the node applied last.")] = UNSET
    digest: Annotated[Text, Meta(description="The bundle that the node applied last.")] = UNSET
    data_revision: Annotated[
        Count, Meta(description="The revision of the data that the node applied last.")
    ] = UNSET
    data_revisions: Annotated[
        dict[str, int] | Maybe, Meta(description="Revision of each document that the node applied last.")
    ] = UNSET
    older_data: Annotated[
        Texts, Meta(description="Documents that have a newer revision than the node applied.")
    ] = UNSET
    has_drifted: Annotated[
        Flag, Meta(description="The assignment only plans, and its last plan would change something.")
    ] = UNSET
    since: Annotated[Time, Meta(description="Since when the node has this state.")] = UNSET
    run: Annotated[Text, Meta(description="Id of the run.")] = UNSET
    next_time: Annotated[Time, Meta(description="When the node applies it again.")] = UNSET
    offline: Annotated[Flag, Meta(description="The node is offline.")] = UNSET
    offline_since: Annotated[Time, Meta(description="Since when.")] = UNSET
    unverified: Annotated[
        Text,
        Meta(
            description="Entries that the node did not sign, with reasons; in `assignment status` and `why`."
        ),
    ] = UNSET


class StandingLine(
    StandingFields, frozen=True, kw_only=True, tag_field="record", tag="standing", omit_defaults=True
):
    """The state of a node in an assignment."""


class NextCommand(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command that helps."""

    command: Annotated[str, Meta(description="The command.")]
    purpose: Annotated[str, Meta(description="What it is for.")]
    where: Annotated[
        str, Meta(description="The node on which to type it; empty for the operator's machine.")
    ] = ""


class NodeRolloutFields(Struct, frozen=True, kw_only=True):
    """An open rollout that a node is part of."""

    run: Annotated[str, Meta(description="Its run.")]
    action: Annotated[str, Meta(description="Its action.")]
    name: Annotated[str, Meta(description="Its manifest or assignment.")]
    requester: Annotated[str, Meta(description="The operator who started it.")]
    phase: Annotated[str, Meta(description="`running`, `baking` or `paused`.")]
    reason: Annotated[str, Meta(description="Why it is paused.")]
    planned: Annotated[bool, Meta(description="The node has not been asked yet.")]


class WhyLine(NodeFields, frozen=True, kw_only=True, tag="why", omit_defaults=True):
    """Why a node is as it is."""

    present: Annotated[bool, Meta(description="The agent is online.")] = False
    reason: Annotated[str, Meta(description="The main reason, as a sentence.")] = ""
    next: Annotated[list[NextCommand], Meta(description="Commands that help, the most useful first.")] = []
    failed: Annotated[list[FailedResource] | Maybe, Meta(description="Resources that failed.")] = UNSET
    summary: Annotated[SessionSummary | Maybe, Meta(description="Summary of the run that failed.")] = UNSET
    assignments: Annotated[
        list[StandingFields] | Maybe, Meta(description="The node's state in each assignment.")
    ] = UNSET
    rollouts: Annotated[
        list[NodeRolloutFields] | Maybe, Meta(description="Open rollouts that it is part of.")
    ] = UNSET
    heard_of: Annotated[Time, Meta(description="When the node was last seen.")] = UNSET
    told: Annotated[
        dict[str, AgentEvent] | Maybe,
        Meta(description="The newest event of the agent of each kind, such as `refused`."),
    ] = UNSET
    answered: Annotated[
        str, Meta(description="Whether the agent answered: `answered`, `silent`, `denied` or `not asked`.")
    ] = ""
    status: Annotated[dict[str, Any] | Maybe, Meta(description="The agent's answer.")] = UNSET


class ExplainedLayer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A layer of a Hiera document."""

    document: Annotated[str, Meta(description="Name of the document.")]
    revision: Annotated[int, Meta(description="Its revision; 0 for a file.")] = 0
    merge: Annotated[str, Meta(description="`first` or `deep`; empty without a hierarchy.")] = ""
    entry: Annotated[str, Meta(description="The entry of the order; empty for the base.")] = ""
    layer: Annotated[str, Meta(description="`data`, or the name of the override.")] = ""
    line: Annotated[int, Meta(description="The line of the key, or of the layer.")] = 0
    effect: Annotated[
        str, Meta(description="What the layer contributes, such as `wins` or `overridden`.")
    ] = ""
    value: Annotated[Any, Meta(description="Its value of the key.")] = UNSET


class ExplainedLine(Line, frozen=True, kw_only=True, tag="explained", omit_defaults=True):
    """Where a value of Hiera data comes from."""

    key: Annotated[str, Meta(description="The dotted path.")]
    node: Node
    found: Annotated[bool, Meta(description="The node has the key.")]
    value: Annotated[Any, Meta(description="The value; secrets are `***`.")] = UNSET
    layers: Annotated[list[ExplainedLayer], Meta(description="All layers, in the order of merging.")] = []
    rules: Annotated[list[dict[str, Any]] | Maybe, Meta(description="The key's rules.")] = UNSET
    broken: Annotated[Texts, Meta(description="Rules that the value violates, as sentences.")] = UNSET


class LeftLine(Line, frozen=True, kw_only=True, tag="left", omit_defaults=True):
    """A node or operator that still has credentials of the layout with one account; in `init --security --migrate`."""

    kind: Annotated[str, Meta(description="`node` or `operator`; empty if only the broker knows.")]
    name: Annotated[str, Meta(description="The name.")]
    has_new: Annotated[bool, Meta(description="New credentials were created.")] = False
    connected: Annotated[bool, Meta(description="It is connected with the old ones.")] = False


class CheckResultLine(Line, frozen=True, kw_only=True, tag="check", omit_defaults=True):
    """What one check of `doctor` found."""

    id: Annotated[str, Meta(description="The check, such as `broker.tls`.")]
    state: Annotated[str, Meta(description="`ok`, `warning`, `problem` or `unknown`.")]
    sentence: Annotated[str, Meta(description="What was found.")]
    fix: Annotated[str, Meta(description="The command that fixes it.")] = ""
    names: Annotated[list[str], Meta(description="Nodes or operators that it concerns, at most 1,000.")] = []
    count: Annotated[int, Meta(description="How many it concerns.")] = 0


class ChecksLine(Line, frozen=True, kw_only=True, tag="checks"):
    """The last record of `doctor`."""

    counts: Annotated[dict[str, int], Meta(description="Checks by state.")]
    exit: Annotated[int, Meta(description="The exit code.")]


class NotificationRuleLine(Line, frozen=True, kw_only=True, tag="notification_rule"):
    """A rule that reports what happens in the fleet; in `notify list`."""

    name: Annotated[str, Meta(description="Name of the rule.")]
    on: Annotated[str, Meta(description="Its condition.")]
    channel: Annotated[str, Meta(description="Where notifications go, without secrets.")]
    after: Annotated[str, Meta(description="When a node that does not match its assignment is stale.")]


class ErrorLine(Line, frozen=True, kw_only=True, tag="error"):
    """An error. The message is also on standard error."""

    code: Annotated[str, Meta(description="The error code.")]
    message: Annotated[str, Meta(description="The sentence.")]


RECORDS: tuple[type[Struct], ...] = (
    RunLine,
    EventLine,
    ResultLine,
    EndLine,
    RolloutLine,
    RolloutServerLine,
    OutputLine,
    GroupLine,
    *SECRET_RECORDS,
    SlotLine,
    ImpactLine,
    ImpactSummaryLine,
    NodeLine,
    ReplyLine,
    LockLine,
    FactsLine,
    DocumentLine,
    MadeLine,
    SignerLine,
    TokenLine,
    JoinLine,
    BundleLine,
    ScheduleLine,
    ScheduledStartLine,
    AssignmentLine,
    StandingLine,
    WhyLine,
    ExplainedLine,
    LeftLine,
    CheckResultLine,
    ChecksLine,
    VerificationLine,
    AuditLine,
    AuditAuthorLine,
    NotificationRuleLine,
    SessionLine,
    StateLine,
    DifferenceLine,
    ErrorLine,
)
"""All kinds, in the order of the reference."""
