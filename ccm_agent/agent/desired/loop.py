"""
The convergence loop: it keeps one source of desired state applied on this node.

A source is an assignment or a configured manifest. The loop waits for a trigger, gets the next run from the source, executes
that run through the queue of runs, and passes the result to the source. The differences between sources (the origin of the
manifest, the reasons to refuse it, the published states) are behind the `Source` Protocol.

Triggers that arrive during a run, or while it waits in the queue, are handled together afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from ccm_agent.agent.desired.drift import HEALTH, Drift, Remediation
from ccm_agent.agent.desired.timer import IntervalTimer
from ccm_agent.agent.runs.run_queue import LocalRun, QueuedRun, RunQueue
from ccm_agent.agent.state.settings import Settings
from ccm_agent.engine.request import ManifestSource
from ccm_agent.metrics.agent import AgentMetrics
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import FailedResource, SessionStart, SessionSummary
from ccm_agent.model.ports import Clock
from ccm_agent.model.records.policy import LOCAL, Principal
from ccm_agent.model.wire import (
    MANIFEST_APPLY,
    MANIFEST_CHECK,
    MANIFEST_PLAN,
    ManifestRequest,
    NodeState,
)

log = logging.getLogger(__name__)

Pause = Callable[[], Awaitable[None]]
"""Calls `pause` with an agent's configuration and clock."""

PROTOCOLS = {"apply": MANIFEST_APPLY, "plan": MANIFEST_PLAN, "check": MANIFEST_CHECK}

INTERVAL = "interval"
CHANGE = "change"
POLL = "poll"
"""Read the source; apply it if it has changed."""
CHECK = "check"
"""Run only the health checks."""

FULL_PAUSE_S = 5.0
"""If the queue is full, a run is offered again after this time."""

NOT_STARTED = "was not started: the agent is stopping or reloading its configuration"


class ConvergenceResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The result of one convergence, for the local command that requested it.

    Attributes:
        name: The name of the manifest's source, or of the assignment.
        state: "stable", "changed", "failed", "stopped", or "refused" if no run was started.
        run: The run's id; "" if there was none.
        reason, code: Why it failed as a whole or was not started; with another state, a note about it.
        changed: Number of changed resources.
        failed: Number of failed resources.
        total: Number of all resources.
        resources: Failed resources with their errors, the first 20.
    """

    name: str
    state: str
    run: str = ""
    reason: str = ""
    code: str = ""
    changed: int = 0
    failed: int = 0
    total: int = 0
    resources: list[FailedResource] = []


def build_result(name: str, summary: SessionSummary, note: str = "") -> ConvergenceResult:
    """Return the result of a run that has ended."""
    return ConvergenceResult(
        name=name,
        state=summary.state,
        run=summary.run,
        reason=summary.reason or note,
        code=summary.code,
        changed=summary.changed_resources,
        failed=summary.failed_resources,
        total=summary.total_resources,
        resources=summary.failed,
    )


def not_started(name: str, reason: str = NOT_STARTED, code: str = "") -> ConvergenceResult:
    """Return the result if no run was started."""
    return ConvergenceResult(name=name, state=NodeState.REFUSED, reason=reason, code=code)


class PlannedRun(Struct, frozen=True, kw_only=True):
    """
    A run that a source has planned.

    Attributes:
        manifest: The manifest to apply.
        action: "apply", "plan" or "check".
        cause: The cause of the run, for events: "interval", "change", "assignment" or "health".
        principal: The principal on whose behalf it runs, for the node's policy.
        way: The trigger, as an action of the policy: "assignment"; "" for the configuration.
        origin: The name of the assignment; "" for the configuration.
        requester: The operator who assigned it; "" for the configuration.
        bundle, data: The bundle and data of the assignment.
        deadline: The run does not start after this time; None: no limit.
        pins: The revisions of buckets at which documents are read, by bucket name.
    """

    manifest: ManifestSource
    action: str
    cause: str
    principal: Principal = LOCAL
    way: str = ""
    origin: str = ""
    requester: str = ""
    bundle: Bundle | None = None
    data: Sequence[str] = ()
    deadline: datetime | None = None
    pins: Mapping[str, int] = {}


class NotPlanned(Struct, frozen=True, kw_only=True):
    """
    The reply of a source that has no run to start.

    Attributes:
        result: The reason, for a local command that waits; None: nothing was due.
        may_check: Whether health checks that are due may still run.
    """

    result: ConvergenceResult | None = None
    may_check: bool = True


class Triggers:
    """
    Triggers of a source, and the local commands that wait for the result of the next convergence.

    Attributes:
        pause: Waits for a random time. A source awaits it before it acts on a trigger that all nodes of a fleet receive at
            the same time.
    """

    def __init__(self, name: str, pause: Pause) -> None:
        self.pause = pause
        self.pending: set[str] = set()
        self.taken: set[str] = set()
        self._name = name
        self._has_changed = asyncio.Event()
        self._waiting: list[asyncio.Future[ConvergenceResult]] = []
        self._served: list[asyncio.Future[ConvergenceResult]] = []

    @property
    def is_requested(self) -> bool:
        """Whether a local command waits for the next convergence."""
        return bool(self._waiting)

    def add(self, reason: str) -> None:
        """Add a trigger: INTERVAL, CHANGE, POLL or CHECK."""
        self.pending.add(reason)
        self._has_changed.set()

    def request(self) -> asyncio.Future[ConvergenceResult]:
        """
        Request a convergence. The future receives its result. A request during a run is served by the next run, as the source
        may be newer.
        """
        future: asyncio.Future[ConvergenceResult] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self.add(INTERVAL)
        return future

    def take(self) -> set[str]:
        """Return and clear all triggers; the requests so far are served by the convergence that follows."""
        self.taken, self.pending = self.pending, set()
        self._served += self._waiting
        self._waiting = []
        return self.taken

    def finish(self, result: ConvergenceResult | None) -> None:
        """Answer the requests that were taken; None: nothing was applied."""
        for future in self._served:
            if not future.done():
                future.set_result(result or not_started(self._name))
        self._served = []

    def cancel(self) -> None:
        """Answer all requests, because there will be no further convergence."""
        self.take()
        self.finish(None)

    async def wait(self, clock: Clock, deadline: float | None) -> None:
        """Wait for a trigger, or until this time of the monotonic clock; None: no limit."""
        if deadline is None:
            await self.wait_with()
            return
        sleep = asyncio.create_task(_sleep_until(clock, deadline), name="convergence:sleep")
        try:
            await self.wait_with(sleep)
        finally:
            sleep.cancel()

    async def wait_with(self, *others: asyncio.Future[Any]) -> None:
        """Wait for a trigger, or until one of these futures is done."""
        self._has_changed.clear()
        changed: asyncio.Future[Any] = asyncio.create_task(
            self._has_changed.wait(), name="convergence:triggers"
        )
        try:
            await asyncio.wait({changed, *others}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()


async def _sleep_until(clock: Clock, deadline: float) -> None:
    # Computed here, because time passes until a task runs for the first time.
    await clock.sleep(max(deadline - clock.monotonic(), 0.0))


class Source(Protocol):
    """
    One source of desired state.

    Attributes:
        name: The name for operators.
        kind: "source" or "assignment": the name of the field in log lines.
        scope: The owner of its pending refreshes; see `ApplyOptions.scope`.
        drift: The drift record of its resources.
    """

    name: str
    kind: str
    scope: str
    drift: Drift

    async def open(self, triggers: Triggers) -> None:
        """Read the files of an earlier process, and add triggers from now on."""
        ...

    async def close(self) -> None:
        """Stop adding triggers."""
        ...

    def timers(self) -> Sequence[tuple[str, IntervalTimer, float]]:
        """Return the timers that trigger it: the trigger, the timer, and its currently configured interval."""
        ...

    async def next(self, triggers: Triggers) -> PlannedRun | NotPlanned:
        """
        Take the triggers and return the run that is due. It may pause, so that the nodes of a fleet do not react to a
        notification at the same time.
        """
        ...

    async def plan(
        self, action: str, cause: str, checked: ManifestSource | None = None
    ) -> PlannedRun | NotPlanned:
        """
        Plan a run that is due for a reason other than those of `next`.

        Args:
            action: "check", or "apply" after a critical health check.
            cause: The cause of the run.
            checked: The manifest whose checks ran.
        """
        ...

    def is_current(self, planned: PlannedRun) -> bool:
        """Whether a run that waits in the queue is still needed."""
        ...

    def on_queued(self) -> None:
        """Handle a run that waits for other runs."""
        ...

    def on_start(self, planned: PlannedRun, start: SessionStart) -> None:
        """Handle a run that has started."""
        ...

    async def finish(
        self, planned: PlannedRun, run: str, summary: SessionSummary | None, *, has_started: bool
    ) -> ConvergenceResult | None:
        """
        Record the result of an apply or a plan, and publish it.

        Args:
            planned, run: The run.
            summary: The summary; None if the run ended without one, or was not started.
            has_started: Whether the run has started.
        """
        ...

    async def save(self) -> None:
        """Save the changes to disk."""
        ...


class ConvergenceLoop:
    """
    The loop of one source.

    Attributes:
        source: The source.
    """

    def __init__(
        self,
        source: Source,
        run_queue: RunQueue,
        clock: Clock,
        is_disabled: Callable[[], bool],
        metrics: AgentMetrics | None,
        pause: Pause,
    ) -> None:
        """
        Args:
            source: The source.
            run_queue: The queue for the runs.
            clock: Returns the current time.
            is_disabled: Returns whether the node is disabled.
            metrics: Counts applies after critical health checks; None if metrics are off.
            pause: Waits for a random time; see `Triggers`.
        """
        self.source = source
        self.triggers = Triggers(source.name, pause)
        self._run_queue = run_queue
        self._clock = clock
        self._started = ""
        self._remediation = Remediation(
            source.kind,
            source.name,
            clock,
            is_disabled,
            metrics,
        )

    async def run(self, after: asyncio.Task[None] | None = None) -> None:
        """Converge until cancelled, after waiting for the end of an earlier loop with the same name."""
        try:
            if after is not None:
                await asyncio.wait({after})
            await self.source.drift.open()
            await self.source.open(self.triggers)
            while True:
                await self._wait()
                await self._guarded_turn()
                await self.source.save()
        finally:
            self.triggers.cancel()
            await self.source.close()

    async def _wait(self) -> None:
        """Wait for a trigger or for a timer that is due."""
        clock = self._clock
        while True:
            deadlines = []
            for reason, timer, interval_s in self.source.timers():
                if timer.remaining_s == 0.0:
                    timer.advance(interval_s)
                    self.triggers.add(reason)
                if timer.remaining_s is not None:
                    deadlines.append(clock.monotonic() + timer.remaining_s)
            if self.triggers.pending:
                return
            await self.triggers.wait(clock, min(deadlines, default=None))

    async def _guarded_turn(self) -> None:
        result = None
        try:
            result = await self._turn()
        except Exception as err:  # a failed turn must not end the loop
            self.triggers.take()
            for reason, timer, interval_s in self.source.timers():
                if reason == INTERVAL and timer.remaining_s is None:
                    timer.retry_in(interval_s)
            log.exception("convergence failed unexpectedly", extra={self.source.kind: self.source.name})
            result = not_started(self.source.name, f"{type(err).__name__}: {err}", "ccm.fault")
        finally:
            self.triggers.finish(result)

    async def _turn(self) -> ConvergenceResult | None:
        step = await self.source.next(self.triggers)
        if isinstance(step, PlannedRun):
            return await self._apply(step)
        if step.may_check and CHECK in self.triggers.taken:
            await self._check()
        return step.result

    async def _apply(self, planned: PlannedRun) -> ConvergenceResult | None:
        run = new_id()
        has_started, summary = await self._execute(planned, run)
        result = await self.source.finish(planned, run, summary, has_started=has_started)
        if summary is not None and planned.action == "apply":
            await self.source.drift.finish(self.source.name, run)
        return result

    async def _check(self) -> None:
        """Run the health checks of the applied manifest, and apply it again if a check is critical."""
        checked = await self.source.plan("check", HEALTH)
        if not isinstance(checked, PlannedRun):
            return
        _, summary = await self._execute(checked, new_id())
        if self._remediation.follows(summary):
            step = await self.source.plan("apply", HEALTH, checked.manifest)
            if isinstance(step, PlannedRun):
                await self._apply(step)

    async def _execute(self, planned: PlannedRun, run: str) -> tuple[bool, SessionSummary | None]:
        """Queue a run and wait for its end. Returns whether it started, and its summary if it has one."""
        ended: asyncio.Future[SessionSummary | None] = asyncio.get_running_loop().create_future()
        job, queue = self._job(planned, run, ended), self._run_queue
        while (position := queue.offer(job).position) < 0:
            self.source.on_queued()
            await self._clock.sleep(FULL_PAUSE_S)
        if position:
            self.source.on_queued()
        try:
            while not ended.done():
                if not self.source.is_current(planned) and queue.withdraw(run):
                    return False, None
                await self.triggers.wait_with(ended)
            return self._started == run, ended.result()
        finally:
            queue.withdraw(run)

    def _job(self, planned: PlannedRun, run: str, ended: asyncio.Future[SessionSummary | None]) -> QueuedRun:
        is_apply, drift = planned.action == "apply", self.source.drift

        def start(session: SessionStart) -> None:
            self._started = run
            self.source.on_start(planned, session)
            if is_apply:
                drift.start(session)

        request = ManifestRequest(
            protocol=PROTOCOLS[planned.action],
            run=run,
            name=planned.manifest.name,
            bundle=planned.bundle,
            digest=planned.manifest.digest,
            data=list(planned.data),
            requester=planned.requester,
            cause=planned.cause,
        )
        own = LocalRun(
            source=planned.manifest,
            ended=ended,
            on_start=start,
            judge=drift.judge if is_apply else None,
            pins=planned.pins,
            scope=self.source.scope,
        )
        return QueuedRun(
            run=run,
            action=planned.action,
            name=planned.manifest.name,
            request=request,
            deadline=planned.deadline,
            own=own,
            principal=planned.principal,
            way=planned.way,
            origin=planned.origin,
        )


async def pause(settings: Callable[[], Settings], clock: Clock) -> None:
    """
    Wait for a random time, so that the nodes of a fleet do not react at the same moment; later changes share the same pause.
    """
    if pause_s := settings().change_pause_s:
        await clock.sleep(random.uniform(0, pause_s))


MakeLoop = Callable[[Source], ConvergenceLoop]
"""Creates the loop of a source."""
