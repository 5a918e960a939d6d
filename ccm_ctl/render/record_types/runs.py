"""The records about runs and their results, and about rollouts and schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from ccm_agent.model.outcome import SessionSummary
from ccm_agent.model.wire import RunAhead
from ccm_ctl.render.record_types.line import (
    Count,
    Flag,
    Line,
    Manifest,
    Node,
    OneRun,
    Origin,
    Reason,
    ReasonCode,
    Reasons,
    Removed,
    Requester,
    RequesterMessage,
    Run,
    Targets,
    Text,
    Texts,
    Time,
    Unverified,
    Verdict,
    Where,
)


class RunLine(Line, frozen=True, kw_only=True, tag="run"):
    """A run: the request and the number of nodes. Also the reply of `run stop`."""

    run: Run
    action: Annotated[Text, Meta(description="`apply`, `plan`, `check`, `ensure` or `exec`.")] = None
    name: Annotated[Text, Meta(description="Name of the manifest or resource.")] = None
    requester: Requester = None
    cause: Annotated[
        Text,
        Meta(
            description="Its cause: `request` of an operator, `schedule`, `assignment`, or `node` for a manifest of the "
            "node's configuration; in `run list`, `run show`, `schedule status`."
        ),
    ] = None
    origin: Origin = None
    reported_by: Annotated[
        Text,
        Meta(
            description="The only node that reports this run, if nothing else confirms it: it is not the last run of the "
            "schedule on the broker, or there is no such assignment."
        ),
    ] = None
    time: Annotated[Time, Meta(description="When it started.")] = None
    targets: Targets = None
    where: Where = None
    message: RequesterMessage = None
    nodes: Annotated[Count, Meta(description="Number of expected nodes.")] = None
    offline: Annotated[Count, Meta(description="Number of them that were offline at the start.")] = None
    state: Annotated[
        Text, Meta(description="`running`, `stopping` or `done`; in `run list`, `run show`, `run stop`.")
    ] = None
    counts: Annotated[dict[str, int] | None, Meta(description="Nodes by state; in `run list`.")] = None
    phase: Annotated[
        Text, Meta(description="Phase of its rollout: `running`, `baking`, `paused`, `aborted` or `done`.")
    ] = None
    reason: Annotated[Text, Meta(description="Why its rollout is paused or aborted.")] = None
    by: Annotated[
        Text, Meta(description="The operator who paused, resumed, promoted or aborted its rollout last.")
    ] = None
    driver: Annotated[Text, Meta(description="The process that drives its rollout, as `operator@host`.")] = (
        None
    )
    closed_by: Annotated[
        Text, Meta(description="Another operator who reported the end; in `run list`, `run show`.")
    ] = None
    unverified: Annotated[
        Text,
        Meta(
            description="Why the record of the run does not verify, in a fleet with signatures: it cannot be retried, resumed or "
            "undone; in `run list`, `run show`."
        ),
    ] = None
    stopped_by: Annotated[
        Text, Meta(description="The operator who stopped it; in `run list`, `run show`.")
    ] = None
    orders: Annotated[
        list[dict[str, Any]] | None,
        Meta(
            description="Operators' orders about a rollout: `order`, `by`, `time`, `why`, and `ignored` (why it does not "
            "apply); in `run show`."
        ),
    ] = None
    stopping: Annotated[Count, Meta(description="Number of nodes that stop; in `run stop`.")] = None
    ended: Annotated[Texts, Meta(description="Nodes that had ended before; in `run stop`.")] = None
    refused: Annotated[
        dict[str, str] | None, Meta(description="Nodes that refuse to stop, and why; in `run stop`.")
    ] = None
    silent: Annotated[Texts, Meta(description="Nodes that did not answer; in `run stop`.")] = None


class EventLine(Line, frozen=True, kw_only=True, tag="event"):
    """An event of a node."""

    event: Annotated[
        Any,
        Meta(
            description="The event as sent on the bus; `protocol` identifies its schema.",
            extra_json_schema={"type": "object"},
        ),
    ]
    node: Annotated[Text, Meta(description="Name of the node; in `events`.")] = None
    run: OneRun = None
    verdict: Verdict = None


class ResultLine(Line, frozen=True, kw_only=True, tag="result"):
    """The end state of a node in a run. A later result of the same node replaces an earlier one."""

    run: Run
    node: Node
    state: Annotated[
        str, Meta(description="State of the node, such as `stable`, `changed`, `failed` or `offline`.")
    ]
    reason: Reason = None
    code: ReasonCode = None
    joined: Annotated[Flag, Meta(description="The node was not expected, but it matches now.")] = None
    ahead: Annotated[RunAhead | None, Meta(description="The run that a queued node finishes first.")] = None
    missing: Annotated[list[int] | None, Meta(description="Numbers of missing events, the first 1,000.")] = (
        None
    )
    missing_count: Annotated[Count, Meta(description="Number of missing events.")] = None
    summary: Annotated[SessionSummary | None, Meta(description="The node's summary of the run.")] = None
    verdict: Verdict = None
    unproven: Annotated[Count, Meta(description="Missing events that exist and cannot be verified.")] = None
    forged: Annotated[
        Count, Meta(description="Number of messages left out because they are not the node's.")
    ] = None
    reasons: Annotated[
        Reasons, Meta(description="The reasons for this, each with its number of messages.")
    ] = None


class OutputLine(Line, frozen=True, kw_only=True, tag="output"):
    """The result of the command of `exec` on a node."""

    run: Run
    node: Node
    exit_code: Annotated[
        Count,
        Meta(description="Its exit code; -N when signal N ended it; absent if it did not end by itself."),
    ] = None
    output: Annotated[str, Meta(description="The end of its output, at most 64 KiB.")]
    cut: Annotated[Flag, Meta(description="Whether the output is longer.")] = None
    error: Annotated[Text, Meta(description="Why it failed, in a sentence.")] = None
    verdict: Verdict = None


class EndLine(Line, frozen=True, kw_only=True, tag="end"):
    """A run has ended."""

    run: Run
    counts: Annotated[dict[str, int], Meta(description="Nodes by end state.")]
    exit: Annotated[int, Meta(description="The exit code of the command.")]


class RolloutServerLine(Line, frozen=True, kw_only=True, tag="rollout_server"):
    """A running rollout server (`rollout list`)."""

    operator: Annotated[str, Meta(description="The operator whose credentials it uses.")]
    host: Annotated[str, Meta(description="Its host.")]
    until: Annotated[
        datetime, Meta(tz=True, description="When it is considered stopped, unless it renews its lease.")
    ]


class ScheduleLine(Line, frozen=True, kw_only=True, tag="schedule"):
    """A schedule."""

    name: Annotated[str, Meta(description="Its name.")]
    scope: Annotated[Text, Meta(description="Recipients of its request.")] = None
    protocol: Annotated[Text, Meta(description="Protocol id of its request.")] = None
    manifest: Manifest = None
    targets: Targets = None
    where: Where = None
    when: Annotated[Text, Meta(description="Six cron fields, `@every 60s` or `@at TIME`.")] = None
    zone: Annotated[Text, Meta(description="Time zone of the cron fields.")] = None
    catch_up: Annotated[Flag, Meta(description="Nodes that were offline run the latest missed request.")] = (
        None
    )
    next: Annotated[Time, Meta(description="The next time.")] = None
    last: Annotated[Time, Meta(description="The last time.")] = None
    ends: Annotated[Time, Meta(description="Until when its signature is valid.")] = None
    unverified: Unverified = None
    new: Annotated[Flag, Meta(description="Whether it is new; in `schedule add`.")] = None
    refused_by: Annotated[
        Texts, Meta(description="Nodes whose agents are too old for it; in `schedule add`.")
    ] = None
    rollout: Annotated[
        Text, Meta(description="Its rollout options, or the waves of its file; a rollout server starts it.")
    ] = None
    start_within_s: Annotated[
        float | None, Meta(description="A start is skipped if no server begins it within this many seconds.")
    ] = None
    servers: Annotated[
        Texts, Meta(description="Rollout servers that run, as `operator@host`; in `schedule add`.")
    ] = None
    removed: Removed = None


class ScheduledStartLine(Line, frozen=True, kw_only=True, tag="scheduled_start"):
    """The result of a start of a scheduled rollout (`schedule status`)."""

    name: Annotated[str, Meta(description="The schedule.")]
    due: Annotated[datetime, Meta(tz=True, description="When it was due.")]
    run: Annotated[Text, Meta(description="The run; missing if it was skipped.")] = None
    reason: Annotated[Text, Meta(description="Why it was skipped.")] = None
    by: Annotated[Text, Meta(description="The rollout server, as `operator@host`.")] = None


class RolloutLine(Line, frozen=True, kw_only=True, tag="rollout"):
    """The state of a rollout, printed whenever it changes."""

    run: Run
    phase: Annotated[str, Meta(description="`running`, `baking`, `paused`, `aborted` or `done`.")]
    wave: Annotated[str, Meta(description="Name of the current wave.")]
    wave_index: Annotated[int, Meta(description="Number of the current wave, from 0.")]
    waves: Annotated[int, Meta(description="Number of waves.")]
    asked: Annotated[int, Meta(description="Number of nodes that have started.")]
    nodes: Annotated[int, Meta(description="Number of nodes in the rollout.")]
    reason: Annotated[Text, Meta(description="Why it is paused or aborted.")] = None
    by: Annotated[Text, Meta(description="The operator who paused, resumed or aborted it.")] = None
    bake_until: Annotated[Time, Meta(description="When the wait after a wave ends.")] = None
    driver: Annotated[Text, Meta(description="The operator and host that drive it.")] = None
