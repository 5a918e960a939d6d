"""
Events of a session: the outcomes of resources, its start and its summary.

Fields that Choria CCM defines have its names, types and meaning. Fields below the comment "ours" are additions
that Choria CCM's readers ignore. Outcome flags are defined only here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct

from ccm_agent.model.formats.untrusted_json import Count, EventNumber, ExitCode, Moment, Nanoseconds
from ccm_agent.model.health import HealthResult
from ccm_agent.model.resource_diff import ResourceDiff

TRANSACTION_EVENT = "io.choria.ccm.v1.transaction.event"
SESSION_START = "io.choria.ccm.v1.session.start"
SESSION_SUMMARY = "io.choria.ccm.v1.session.summary"

NOT_SELECTED = "resource.not_selected"
"""Code of a skipped resource: the operator selected other resources."""
LOCKED = "resource.locked"
"""Code of a skipped resource: an operator locked it on this node."""

PRUNE_PLANNED = "prune.planned"
"""Code of a skipped resource: it is no longer in the manifest, and `prune: apply` would remove it."""
RELEASED = "prune.released"
"""Code of a skipped resource: it is no longer in the manifest and remains unchanged."""

OUTPUT_TAIL = 8 * 1024
"""Maximum length of a command's output in an event."""

FAILED_LIMIT = 20
"""The maximum number of failed resources in a summary; the events contain all of them."""

FAILED_OUTPUT_BYTES = 8 * 1024
"""Maximum length of the output of each failed resource in a summary."""

LOGGED_OUTPUT_TAIL = 64 * 1024
"""
Maximum length of the output of an exec resource with `logoutput`. Events on the bus have their own size
limit.
"""

STOPPED_CODE = "run.stopped"
"""Code of a run that was stopped by an operator."""


class Outcome(StrEnum):
    """The outcome of a resource in one word, as in log lines."""

    STABLE = "stable"
    CHANGED = "changed"
    REFRESHED = "refreshed"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNMET = "skipped due to unmet requirement"
    UNKNOWN = "unknown until applied"
    """
    The outcome in a restricted plan if it depends on a command that was not run. Choria CCM has no such
    outcome.
    """


class TransactionEvent(Struct, kw_only=True, omit_defaults=True):
    """
    The event of one resource in one session.

    Attributes:
        event_id: A KSUID; ids of one process increase in the order of the events.
        type: Type of the resource.
        name: Name of the resource.
        alias: The other name of the resource; "" if it has none.
        provider: The provider that managed it.
        requested_ensure: The desired state.
        final_ensure: The final state.
        duration: Nanoseconds, as Go writes durations.
        properties: The resource's properties after templates, masked.
        status: The final state, including the outcome.
        error: Error messages; empty if there is no error.
        changed: Whether the resource was changed.
        refreshed: Whether it was refreshed because a resource that it subscribes to changed; `changed` is also true.
        failed: Whether the resource failed.
        skipped: Whether the resource was skipped.
        noop: Whether this was a plan: nothing was changed, and the flags describe the result of an apply.
        noop_message: What an apply would do, as a sentence.
        health_check: The results of the health checks.
        health_check_only: Whether only the health checks of the resource were run.
        unmet_requirements: `type#name` of failed requirements.
        node: The node; "" for a local apply.
        run: The run; "" for a local apply.
        number: Position in the run, from 1 (the session's start); 0 for a local apply.
        corrective: Whether the change corrected drift, because the manifest and data had not changed. None if unknown.
        output: The end of a command's output, masked: 8 KiB, or up to 64 KiB for an exec resource with `logoutput`.
        exit_code: The exit code of an exec resource's command; -N if signal N killed it. None if it did not
            run, if it was killed after its time limit, or from older agents.
        triggered_by: The subscribed resource that caused a refresh.
        parent: `apply#…` of the child manifest that contains the resource, outermost first, joined by " > ".
        code: The stable code of the first error.
        cut: Names of fields that were shortened; an event on the bus has at most 64 KiB.
        unknown: Why a restricted plan or check cannot determine the outcome, as a sentence: "unknown until
            applied: the guards are not run in …". If `skipped` is true, nothing is known about the resource;
            otherwise a health check was not run.
        refresh_pending: `type#name` of changed resources for which this resource has not been refreshed yet
            (the first 20). The next apply of the manifest refreshes it.
        diff: The change, or in a plan the change that an apply would make; None unless the request asks for diffs.
        pruned: Why the resource is removed although no manifest declares it: "created by the run 3Cxx…, no
            longer in the manifest".
    """

    protocol: str
    event_id: str
    timestamp: Moment
    type: str
    provider: str
    name: str
    requested_ensure: str
    final_ensure: str
    duration: Nanoseconds
    properties: Any
    status: Any
    error: list[str]
    changed: bool
    refreshed: bool
    failed: bool
    skipped: bool
    noop: bool
    unmet_requirements: list[str]
    alias: str = ""
    noop_message: str = ""
    health_check: list[HealthResult] = []
    health_check_only: bool = False

    # ours
    node: str = ""
    run: str = ""
    number: EventNumber = 0
    corrective: bool | None = None
    output: str = ""
    exit_code: ExitCode | None = None
    triggered_by: str = ""
    parent: str = ""
    code: str = ""
    cut: list[str] = []
    unknown: str = ""
    refresh_pending: list[str] = []
    diff: ResourceDiff | None = None
    pruned: str = ""

    @property
    def outcome(self) -> Outcome:
        """Return the outcome in one word, with the same precedence as in log lines."""
        if self.failed:
            return Outcome.FAILED
        if self.unmet_requirements:
            return Outcome.UNMET
        if self.skipped:
            return Outcome.UNKNOWN if self.unknown else Outcome.SKIPPED
        if self.refreshed:
            return Outcome.REFRESHED
        if self.changed:
            return Outcome.CHANGED
        return Outcome.STABLE


class SessionStart(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The start of a session.

    Attributes:
        number: Position in the run: 1; 0 for a local apply.
        manifest: Name of the manifest: its file, bundle or assignment.
        digest: SHA-256 (hex) of the manifest or bundle as requested.
        data_revisions: Revision of each hiera document read, by URL.
        resources: Number of resources in the manifest, without those of child manifests.
        noop: Whether the session changes nothing.
        health_check_only: Whether the session runs only health checks.
        requester: The requester's name as claimed by the request; "" for the node itself.
        agent_version: Version of the applying program.
        cause: "request", "schedule", "interval", "change", "assignment", "health" or "local".
        origin: Name of the schedule or assignment that caused the session; "" for others, and from older agents.
        message: The reason that the requester gave.
    """

    protocol: str
    event_id: str
    timestamp: Moment
    node: str = ""
    run: str = ""
    number: EventNumber = 0
    manifest: str = ""
    digest: str = ""
    data_revisions: dict[str, int] = {}
    resources: Count = 0
    noop: bool = False
    health_check_only: bool = False
    requester: str = ""
    agent_version: str = ""
    cause: str = ""
    origin: str = ""
    message: str = ""


class FailedResource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A failed resource in a summary. It contains enough information to act without reading the events.

    Attributes:
        resource: `type#name`.
        error: Error messages.
        code: The stable code of the first error.
        output: The end of a command's output, masked.
    """

    resource: str
    error: list[str]
    code: str = ""
    output: str = ""


class Counts(Struct, kw_only=True):
    """
    Numbers of a session, counted as in CCM.

    Every resource is failed, skipped, changed or stable; refreshed resources are also counted as changed.

    Attributes:
        total_resources: Resources of the session.
        unique_resources: Distinct resources of the session.
        changed_resources: Resources that were changed.
        failed_resources: Resources that failed.
        skipped_resources: Resources that were skipped.
        stable_resources: Resources that were already in their desired state.
        refreshed_count: Resources that were refreshed.
        requirements_unmet_count: Failed requirements.
        health_checked_count: Health checks that ran.
        health_check_ok_count, health_check_warning_count, health_check_critical_count, health_check_unknown_count: Health
            checks with this result.
        total_errors: Resources that failed.
        unknown_count: Resources with an outcome that a restricted plan cannot determine.
    """

    total_resources: Count = 0
    unique_resources: Count = 0
    changed_resources: Count = 0
    failed_resources: Count = 0
    skipped_resources: Count = 0
    stable_resources: Count = 0
    refreshed_count: Count = 0
    requirements_unmet_count: Count = 0
    health_checked_count: Count = 0
    health_check_ok_count: Count = 0
    health_check_warning_count: Count = 0
    health_check_critical_count: Count = 0
    health_check_unknown_count: Count = 0
    total_errors: Count = 0

    # ours
    unknown_count: int = 0


class SessionSummary(Counts, kw_only=True, omit_defaults=True):
    """
    The end of a session. Durations are in nanoseconds, as in CCM.

    Attributes:
        start_time: When the session began.
        end_time: When the session ended.
        total_duration: Nanoseconds.
        events_sent: Total number of events of the run, including the start and the summary: events 1 to this number exist.
        state: The node's end state in a run: "stable", "changed", "failed" or "stopped". Older controllers show
            "stopped" as failed, because `reason` is set.
        reason: Why the session ended early: "interrupted", "stopped by …", or the error that ended it.
        code: The stable code of `reason`.
        manifest, digest, data_revisions, noop, health_check_only: The values at the start of the session.
        corrective: Whether any change corrected drift.
        stopped_by: The operator who stopped the run, marked if no signature verifies the name; "" unless the
            state is "stopped".
        failed: The first 20 failed resources with their errors and the end of their output.
        refresh_pending: The first 20 resources with a pending refresh; the next apply refreshes them.
        left_out: The first 20 resources that applied resources require but the run left out: `service#nginx requires
            file#/etc/nginx.conf`.
        found: The digest of a saved plan's findings.
        warnings: Data of the run that the node could not store: its events or its undo record.
    """

    protocol: str
    event_id: str
    timestamp: Moment
    start_time: Moment | None = None
    end_time: Moment | None = None
    total_duration: Nanoseconds = 0

    # ours
    node: str = ""
    run: str = ""
    number: EventNumber = 0
    events_sent: EventNumber = 0
    state: str = ""
    reason: str = ""
    code: str = ""
    manifest: str = ""
    digest: str = ""
    data_revisions: dict[str, int] = {}
    noop: bool = False
    health_check_only: bool = False
    corrective: bool | None = None
    failed: list[FailedResource] = []
    refresh_pending: list[str] = []
    stopped_by: str = ""
    left_out: list[str] = []
    found: str = ""
    warnings: list[str] = []


def count(counts: Counts, event: TransactionEvent) -> None:
    """Add one event to a session's numbers."""
    counts.total_resources += 1
    if event.failed:
        counts.failed_resources += 1
        counts.total_errors += 1
    elif event.skipped:
        counts.skipped_resources += 1
    elif event.changed:
        counts.changed_resources += 1
    else:
        counts.stable_resources += 1
    counts.requirements_unmet_count += len(event.unmet_requirements)
    counts.refreshed_count += event.refreshed
    counts.unknown_count += bool(event.unknown)
    for check in event.health_check:
        counts.health_checked_count += 1
        if check.status == 0:
            counts.health_check_ok_count += 1
        elif check.status == 1:
            counts.health_check_warning_count += 1
        elif check.status == 2:
            counts.health_check_critical_count += 1
        else:
            counts.health_check_unknown_count += 1


def note_failure(failed: list[FailedResource], event: TransactionEvent) -> None:
    """Add a failed resource to the list, unless the list is full."""
    if event.failed and len(failed) < FAILED_LIMIT:
        output = event.output.encode(errors="replace")[-FAILED_OUTPUT_BYTES:].decode(errors="replace")
        resource = f"{event.type}#{event.name}"
        failed.append(FailedResource(resource=resource, error=event.error, code=event.code, output=output))


def add_outcome(summary: SessionSummary, event: TransactionEvent) -> None:
    """Add one event to a summary: its numbers, and its failure if the resource failed."""
    count(summary, event)
    note_failure(summary.failed, event)


def end_state(summary: SessionSummary) -> str:
    """Return the end state for a summary's numbers and reason: "failed", "changed" or "stable"."""
    if summary.reason or summary.failed_resources or summary.requirements_unmet_count:
        return "failed"
    return "changed" if summary.changed_resources else "stable"
