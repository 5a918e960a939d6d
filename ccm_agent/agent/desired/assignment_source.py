"""
One assignment name as a source of a convergence loop, and its published state.

The assignment that takes precedence under the name is applied when it is new, on its interval, when its unpinned data
changes, and when a health check is critical. A newer revision replaces an older one that waits in the queue. A run that has
started is finished first. The state of each assignment is published when it changes, and is stored on disk to survive a
restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from ccm_agent.agent.desired.assignment_content import AssignmentContent
from ccm_agent.agent.desired.assignment_status import LATE, AssignmentRules, AssignmentStatus, RolloutRun
from ccm_agent.agent.desired.assignments import CAUSE, MatchingAssignment, StoredAssignment
from ccm_agent.agent.desired.drift import SourceRecords
from ccm_agent.agent.desired.loop import (
    CHANGE,
    CHECK,
    INTERVAL,
    ConvergenceResult,
    NotPlanned,
    PlannedRun,
    Triggers,
    build_result,
    not_started,
)
from ccm_agent.agent.desired.origins import FETCH_S
from ccm_agent.agent.desired.timer import IntervalTimer, MakeTimer
from ccm_agent.agent.desired.watcher import DocumentWatcher
from ccm_agent.agent.runs.admission import CODE as DISABLED_CODE
from ccm_agent.agent.state.settings import Settings
from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.errors import BusDeniedError, BusUnavailableError, CcmError, Refusal
from ccm_agent.model.outcome import SessionStart, SessionSummary
from ccm_agent.model.ports import BrokerConnection, KeyReader
from ccm_agent.model.wire import CARRIED_OUT, COMPLIANT_STATES, DISABLED, WAITING, AssignmentState, NodeState
from ccm_agent.sessions.refresh_store import SCOPE

log = logging.getLogger(__name__)

MINIMUM_INTERVAL_S = 1.0
"""The minimum interval. With a shorter one, the node would have no time for anything else."""

MAXIMUM_INTERVAL_S = 366 * 86_400.0
"""The longest interval that still gives a valid date."""

RETRY_S = 30.0
"""A fetch that the broker did not answer or allow is retried after this time, or after the interval if that is shorter."""


class AssignmentTriggers:
    """
    The triggers that apply one assignment again, apart from new revisions: its interval, health checks, and changes of data.

    Attributes:
        timer: The timer of its interval.
        watcher: Watches its unpinned data.
    """

    def __init__(
        self,
        name: str,
        make_timer: MakeTimer,
        bucket: Callable[[str], KeyReader],
        link: BrokerConnection,
        settings: Callable[[], Settings],
    ) -> None:
        """
        Args:
            name: The name of the assignment.
            make_timer: Creates a timer, given its name.
            bucket: Returns a bucket of data, given its name.
            link: The connection.
            settings: Returns the current configuration.
        """
        self.timer = make_timer(name)
        self.watcher = DocumentWatcher(bucket, lambda: self._wake())
        self._link = link
        self._settings = settings
        self._check_timer = make_timer(f"check:{name}")
        self._check_interval_s = 0.0
        self._wake: Callable[[], None] = lambda: None
        self._unhook: Callable[[], None] = lambda: None

    def open(self, triggers: Triggers) -> None:
        """Add triggers from now on. The data is checked after each connection."""
        self._wake = partial(triggers.add, CHANGE)
        self._unhook = self._link.on_connect(self.watcher.recheck)

    async def close(self) -> None:
        """End all notifications."""
        self._unhook()
        await self.watcher.close()

    def wake(self) -> None:
        """Add a trigger, so that the loop checks the assignment again."""
        self._wake()

    def interval_s(self, known: StoredAssignment | None) -> float:
        """Return the interval of an assignment, or the configured default."""
        own = known.assignment.interval_s if known else 0.0
        if own > 0:
            return min(max(own, MINIMUM_INTERVAL_S), MAXIMUM_INTERVAL_S)
        return self._settings().interval_s

    def timers(self, known: StoredAssignment | None) -> Sequence[tuple[str, IntervalTimer, float]]:
        """
        Return the timers for its interval and its health checks; a reload of the configuration may change the intervals.
        """
        each_s = self._settings().health_check_interval_s
        if each_s != self._check_interval_s:
            self._check_interval_s = each_s
            self._check_timer.start(each_s) if each_s else self._check_timer.stop()
        return (INTERVAL, self.timer, self.interval_s(known)), (CHECK, self._check_timer, each_s)


class AssignmentSource:
    """The assignment that takes precedence under one name, as a `Source` of a convergence loop."""

    kind = "assignment"

    def __init__(
        self,
        name: str,
        make_triggers: Callable[[str], AssignmentTriggers],
        records: SourceRecords,
        status: AssignmentStatus,
        rules: AssignmentRules,
        content: AssignmentContent,
    ) -> None:
        """
        Args:
            name: The name of the assignment.
            make_triggers: Creates the triggers of an assignment, given its name.
            records: The records stored for each source.
            status: The states of all assignments.
            rules: Decides whether it may be applied.
            content: Fetches its manifest and data.
        """
        self.name = name
        self.scope = f"{SCOPE}{name}"
        self.drift = records.make_drift(self.scope)
        self._triggers = triggers = make_triggers(name)
        self._timer, self._watcher = triggers.timer, triggers.watcher
        self._status = status
        self._rules = rules
        self._content = content
        self._wanted: MatchingAssignment | None = None
        self._planned: MatchingAssignment | None = None
        self._tried: tuple[str, int] = ("", 0)

    def assign(self, wanted: MatchingAssignment) -> None:
        """Apply this assignment from now on; it may be the same one as before."""
        self._wanted = wanted
        self._triggers.wake()

    async def open(self, triggers: Triggers) -> None:
        """Add triggers from now on. After each connection to the broker, check the data."""
        self._triggers.open(triggers)
        if self._wanted is not None:
            self._triggers.wake()

    async def close(self) -> None:
        """End all notifications."""
        await self._triggers.close()

    def timers(self) -> Sequence[tuple[str, IntervalTimer, float]]:
        """
        Return the timers for its interval and its health checks; a reload of the configuration may change the intervals.
        """
        return self._triggers.timers(self._wanted.known if self._wanted else None)

    async def next(self, triggers: Triggers) -> PlannedRun | NotPlanned:
        """
        Plan an apply if the assignment is new or due, if its data has changed, or if a condition that prevented it has ended.
        """
        is_requested, reasons, wanted = triggers.is_requested, triggers.take(), self._wanted
        if wanted is None:
            return NotPlanned(may_check=False)
        known = wanted.known
        refusal = (
            wanted.refusal
            or self._rules.refusal(known, known.assignment.mode)
            or self._rules.deadline_refusal(known)
        )
        if refusal is not None:
            return self._refuse(known, refusal)
        is_new = self._tried != (known.key, known.number)
        rollout = self._status.rollout_runs.get(known.key)
        if is_new and not is_requested and rollout is not None and rollout.known.number == known.number:
            if not rollout.is_over:
                return NotPlanned(may_check=False)
            if (summary := rollout.summary) is not None:
                return await self._adopt(known, rollout, summary)
        is_due = INTERVAL in reasons or self._timer.remaining_s is None
        is_behind = await self._watcher.is_behind()
        if not (is_new or is_due or is_requested or is_behind or self._state() == WAITING):
            return NotPlanned()
        if is_new:
            await self._announce(known, triggers, is_urgent=is_requested)
        elif self._state() not in (*CARRIED_OUT, WAITING):
            # the condition that prevented it has ended
            self._publish(known, WAITING)
        if is_behind and not (is_new or is_due or is_requested):
            await triggers.pause()
        if not self._is_still(wanted, known.assignment.mode):
            return NotPlanned(may_check=False)
        return await self._plan_apply(wanted, CAUSE, is_new=is_new)

    async def plan(
        self, action: str, cause: str, checked: ManifestSource | None = None
    ) -> PlannedRun | NotPlanned:
        """Plan a run of the health checks of the applied manifest, or the apply that follows a critical check."""
        wanted = self._wanted
        if wanted is None:
            return NotPlanned()
        known = wanted.known
        if action != "check":
            is_still = self._is_still(wanted, action)
            return await self._plan_apply(wanted, cause, is_new=False) if is_still else NotPlanned()
        if known.assignment.mode != "apply" or not self._status.has_started(known.key, known.number):
            return NotPlanned()
        try:
            async with asyncio.timeout(FETCH_S):
                manifest = await self._content.fetch(known)
        except (CcmError, TimeoutError) as err:
            log.info("no checks are run", extra={"assignment": self.name, "reason": str(err)})
            return NotPlanned()
        return self._planned_run(wanted, manifest, action, cause)

    def is_current(self, planned: PlannedRun) -> bool:
        """Whether the planned revision still takes precedence and is not refused."""
        return self._planned is not None and self._is_still(self._planned, planned.action)

    def on_queued(self) -> None:
        """Publish that the run is waiting."""
        self._status.publish()

    def on_start(self, planned: PlannedRun, start: SessionStart) -> None:
        """Record the revision that started, and the revisions of data that it read."""
        if planned.action != "check" and self._planned is not None:
            known = self._planned.known
            self._status.set_started(known.key, known.number)
            self._watcher.record_revisions({} if known.pins else start.data_revisions)

    async def finish(
        self, planned: PlannedRun, run: str, summary: SessionSummary | None, *, has_started: bool
    ) -> ConvergenceResult | None:
        """Publish the state after the run."""
        assert self._planned is not None
        known = self._planned.known
        await self._watcher.follow(_followed(known))
        if summary is None:
            # It did not start, or the next process continues it; `next` determines the next step.
            self._tried = ("", 0)
            self._triggers.wake()
            return None
        self._publish_end(known, run, summary, has_started=has_started)
        return build_result(self.name, summary)

    async def save(self) -> None:
        """Save the states to disk."""
        await self._status.save()

    async def _adopt(
        self, known: StoredAssignment, rollout: RolloutRun, summary: SessionSummary
    ) -> NotPlanned:
        """Continue from the run of a rollout as if this loop had started it."""
        self._status.rollout_runs.pop(known.key, None)
        self._tried = (known.key, known.number)
        self._status.set_started(known.key, known.number)
        self._timer.start(self._interval_s())
        await self._watcher.follow(_followed(known))
        self._watcher.start_run()
        self._watcher.record_revisions({} if known.pins else rollout.data_revisions)
        self.drift = rollout.drift
        await self.drift.finish(self.name, rollout.run)
        self._publish_end(known, rollout.run, summary, has_started=True)
        return NotPlanned(result=build_result(self.name, summary))

    # -- due runs

    def _interval_s(self) -> float:
        return self._triggers.interval_s(self._wanted.known if self._wanted else None)

    def _is_still(self, wanted: MatchingAssignment, action: str) -> bool:
        """Whether an assignment still takes precedence and is not refused."""
        is_refused = self._rules.refusal(wanted.known, action) is not None
        return self._wanted == wanted and wanted.refusal is None and not is_refused

    async def _announce(self, known: StoredAssignment, triggers: Triggers, *, is_urgent: bool) -> None:
        """Pause for a random time if the assignment is new to this node and not urgent, then publish it as waiting."""
        self._timer.stop()
        published = self._status.published.get(self.name)
        is_published = published is not None and (published.key, published.revision) == (
            known.key,
            known.number,
        )
        if not is_published and not is_urgent:
            await triggers.pause()
        if not is_published or self._state() not in (*CARRIED_OUT, WAITING):
            # Most nodes have more to publish shortly; otherwise this is sent with the next heartbeat.
            self._publish(known, WAITING, is_urgent=False)

    async def _plan_apply(
        self, wanted: MatchingAssignment, cause: str, *, is_new: bool
    ) -> PlannedRun | NotPlanned:
        known = wanted.known
        await self._content.save()
        try:
            async with asyncio.timeout(FETCH_S):
                manifest = await self._content.fetch(known)
        except (CcmError, TimeoutError) as err:
            return self._fetch_failed(known, err)
        if not self._is_still(wanted, known.assignment.mode):
            return NotPlanned(may_check=False)
        self._tried = (known.key, known.number)
        (self._timer.start if is_new else self._timer.advance)(self._interval_s())
        await self._watcher.follow(_followed(known))
        self._watcher.start_run()
        return self._planned_run(wanted, manifest, known.assignment.mode, cause)

    def _planned_run(
        self, wanted: MatchingAssignment, manifest: ManifestSource, action: str, cause: str
    ) -> PlannedRun:
        self._planned, known = wanted, wanted.known
        is_first = not self._status.has_started(known.key, known.number)
        return PlannedRun(
            manifest=manifest,
            action=action,
            cause=cause,
            principal=known.asked_by,
            way=CAUSE,
            origin=self.name,
            requester=known.requester,
            bundle=known.assignment.bundle,
            data=known.assignment.data,
            deadline=known.assignment.deadline if is_first else None,
            pins=known.pins,
        )

    # -- published states

    def _publish_end(
        self, known: StoredAssignment, run: str, summary: SessionSummary, *, has_started: bool
    ) -> None:
        """Publish the state after a run, with its first failure as the reason."""
        reason, code = summary.reason, summary.code
        if not reason and summary.state not in COMPLIANT_STATES and summary.failed:
            failed = summary.failed[0]
            error = failed.error[0] if failed.error else "failed"
            reason, code = f"{failed.resource}: {error}", failed.code
        self._publish(known, summary.state, reason, code, run=run, has_started=has_started)

    def _refuse(self, known: StoredAssignment, refusal: Refusal) -> NotPlanned:
        self._timer.stop()
        if refusal.code.startswith("policy."):
            # The policy may allow it at a different hour.
            self._timer.retry_in(self._interval_s())
        state = NodeState.REFUSED.value
        if refusal.code == DISABLED_CODE:
            state = DISABLED
        elif refusal is LATE:
            state = NodeState.EXPIRED.value
        if self._state() != state:
            log.warning(
                "an assignment is not applied",
                extra={"assignment": self.name, "state": state, "reason": str(refusal)},
            )
        self._publish(known, state, str(refusal), refusal.code)
        result = not_started(self.name, str(refusal), refusal.code)
        return NotPlanned(result=result, may_check=refusal.code == DISABLED_CODE)

    def _fetch_failed(self, known: StoredAssignment, err: CcmError | TimeoutError) -> NotPlanned:
        """Handle a failed fetch: the broker may be unreachable, or its content may not match the assignment."""
        reason = str(err) or f"it could not be fetched in {FETCH_S:g} s"
        code = err.code if isinstance(err, CcmError) else BusUnavailableError.code
        log.warning(
            "an assignment cannot be fetched",
            extra={"assignment": self.name, "reason": reason, "code": code},
        )
        if isinstance(err, (BusUnavailableError, TimeoutError, BusDeniedError)):
            self._timer.retry_in(min(RETRY_S, self._interval_s()))
            self._publish(known, WAITING, reason, code)
        else:
            self._timer.retry_in(self._interval_s())
            self._tried = (known.key, known.number)
            published = self._status.published.get(self.name)
            if published is None or (published.revision, published.code) != (known.number, code):
                self._content.report_unusable(known, reason)
            self._publish(known, NodeState.FAILED, reason, code)
        return NotPlanned(result=not_started(self.name, reason, code), may_check=False)

    def _state(self) -> str:
        state = self._status.now.get(self.name)
        return state.state if state else ""

    def _publish(
        self,
        known: StoredAssignment,
        state: str,
        reason: str = "",
        code: str = "",
        *,
        run: str = "",
        has_started: bool = False,
        is_urgent: bool = True,
    ) -> None:
        was = self._status.now.get(self.name) or AssignmentState(key="", revision=0)
        applied, data_revision, read = was.digest, was.data_revision, was.data_revisions
        if has_started:
            applied, data_revision = known.assignment.bundle.digest, known.assignment.data_revision
        if run:
            read = {} if known.pins else self._watcher.tried
        current = AssignmentState(
            key=known.key,
            revision=known.number,
            count=known.count,
            digest=applied,
            data_revision=data_revision,
            data_revisions=read,
            state=state,
            reason=reason,
            code=code,
            run=run or was.run,
            next_time=self._timer.next_time,
        )
        self._status.update(self.name, current, is_urgent=is_urgent)


def _followed(known: StoredAssignment) -> Sequence[str]:
    """Return the documents whose changes start a run. Pinned documents do not change."""
    return () if known.assignment.data_revision else known.assignment.data
