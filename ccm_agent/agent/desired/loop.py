"""
The convergence loop: it keeps one source of desired state applied on this node.

A source is an assignment, or a manifest of the configuration. The loop waits for a reason to look at it, asks it for the run
that is due, carries that run out through the queue of runs, and gives the source the end. What differs between sources (where
the manifest comes from, when it is refused, what is published) is behind the `Source` Protocol.

Reasons that arrive during a run, or while it waits in the queue, are looked at afterwards, together.
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
"""`pause` with the configuration and the clock of an agent."""

PROTOCOLS = {"apply": MANIFEST_APPLY, "plan": MANIFEST_PLAN, "check": MANIFEST_CHECK}

INTERVAL = "interval"
CHANGE = "change"
POLL = "poll"
"""Read the source; apply it if it has changed."""
CHECK = "check"
"""Run the health checks and nothing else."""

FULL_PAUSE_S = 5.0
"""When the queue is full, a run is offered again after this time."""

NOT_STARTED = "was not started: the agent is stopping or reloading its configuration"


class ConvergenceResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The end of one convergence, for the local command that asked for it.

    Attributes:
        name: The source of a manifest, or an assignment.
        state: "stable", "changed", "failed", "stopped", or "refused" when no run was started.
        run: The run; "" when there was none.
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
    """The result of a run that has ended."""
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
    """The result where no run was started."""
    return ConvergenceResult(name=name, state=NodeState.REFUSED, reason=reason, code=code)


class PlannedRun(Struct, frozen=True, kw_only=True):
    """
    A run that a source wants now.

    Attributes:
        manifest: What is applied.
        action: "apply", "plan" or "check".
        cause: Why, for events: "interval", "change", "assignment" or "health".
        principal: For whom it is, for the node's policy.
        way: How it came about, where that is an action of the policy: "assignment"; "" for the configuration.
        origin: Name of the assignment; "" for the configuration.
        requester: The operator who assigned it; "" for the configuration.
        bundle, data: As the assignment has them.
        deadline: It does not start after this; None: no limit.
        pins: Buckets whose documents are read as they were at a revision.
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
    A source wants no run now.

    Attributes:
        result: Why, for a local command that waits; None: nothing was due.
        may_check: Health checks that are due may run all the same.
    """

    result: ConvergenceResult | None = None
    may_check: bool = True


class Triggers:
    """
    Reasons to look at a source again, and the local commands that wait for the result of the next convergence.

    Attributes:
        pause: Spreads over a fleet what all its nodes hear at once; a source waits for it before it acts on such a reason.
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
        """A local command waits for the next convergence."""
        return bool(self._waiting)

    def add(self, reason: str) -> None:
        """There is a reason: INTERVAL, CHANGE, POLL or CHECK."""
        self.pending.add(reason)
        self._has_changed.set()

    def request(self) -> asyncio.Future[ConvergenceResult]:
        """Converge now; the future gets the result. A request during a run is served by the next run: the source may be newer."""
        future: asyncio.Future[ConvergenceResult] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self.add(INTERVAL)
        return future

    def take(self) -> set[str]:
        """All reasons so far; requests so far are served by the convergence that follows."""
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
        """Answer all requests: there will be no more convergence."""
        self.take()
        self.finish(None)

    async def wait(self, clock: Clock, deadline: float | None) -> None:
        """Return when a reason was added, at the latest at this time of the monotonic clock; None: without a limit."""
        if deadline is None:
            await self.wait_with()
            return
        sleep = asyncio.create_task(_sleep_until(clock, deadline), name="convergence:sleep")
        try:
            await self.wait_with(sleep)
        finally:
            sleep.cancel()

    async def wait_with(self, *others: asyncio.Future[Any]) -> None:
        """Return when a reason was added, or one of these futures is done."""
        self._has_changed.clear()
        changed: asyncio.Future[Any] = asyncio.create_task(
            self._has_changed.wait(), name="convergence:triggers"
        )
        try:
            await asyncio.wait({changed, *others}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()


async def _sleep_until(clock: Clock, deadline: float) -> None:
    # computed here: time passes until a task runs for the first time
    await clock.sleep(max(deadline - clock.monotonic(), 0.0))


class Source(Protocol):
    """
    One source of desired state.

    Attributes:
        name: For operators.
        kind: "source" or "assignment": the field of log lines that has the name.
        scope: Whose pending refreshes its runs handle; see `ApplyOptions.scope`.
        drift: What is known of its resources.
    """

    name: str
    kind: str
    scope: str
    drift: Drift

    async def open(self, triggers: Triggers) -> None:
        """Read what an earlier process left, and add triggers from here on."""
        ...

    async def close(self) -> None:
        """Stop adding triggers."""
        ...

    def timers(self) -> Sequence[tuple[str, IntervalTimer, float]]:
        """Timers that trigger it: the reason, the timer, and its interval as it is configured now."""
        ...

    async def next(self, triggers: Triggers) -> PlannedRun | NotPlanned:
        """Take the triggers and decide what is due. It may pause, so that a fleet does not do at once what it hears at once."""
        ...

    async def plan(
        self, action: str, cause: str, checked: ManifestSource | None = None
    ) -> PlannedRun | NotPlanned:
        """
        A run that is due for another reason than those of `next`.

        Args:
            action: "check", or "apply" after a critical health check.
            cause: Of the run.
            checked: The manifest whose checks were run.
        """
        ...

    def is_current(self, planned: PlannedRun) -> bool:
        """Whether a run that waits in the queue is still wanted."""
        ...

    def on_queued(self) -> None:
        """The run waits for other runs."""
        ...

    def on_start(self, planned: PlannedRun, start: SessionStart) -> None:
        """The run has started."""
        ...

    async def finish(
        self, planned: PlannedRun, run: str, summary: SessionSummary | None, *, has_started: bool
    ) -> ConvergenceResult | None:
        """
        Take note of the end of an apply or a plan, and publish it.

        Args:
            planned, run: The run.
            summary: None when it ended before its summary, or was not started.
            has_started: It has started.
        """
        ...

    async def save(self) -> None:
        """Write to disk what has changed."""
        ...


class ConvergenceLoop:
    """
    The loop of one source.

    Attributes:
        source: What it converges on.
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
            source: What it converges on.
            run_queue: Gets the runs.
            clock: What time it is.
            is_disabled: The node converges on nothing now.
            metrics: Counts applies after critical health checks; None where metrics are off.
            pause: Spreads over a fleet what all its nodes hear at once.
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
        """Converge until cancelled; first wait for the end of an earlier loop that had the same name."""
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
        """Return when there is a reason: a trigger, or a timer that is due."""
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
        except Exception as err:  # one failed turn must not end the loop
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
        """Run the health checks of what is applied here, and apply it again when one is critical."""
        checked = await self.source.plan("check", HEALTH)
        if not isinstance(checked, PlannedRun):
            return
        _, summary = await self._execute(checked, new_id())
        if self._remediation.follows(summary):
            step = await self.source.plan("apply", HEALTH, checked.manifest)
            if isinstance(step, PlannedRun):
                await self._apply(step)

    async def _execute(self, planned: PlannedRun, run: str) -> tuple[bool, SessionSummary | None]:
        """Queue a run and wait for its end; whether it started, and its summary if it came to one."""
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
    """Spread over a fleet what all its nodes hear at once; further changes fall into the same pause."""
    if pause_s := settings().change_pause_s:
        await clock.sleep(random.uniform(0, pause_s))


MakeLoop = Callable[[Source], ConvergenceLoop]
"""The loop of a source."""
