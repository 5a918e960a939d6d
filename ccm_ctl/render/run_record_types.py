"""The shape of the records about runs, and what the records of all commands have in common; see `record_types`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from ccm_agent.model.outcome import SessionSummary
from ccm_agent.model.wire import RunAhead

Maybe = UnsetType
Text = str | UnsetType
Node = Annotated[str, Meta(description="Name of the node.")]
Run = Annotated[str, Meta(description="Id of the run.")]
OneRun = Annotated[Text, Meta(description="Id of the run.")]
Time = Annotated[datetime, Meta(tz=True)] | UnsetType
Count = int | UnsetType
Flag = bool | UnsetType
Texts = list[str] | UnsetType
Reasons = dict[str, int] | UnsetType
Verdict = Annotated[
    Text, Meta(description="What signatures prove: `verified`, `provisional`, `unsigned`, `gap` or `forged`.")
]
Machine = Annotated[Text, Meta(description="Machine id of the host.")]
Started = Annotated[Time, Meta(description="When the agent started.")]
WrittenBy = Annotated[Text, Meta(description="The operator who wrote or removed it.")]
Unverified = Annotated[Text, Meta(description="Why its signature is not valid. Missing if it is valid.")]
WrittenAt = Annotated[Time, Meta(description="When it was written or removed.")]
Message = Annotated[Text, Meta(description="The reason that the operator gave.")]
Revision = Annotated[Count, Meta(description="Its revision.")]
Manifest = Annotated[Text, Meta(description="Name of the manifest.")]
Reason = Annotated[Text, Meta(description="Why.")]
ReasonCode = Annotated[Text, Meta(description="Error code of the reason.")]
Removed = Annotated[Flag, Meta(description="It was removed.")]
Targets = Annotated[
    list[str] | UnsetType, Meta(description="Selectors; a node that matches any of them is targeted.")
]
Where = Annotated[Text, Meta(description="The expression that nodes must fulfill, too.")]


class Line(Struct, frozen=True, kw_only=True, tag_field="record", omit_defaults=True):
    """A line of `ccmctl --json`; `record` is its kind."""


class RunLine(Line, frozen=True, kw_only=True, tag="run", omit_defaults=True):
    """A run: what was requested of how many nodes. Also the answer of `run stop`."""

    run: Run
    action: Annotated[Text, Meta(description="`apply`, `plan`, `check`, `ensure` or `exec`.")] = UNSET
    name: Annotated[Text, Meta(description="Name of the manifest or resource.")] = UNSET
    requester: Annotated[Text, Meta(description="The operator who started it.")] = UNSET
    cause: Annotated[
        Text,
        Meta(
            description="What started it: `request` of an operator, `schedule`, `assignment`, or `node` for a manifest of the "
            "node's configuration; in `run list`, `run show`, `schedule status`."
        ),
    ] = UNSET
    origin: Annotated[Text, Meta(description="Name of the schedule or assignment.")] = UNSET
    reported_by: Annotated[
        Text,
        Meta(
            description="The only node that reports this run, which nothing else confirms: the broker does not know it as the "
            "last run of the schedule, or there is no such assignment."
        ),
    ] = UNSET
    time: Annotated[Time, Meta(description="When it started.")] = UNSET
    targets: Targets = UNSET
    where: Where = UNSET
    message: Annotated[Text, Meta(description="The requester's reason.")] = UNSET
    nodes: Annotated[Count, Meta(description="How many nodes are expected.")] = UNSET
    offline: Annotated[Count, Meta(description="How many of them were offline at the start.")] = UNSET
    state: Annotated[
        Text, Meta(description="`running`, `stopping` or `done`; in `run list`, `run show`, `run stop`.")
    ] = UNSET
    counts: Annotated[dict[str, int] | Maybe, Meta(description="Nodes by state; in `run list`.")] = UNSET
    phase: Annotated[
        Text, Meta(description="Phase of its rollout: `running`, `baking`, `paused`, `aborted` or `done`.")
    ] = UNSET
    reason: Annotated[Text, Meta(description="Why its rollout is paused or aborted.")] = UNSET
    by: Annotated[
        Text, Meta(description="The operator who paused, resumed, promoted or aborted its rollout last.")
    ] = UNSET
    driver: Annotated[Text, Meta(description="The process that drives its rollout, as `operator@host`.")] = (
        UNSET
    )
    closed_by: Annotated[
        Text, Meta(description="Another operator who reported the end; in `run list`, `run show`.")
    ] = UNSET
    unverified: Annotated[
        Text,
        Meta(
            description="Why the record of the run does not verify, in a fleet with signatures: it cannot be retried, resumed or "
            "undone; in `run list`, `run show`."
        ),
    ] = UNSET
    stopped_by: Annotated[
        Text, Meta(description="The operator who stopped it; in `run list`, `run show`.")
    ] = UNSET
    orders: Annotated[
        list[dict[str, Any]] | Maybe,
        Meta(
            description="What operators ordered about a rollout: `order`, `by`, `time`, `why`, and `ignored` (why it does not "
            "count); in `run show`."
        ),
    ] = UNSET
    stopping: Annotated[Count, Meta(description="How many nodes stop; in `run stop`.")] = UNSET
    ended: Annotated[Texts, Meta(description="Nodes that had ended before; in `run stop`.")] = UNSET
    refused: Annotated[
        dict[str, str] | Maybe, Meta(description="Nodes that refuse to stop, and why; in `run stop`.")
    ] = UNSET
    silent: Annotated[Texts, Meta(description="Nodes that did not answer; in `run stop`.")] = UNSET


class EventLine(Line, frozen=True, kw_only=True, tag="event", omit_defaults=True):
    """An event of a node."""

    event: Annotated[
        dict[str, Any],
        Meta(description="The event as on the bus; `protocol` says which of the schemas applies."),
    ]
    node: Annotated[Text, Meta(description="Name of the node; in `events`.")] = UNSET
    run: OneRun = UNSET
    verdict: Verdict = UNSET


class ResultLine(Line, frozen=True, kw_only=True, tag="result", omit_defaults=True):
    """The end state of a node in a run. A later result of the same node replaces an earlier one."""

    run: Run
    node: Node
    state: Annotated[
        str, Meta(description="State of the node, such as `stable`, `changed`, `failed` or `offline`.")
    ]
    reason: Reason = UNSET
    code: ReasonCode = UNSET
    joined: Annotated[Flag, Meta(description="The node was not expected and matches now.")] = UNSET
    ahead: Annotated[RunAhead | Maybe, Meta(description="The run that a queued node finishes first.")] = UNSET
    missing: Annotated[list[int] | Maybe, Meta(description="Numbers of missing events, the first 1,000.")] = (
        UNSET
    )
    missing_count: Annotated[Count, Meta(description="How many events are missing.")] = UNSET
    summary: Annotated[SessionSummary | Maybe, Meta(description="The node's summary of the run.")] = UNSET
    verdict: Verdict = UNSET
    unproven: Annotated[Count, Meta(description="Missing events that exist and cannot be verified.")] = UNSET
    forged: Annotated[
        Count, Meta(description="Messages that were left out because they are not the node's.")
    ] = UNSET
    reasons: Annotated[Reasons, Meta(description="Why they are not, with how many messages each.")] = UNSET


class OutputLine(Line, frozen=True, kw_only=True, tag="output", omit_defaults=True):
    """How the command of `exec` ended on a node."""

    run: Run
    node: Node
    exit_code: Annotated[
        Count,
        Meta(description="Its exit code; -N when signal N ended it; absent if it did not end by itself."),
    ] = UNSET
    output: Annotated[str, Meta(description="The end of what it wrote, at most 64 KiB.")]
    cut: Annotated[Flag, Meta(description="It wrote more than that.")] = UNSET
    error: Annotated[Text, Meta(description="Why it failed, in a sentence.")] = UNSET
    verdict: Verdict = UNSET


class EndLine(Line, frozen=True, kw_only=True, tag="end"):
    """A run has ended."""

    run: Run
    counts: Annotated[dict[str, int], Meta(description="Nodes by end state.")]
    exit: Annotated[int, Meta(description="The exit code of the command.")]


class GroupLine(Line, frozen=True, kw_only=True, tag="group", omit_defaults=True):
    """A saved selector."""

    name: Annotated[str, Meta(description="Its name, for `--targets @NAME`.")]
    targets: Annotated[list[str], Meta(description="The selectors, any of which is enough.")]
    by: Annotated[str, Meta(description="The operator who wrote or removed it.")]
    time: Annotated[Time, Meta(description="When it was written or removed.")] = UNSET
    message: Annotated[Text, Meta(description="The reason that the operator gave.")] = UNSET
    unverified: Unverified = UNSET


class SlotLine(Line, frozen=True, kw_only=True, tag="slot", omit_defaults=True):
    """A node that holds a slot, or waits for one."""

    slot: Annotated[str, Meta(description="Name of the slot.")]
    node: Node
    state: Annotated[str, Meta(description="`held`, `failed` (kept after its resource failed) or `waiting`.")]
    position: Annotated[Count, Meta(description="Place in the queue, from 1.")] = UNSET
    count: Annotated[Count, Meta(description="How many nodes may hold it, as its manifest sets.")] = UNSET
    since: Annotated[Time, Meta(description="Since when, by the clock of the node.")] = UNSET
    resource: Annotated[Text, Meta(description="The resource that it is for.")] = UNSET
    run: OneRun = UNSET
    unverified: Unverified = UNSET


class LockLine(Line, frozen=True, kw_only=True, tag="lock", omit_defaults=True):
    """Something that a node does not change."""

    node: Node
    resource: Annotated[str, Meta(description="`type#name`; `all` if the node is disabled.")]
    since: Annotated[Time, Meta(description="When it was locked.")] = UNSET
    until: Annotated[
        Time, Meta(description="When the lock ends; missing for a disabled node without an end.")
    ] = UNSET
    by: Annotated[Text, Meta(description="The operator.")] = UNSET
    why: Annotated[Text, Meta(description="The operator's reason.")] = UNSET


class RolloutServerLine(Line, frozen=True, kw_only=True, tag="rollout_server", omit_defaults=True):
    """A rollout server that runs; in `rollout list`."""

    operator: Annotated[str, Meta(description="The operator whose credentials it uses.")]
    host: Annotated[str, Meta(description="Where it runs.")]
    until: Annotated[
        datetime, Meta(tz=True, description="When it is considered stopped, unless it renews this.")
    ]


class ScheduleLine(Line, frozen=True, kw_only=True, tag="schedule", omit_defaults=True):
    """A schedule."""

    name: Annotated[str, Meta(description="Its name.")]
    scope: Annotated[Text, Meta(description="Recipients of its request.")] = UNSET
    protocol: Annotated[Text, Meta(description="Protocol id of its request.")] = UNSET
    manifest: Manifest = UNSET
    targets: Targets = UNSET
    where: Where = UNSET
    when: Annotated[Text, Meta(description="Six cron fields, `@every 60s` or `@at TIME`.")] = UNSET
    zone: Annotated[Text, Meta(description="Time zone of the cron fields.")] = UNSET
    catch_up: Annotated[Flag, Meta(description="Nodes that were offline run the latest missed request.")] = (
        UNSET
    )
    next: Annotated[Time, Meta(description="The next time.")] = UNSET
    last: Annotated[Time, Meta(description="The last time.")] = UNSET
    ends: Annotated[Time, Meta(description="Until when its signature is valid.")] = UNSET
    unverified: Unverified = UNSET
    new: Annotated[Flag, Meta(description="It did not exist before; in `schedule add`.")] = UNSET
    refused_by: Annotated[
        Texts, Meta(description="Nodes whose agents are too old for it; in `schedule add`.")
    ] = UNSET
    rollout: Annotated[
        Text, Meta(description="Its rollout options, or the waves of its file; a rollout server starts it.")
    ] = UNSET
    start_within_s: Annotated[
        float | Maybe, Meta(description="A start that no server began after this many seconds is skipped.")
    ] = UNSET
    servers: Annotated[
        Texts, Meta(description="Rollout servers that run, as `operator@host`; in `schedule add`.")
    ] = UNSET
    removed: Removed = UNSET


class ScheduledStartLine(Line, frozen=True, kw_only=True, tag="scheduled_start", omit_defaults=True):
    """The result of a start of a scheduled rollout; in `schedule status`."""

    name: Annotated[str, Meta(description="The schedule.")]
    due: Annotated[datetime, Meta(tz=True, description="When it was due.")]
    run: Annotated[Text, Meta(description="The run; missing if it was skipped.")] = UNSET
    reason: Annotated[Text, Meta(description="Why it was skipped.")] = UNSET
    by: Annotated[Text, Meta(description="The rollout server, as `operator@host`.")] = UNSET


class RolloutLine(Line, frozen=True, kw_only=True, tag="rollout", omit_defaults=True):
    """The state of a rollout; printed whenever it changes."""

    run: Run
    phase: Annotated[str, Meta(description="`running`, `baking`, `paused`, `aborted` or `done`.")]
    wave: Annotated[str, Meta(description="Name of the current wave.")]
    wave_index: Annotated[int, Meta(description="Number of the current wave, from 0.")]
    waves: Annotated[int, Meta(description="How many waves there are.")]
    asked: Annotated[int, Meta(description="How many nodes have started.")]
    nodes: Annotated[int, Meta(description="How many nodes the rollout has.")]
    reason: Annotated[Text, Meta(description="Why it is paused or aborted.")] = UNSET
    by: Annotated[Text, Meta(description="The operator who paused, resumed or aborted it.")] = UNSET
    bake_until: Annotated[Time, Meta(description="When the wait after a wave ends.")] = UNSET
    driver: Annotated[Text, Meta(description="The operator and host that drive it.")] = UNSET
