"""
One assignment name as a source of a convergence loop, and what is published about it.

The assignment that takes precedence under the name is applied when it is new, on its interval, when data that it follows
change, and when a health check is critical. A newer revision replaces an older one that waits in the queue. A run that has
started is finished first. The state of each assignment is published when it changes, and is on disk, so that it survives a
restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ccm_agent.agent.desired.assignment_status import AssignmentStatus, RolloutRun
from ccm_agent.agent.desired.assignments import (
    CAUSE,
    AssignmentCache,
    MatchingAssignment,
    StoredAssignment,
)
from ccm_agent.agent.desired.drift import Drift
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
    pause,
)
from ccm_agent.agent.desired.origins import FETCH_S
from ccm_agent.agent.desired.timer import IntervalTimer
from ccm_agent.agent.desired.watcher import DocumentWatcher
from ccm_agent.agent.runs.admission import CODE as DISABLED_CODE
from ccm_agent.engine.bundle import inner_path
from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.errors import BusDeniedError, BusUnavailableError, CcmError, Refusal
from ccm_agent.model.outcome import SessionStart, SessionSummary
from ccm_agent.model.ports import Clock
from ccm_agent.model.wire import CARRIED_OUT, COMPLIANT_STATES, DISABLED, WAITING, AssignmentState, NodeState
from ccm_agent.sessions.refresh_store import SCOPE

if TYPE_CHECKING:
    from ccm_agent.agent.process.context import AgentContext

log = logging.getLogger(__name__)

LATE = Refusal("run.expired", "its deadline passed before it began here; assign it again to apply it")

MINIMUM_INTERVAL_S = 1.0
"""An assignment that asks for less would leave the node no time for anything else."""

MAXIMUM_INTERVAL_S = 366 * 86_400.0
"""The longest interval that still gives a valid date."""

RETRY_S = 30.0
"""What could not be fetched while the broker is there is tried again after this time, if that is sooner than the interval."""


def deadline_refusal(status: AssignmentStatus, clock: Clock, known: StoredAssignment) -> Refusal | None:
    """Why an assignment does not start here any more; None when it may, or has started in time."""
    deadline = known.assignment.deadline
    if deadline is None or clock.now() <= deadline:
        return None
    return None if status.has_started(known.key, known.number) else LATE


async def fetch_assignment(context: AgentContext, known: StoredAssignment) -> ManifestSource:
    """
    The manifest of an assignment, unpacked, with the data that it pins on disk.

    Raises:
        CcmError: It cannot be fetched, or is not what was assigned.
    """
    assignment = known.assignment
    inner = inner_path(assignment.bundle.manifest, assignment.name)
    folder = await context.bundles.unpacked(assignment.bundle)
    for url in assignment.data:
        await context.documents.fetch_pinned(url, known.pins, assignment.data_numbers)
    return ManifestSource(
        path=f"{folder}/{inner}",
        directory=folder,
        name=assignment.manifest or assignment.name,
        digest=assignment.bundle.digest,
    )


class AssignmentSource:
    """The assignment that takes precedence under one name, as a `Source` of a convergence loop."""

    kind = "assignment"

    def __init__(
        self, name: str, context: AgentContext, cache: AssignmentCache, status: AssignmentStatus
    ) -> None:
        self.name = name
        self.scope = f"{SCOPE}{name}"
        self.drift = Drift(self.scope, context.state / "converged", lambda: context.assigned.facts)
        self._context = context
        self._cache = cache
        self._status = status
        self._wanted: MatchingAssignment | None = None
        self._planned: MatchingAssignment | None = None
        self._tried: tuple[str, int] = ("", 0)
        self._timer = IntervalTimer(context.node, name, context.clock)
        self._check_timer = IntervalTimer(context.node, f"check:{name}", context.clock)
        self._check_interval_s = 0.0
        self._wake: Callable[[], None] = lambda: None
        self._watcher = DocumentWatcher(context.ports.bucket, lambda: self._wake())
        self._unhook: Callable[[], None] = lambda: None

    def assign(self, wanted: MatchingAssignment) -> None:
        """Apply this assignment from now on; it may be the same as before."""
        self._wanted = wanted
        self._wake()

    async def open(self, triggers: Triggers) -> None:
        """Check the data that it follows after each connection."""
        self._wake = partial(triggers.add, CHANGE)
        self._unhook = self._context.link.on_connect(self._watcher.recheck)
        if self._wanted is not None:
            self._wake()

    async def close(self) -> None:
        """End all notifications."""
        self._unhook()
        await self._watcher.close()

    def timers(self) -> Sequence[tuple[str, IntervalTimer, float]]:
        """Its interval, and that of health checks; a reload of the configuration may change them."""
        each_s = self._context.settings.health_check_interval_s
        if each_s != self._check_interval_s:
            self._check_interval_s = each_s
            self._check_timer.start(each_s) if each_s else self._check_timer.stop()
        return (INTERVAL, self._timer, self._interval_s()), (CHECK, self._check_timer, each_s)

    async def next(self, triggers: Triggers) -> PlannedRun | NotPlanned:
        """Apply it when it is new or due, when its data have changed, and when what kept it from being applied is over."""
        is_requested, reasons, wanted = triggers.is_requested, triggers.take(), self._wanted
        if wanted is None:
            return NotPlanned(may_check=False)
        known = wanted.known
        refusal = (
            wanted.refusal
            or self._refusal(known, known.assignment.mode)
            or deadline_refusal(self._status, self._context.clock, known)
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
            await self._announce(known, is_urgent=is_requested)
        elif self._state() not in (*CARRIED_OUT, WAITING):
            # what kept it from being applied is over
            self._publish(known, WAITING)
        if is_behind and not (is_new or is_due or is_requested):
            await pause(self._context)
        if not self._is_still(wanted, known.assignment.mode):
            return NotPlanned(may_check=False)
        return await self._plan_apply(wanted, CAUSE, is_new=is_new)

    async def plan(
        self, action: str, cause: str, checked: ManifestSource | None = None
    ) -> PlannedRun | NotPlanned:
        """A run of health checks of what was applied here, or the apply that follows from one."""
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
                manifest = await self._fetch(known)
        except (CcmError, TimeoutError) as err:
            log.info("no checks are run", extra={"assignment": self.name, "reason": str(err)})
            return NotPlanned()
        return self._planned_run(wanted, manifest, action, cause)

    def is_current(self, planned: PlannedRun) -> bool:
        """Not when another revision takes precedence now, or it is refused."""
        return self._planned is not None and self._is_still(self._planned, planned.action)

    def on_queued(self) -> None:
        """Publish that it waits."""
        self._status.publish()

    def on_start(self, planned: PlannedRun, start: SessionStart) -> None:
        """Note which revision started, and which data it read."""
        if planned.action != "check" and self._planned is not None:
            known = self._planned.known
            self._status.set_started(known.key, known.number)
            self._watcher.record_revisions({} if known.pins else start.data_revisions)

    async def finish(
        self, planned: PlannedRun, run: str, summary: SessionSummary | None, *, has_started: bool
    ) -> ConvergenceResult | None:
        """Publish the state that the run left."""
        assert self._planned is not None
        known = self._planned.known
        await self._watcher.follow(_followed(known))
        if summary is None:
            # not started, or left to the next process: the next turn finds out why
            self._tried = ("", 0)
            self._wake()
            return None
        self._publish_end(known, run, summary, has_started=has_started)
        return build_result(self.name, summary)

    async def save(self) -> None:
        """Write down the states."""
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
        await self.drift.finish(self.name, rollout.run, self._context.events.drifted)
        self._publish_end(known, rollout.run, summary, has_started=True)
        return NotPlanned(result=build_result(self.name, summary))

    # -- what is due

    def _interval_s(self) -> float:
        own = self._wanted.known.assignment.interval_s if self._wanted else 0.0
        if own > 0:
            return min(max(own, MINIMUM_INTERVAL_S), MAXIMUM_INTERVAL_S)
        return self._context.settings.interval_s

    def _is_still(self, wanted: MatchingAssignment, action: str) -> bool:
        """Whether an assignment still takes precedence, and is not refused."""
        is_refused = self._refusal(wanted.known, action) is not None
        return self._wanted == wanted and wanted.refusal is None and not is_refused

    def _refusal(self, known: StoredAssignment, action: str) -> Refusal | None:
        admission = self._context.admission
        return admission.refusal(action) or admission.policy.refusal(known.asked_by, CAUSE, action)

    async def _announce(self, known: StoredAssignment, *, is_urgent: bool) -> None:
        """Let a part of the fleet go first; what was known before a restart does not wait. Then publish that it waits."""
        self._timer.stop()
        published = self._status.published.get(self.name)
        is_published = published is not None and (published.key, published.revision) == (
            known.key,
            known.number,
        )
        if not is_published and not is_urgent:
            await pause(self._context)
        if not is_published or self._state() not in (*CARRIED_OUT, WAITING):
            # most nodes have more to publish in a moment; if not, this goes out with the next heartbeat
            self._publish(known, WAITING, is_urgent=False)

    async def _plan_apply(
        self, wanted: MatchingAssignment, cause: str, *, is_new: bool
    ) -> PlannedRun | NotPlanned:
        known = wanted.known
        await self._cache.save()
        try:
            async with asyncio.timeout(FETCH_S):
                manifest = await self._fetch(known)
        except (CcmError, TimeoutError) as err:
            return self._fetch_failed(known, err)
        if not self._is_still(wanted, known.assignment.mode):
            return NotPlanned(may_check=False)
        self._tried = (known.key, known.number)
        (self._timer.start if is_new else self._timer.advance)(self._interval_s())
        await self._watcher.follow(_followed(known))
        self._watcher.start_run()
        return self._planned_run(wanted, manifest, known.assignment.mode, cause)

    async def _fetch(self, known: StoredAssignment) -> ManifestSource:
        return await fetch_assignment(self._context, known)

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

    # -- what is published

    def _publish_end(
        self, known: StoredAssignment, run: str, summary: SessionSummary, *, has_started: bool
    ) -> None:
        """Publish the state that a run left, with its first failure as the reason."""
        reason, code = summary.reason, summary.code
        if not reason and summary.state not in COMPLIANT_STATES and summary.failed:
            failed = summary.failed[0]
            error = failed.error[0] if failed.error else "failed"
            reason, code = f"{failed.resource}: {error}", failed.code
        self._publish(known, summary.state, reason, code, run=run, has_started=has_started)

    def _refuse(self, known: StoredAssignment, refusal: Refusal) -> NotPlanned:
        self._timer.stop()
        if refusal.code.startswith("policy."):
            # the policy may allow it at another hour
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
        """It cannot be fetched: the broker may be away, or what it holds is not what was assigned."""
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
                self._context.events.refused(known.key, reason)
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
    """The documents whose changes start a run; pinned ones do not change."""
    return () if known.assignment.data_revision else known.assignment.data
