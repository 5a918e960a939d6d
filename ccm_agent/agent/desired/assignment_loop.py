"""
One assignment of this node: when it is applied, and the status that is published.

It is applied when it is new, on its interval, when data that it follows change, and when a health check is critical. A newer
revision replaces an older one that waits. A run that has started is finished first.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from msgspec import Struct

from ccm_agent.agent.desired.assignment_rules import MatchingAssignment, StoredAssignment
from ccm_agent.agent.desired.assignment_status import AssignmentStatus
from ccm_agent.agent.desired.document_watcher import DocumentWatcher
from ccm_agent.agent.desired.drift import Drift, OnDrift
from ccm_agent.agent.desired.interval_timer import IntervalTimer
from ccm_agent.agent.desired.remediation import HEALTH, Remediation
from ccm_agent.agent.desired.run_once import ConvergenceResult, RunOnceWaiters, ended_of, not_begun
from ccm_agent.agent.desired.source import FETCH_S
from ccm_agent.agent.desired.source_loop import FULL_PAUSE_S
from ccm_agent.agent.process.config import Settings
from ccm_agent.agent.runs.admission import CODE as DISABLED_CODE
from ccm_agent.agent.runs.run_queue import LocalRun, QueuedRun, RunQueue
from ccm_agent.engine.bundle import inner_path
from ccm_agent.engine.request import ManifestSource
from ccm_agent.metrics.agent import AgentMetrics
from ccm_agent.model.errors import BusDeniedError, BusUnavailableError, CcmError, Refusal
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SessionStart, SessionSummary
from ccm_agent.model.ports import Clock, KeyValue
from ccm_agent.model.wire import (
    CARRIED_OUT,
    DISABLED,
    MANIFEST_APPLY,
    MANIFEST_CHECK,
    MANIFEST_PLAN,
    RIGHT,
    WAITING,
    AssignmentState,
    Bundle,
    ManifestRequest,
    NodeState,
)

log = logging.getLogger(__name__)

CAUSE = "assignment"
PROTOCOLS = {"apply": MANIFEST_APPLY, "plan": MANIFEST_PLAN, "check": MANIFEST_CHECK}
LATE = Refusal("run.expired", "its deadline passed before it began here; assign it again to apply it")

MINIMUM_INTERVAL_S = 1.0
"""An assignment that asks for less would leave the node no time for anything else."""

MAXIMUM_INTERVAL_S = 366 * 86_400.0
"""The longest interval that still gives a valid date."""

RETRY_S = 30.0
"""What could not be fetched though the broker is there is tried again after this, if that is sooner than the interval."""


class AssignmentContext(Struct, frozen=True, kw_only=True):
    """
    What the assignments of one agent share.

    Attributes:
        node: This node.
        settings: The configuration as it is now.
        run_queue: Where runs wait.
        clock: Time.
        states: How the node stands to each.
        unpack: The folder of a bundle, fetched if need be.
        fetch_pinned: Sees that a pinned document is on this disk.
        keep: Stores which assignments are known; awaited before one is applied.
        bucket: A bucket by name, for the data that an assignment follows.
        on_connect: Has a function called at each connection, until what it returns is called.
        is_disabled: The node converges on nothing now; its checks go on.
        metrics: Counts remediations; None where metrics are off.
        refusal: Why the agent starts nothing of this action now; None when it may start.
        forbids: Why the node's policy refuses this action to the operator who assigned it; None when it allows it.
        on_refused: Called with an assignment that cannot be applied, and the reason.
        on_drift: Called with the corrections of a run.
    """

    node: str
    settings: Callable[[], Settings]
    run_queue: RunQueue
    clock: Clock
    states: AssignmentStatus
    unpack: Callable[[Bundle], Awaitable[str]]
    fetch_pinned: Callable[[str, dict[str, int]], Awaitable[None]]
    keep: Callable[[], Awaitable[None]]
    bucket: Callable[[str], KeyValue]
    on_connect: Callable[[Callable[[], None]], Callable[[], None]]
    is_disabled: Callable[[], bool]
    refusal: Callable[[str], Refusal | None]
    forbids: Callable[[StoredAssignment, str], Refusal | None]
    on_refused: Callable[[str, str], None]
    on_drift: OnDrift
    metrics: AgentMetrics | None = None


def deadline_refusal(context: AssignmentContext, known: StoredAssignment) -> Refusal | None:
    """Why an assignment does not begin here any more; None when it may, or has begun in time."""
    deadline = known.assignment.deadline
    if deadline is None or context.clock.now() <= deadline:
        return None
    return None if context.states.has_begun(known.key, known.number) else LATE


class AssignmentLoop:
    """The loop of one assignment name: it applies the assignment that takes precedence under that name."""

    def __init__(self, name: str, drift: Drift, context: AssignmentContext) -> None:
        self._name = name
        self._drift = drift
        self._context = context
        self._wanted: MatchingAssignment | None = None
        self._tried: tuple[str, int] = ("", 0)
        self._timer = IntervalTimer(context.node, name, context.clock)
        self._checks = IntervalTimer(context.node, f"check:{name}", context.clock)
        self._checks_each_s = 0.0
        clock, is_disabled = context.clock, context.is_disabled
        self._remediation = Remediation("assignment", name, clock, is_disabled, context.metrics)
        self._wake = asyncio.Event()
        self._following = DocumentWatcher(context.bucket, self._wake.set)
        self._waiters = RunOnceWaiters(name)
        self._ended: ConvergenceResult | None = None

    def assign(self, candidate: MatchingAssignment) -> None:
        """Apply this assignment from now on; it may be the same as before."""
        self._wanted = candidate
        self._wake.set()

    def once(self) -> asyncio.Future[ConvergenceResult]:
        """Apply it now, for a local operator; the future gives the result."""
        order = self._waiters.place()
        self._wake.set()
        return order

    async def run(self, after: asyncio.Task[None] | None = None) -> None:
        """Apply what is assigned until cancelled, after the task that had this name before has ended."""
        unhook = self._context.on_connect(self._following.look_again)
        try:
            if after is not None:
                await asyncio.wait({after})
            await self._drift.open()
            while True:
                await self._wait()
                self._wake.clear()
                await self._guarded_turn()
                await self._context.states.keep()
        finally:
            unhook()
            self._waiters.give_up()
            await self._following.close()

    async def forget(self) -> None:
        """Delete what is stored about it; only after `run` has ended."""
        await self._drift.forget()

    async def _guarded_turn(self) -> None:
        self._ended = None
        is_asked = bool(self._waiters)
        self._waiters.begin()
        try:
            await self._turn(is_asked=is_asked)
        except Exception as err:  # one failed pass must not end the loop
            self._timer.try_after(self._interval_s())
            log.exception("an assignment could not be worked on", extra={"assignment": self._name})
            self._ended = not_begun(self._name, f"{type(err).__name__}: {err}", "ccm.fault")
        finally:
            self._waiters.end(self._ended)

    async def _wait(self) -> None:
        """Until it is due, or something is other than before."""
        woken = asyncio.create_task(self._wake.wait(), name="assignment:wake")
        tasks: set[asyncio.Task[object]] = {woken}
        rests_s = [one for one in (self._timer.rest_s, self._check_rest_s()) if one is not None]
        if rests_s:
            tasks.add(asyncio.create_task(self._context.clock.sleep(min(rests_s)), name="assignment:sleep"))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def _interval_s(self) -> float:
        own = self._wanted.known.assignment.interval_s if self._wanted else 0.0
        return (
            min(max(own, MINIMUM_INTERVAL_S), MAXIMUM_INTERVAL_S)
            if own > 0
            else self._context.settings().interval_s
        )

    def _check_rest_s(self) -> float | None:
        """How long it is until checks are run; None: never, as the configuration says now."""
        each_s = self._context.settings().health_check_interval_s
        if each_s != self._checks_each_s:
            self._checks_each_s = each_s
            self._checks.begin(each_s) if each_s else self._checks.stop()
        return self._checks.rest_s

    def _is_check_due(self) -> bool:
        """Checks are to be run now; the next time is an interval later, whatever comes of it."""
        if self._check_rest_s() != 0.0:
            return False
        self._checks.go_on(self._checks_each_s)
        return True

    # -- what

    async def _turn(self, *, is_asked: bool) -> None:
        wanted = self._wanted
        if wanted is None:
            return
        known, is_check_due = wanted.known, self._is_check_due()
        refusal = (
            wanted.refusal
            or self._refusal(known, known.assignment.mode)
            or deadline_refusal(self._context, known)
        )
        if refusal is not None:
            self._timer.stop()
            if refusal.code.startswith("policy."):
                # it may be a matter of hours
                self._timer.try_after(self._interval_s())
            self._stand_back(known, refusal)
            if is_check_due and refusal.code == DISABLED_CODE:
                await self._check(wanted)
            return
        is_news = self._tried != (known.key, known.number)
        is_due = not self._timer.rest_s
        is_behind = await self._following.is_behind()
        if not (is_news or is_due or is_asked or is_behind or self._stands() == WAITING):
            if is_check_due:
                await self._check(wanted)
            return
        if is_news:
            await self._announce(known, in_a_hurry=is_asked)
        elif self._stands() not in (*CARRIED_OUT, WAITING):
            # what kept it from being applied is over
            self._say(known, WAITING)
        if is_behind and not (is_news or is_due or is_asked):
            await self._pause()
        if self._is_still(wanted):
            await self._converge(wanted, is_news=is_news)

    def _is_still(self, wanted: MatchingAssignment, action: str = "") -> bool:
        """What counted a moment ago still does, and may be done; what is to be done unless this says otherwise."""
        is_refused = self._refusal(wanted.known, action or wanted.known.assignment.mode) is not None
        return self._wanted == wanted and wanted.refusal is None and not is_refused

    def _refusal(self, known: StoredAssignment, action: str) -> Refusal | None:
        return self._context.refusal(action) or self._context.forbids(known, action)

    async def _pause(self) -> None:
        """What a whole fleet hears at once it does not do at once; further changes fall into the same pause."""
        if pause_s := self._context.settings().change_pause_s:
            await self._context.clock.sleep(random.uniform(0, pause_s))

    async def _announce(self, known: StoredAssignment, *, in_a_hurry: bool) -> None:
        """Let a part of the fleet go first; what was known before a restart does not wait. Then it is known."""
        self._timer.stop()
        told = self._context.states.told.get(self._name)
        is_said = told is not None and (told.key, told.revision) == (known.key, known.number)
        if not is_said and not in_a_hurry:
            await self._pause()
        if not is_said or self._stands() not in (*CARRIED_OUT, WAITING):
            # most nodes will have more to say in a moment; that one has not spoken yet is said of it anyway
            self._say(known, WAITING, soon=False)

    async def _converge(self, wanted: MatchingAssignment, *, is_news: bool, cause: str = CAUSE) -> None:
        known = wanted.known
        urls = () if known.assignment.data_revision else known.assignment.data
        await self._context.keep()
        try:
            async with asyncio.timeout(FETCH_S):
                source = await self._fetched(known)
        except (CcmError, TimeoutError) as err:
            self._could_not(known, err)
            return
        if not self._is_still(wanted):
            return
        self._tried = (known.key, known.number)
        (self._timer.begin if is_news else self._timer.go_on)(self._interval_s())
        await self._following.follow(urls)
        self._following.begin()
        run = new_id()
        has_begun, summary = await self._carried_out(wanted, source, run, known.assignment.mode, cause)
        await self._following.follow(urls)
        if summary is not None:
            self._conclude(known, run, summary, has_begun=has_begun)
            if known.assignment.mode == "apply":
                await self._drift.conclude(self._name, run, self._context.on_drift)
        else:
            # not begun, or broken off: whatever it was, the next turn finds it
            self._tried = ("", 0)
            self._wake.set()

    async def _check(self, wanted: MatchingAssignment) -> None:
        """Run the health checks of what was applied here, and apply it again when one is critical."""
        known = wanted.known
        if known.assignment.mode != "apply" or not self._context.states.has_begun(known.key, known.number):
            return
        try:
            async with asyncio.timeout(FETCH_S):
                source = await self._fetched(known)
        except (CcmError, TimeoutError) as err:
            log.info("no checks are run", extra={"assignment": self._name, "reason": str(err)})
            return
        _, summary = await self._carried_out(wanted, source, new_id(), "check", HEALTH)
        if self._remediation.follows(summary) and self._is_still(wanted):
            await self._converge(wanted, is_news=False, cause=HEALTH)

    async def _fetched(self, known: StoredAssignment) -> ManifestSource:
        assignment = known.assignment
        inner = inner_path(assignment.bundle.manifest, self._name)
        folder = await self._context.unpack(assignment.bundle)
        for url in assignment.data:
            await self._context.fetch_pinned(url, known.pins)
        return ManifestSource(
            path=f"{folder}/{inner}",
            directory=folder,
            name=self._title(known),
            digest=assignment.bundle.digest,
        )

    def _title(self, known: StoredAssignment) -> str:
        return known.assignment.manifest or self._name

    def _could_not(self, known: StoredAssignment, err: CcmError | TimeoutError) -> None:
        """It cannot be fetched: the broker may be away, or what it holds is not what was assigned."""
        reason = str(err) or f"it could not be fetched in {FETCH_S:g} s"
        code = err.code if isinstance(err, CcmError) else BusUnavailableError.code
        self._ended = not_begun(self._name, reason, code)
        self._timer.try_after(min(RETRY_S, self._interval_s()))
        log.warning(
            "an assignment cannot be fetched",
            extra={"assignment": self._name, "reason": reason, "code": code},
        )
        if isinstance(err, (BusUnavailableError, TimeoutError, BusDeniedError)):
            self._say(known, WAITING, reason, code)
            return
        self._timer.try_after(self._interval_s())
        self._tried = (known.key, known.number)
        told = self._context.states.told.get(self._name)
        if told is None or (told.revision, told.code) != (known.number, code):
            self._context.on_refused(known.key, reason)
        self._say(known, NodeState.FAILED, reason, code)

    async def _carried_out(
        self, wanted: MatchingAssignment, source: ManifestSource, run: str, action: str, cause: str
    ) -> tuple[bool, SessionSummary | None]:
        """Wait for a turn and for its end; whether it began, and its end if it came to one."""
        ended: list[SessionSummary | None] = []
        begun: list[SessionStart] = []
        request = self._request(wanted.known, source, run, action, cause)
        job = self._job(wanted.known, source, request, action, ended, begun)
        run_queue = self._context.run_queue
        while (position := run_queue.offer(job).position) < 0:
            self._context.states.tell()
            await self._context.clock.sleep(FULL_PAUSE_S)
        if position:
            self._context.states.tell()
        try:
            while not ended:
                await self._wake.wait()
                self._wake.clear()
                if not ended and not self._is_still(wanted, action) and run_queue.withdraw(run):
                    return False, None
            return bool(begun), ended[0]
        finally:
            run_queue.withdraw(run)
            # whatever came in between is looked at when this is over
            self._wake.set()

    def _job(
        self,
        known: StoredAssignment,
        source: ManifestSource,
        request: ManifestRequest,
        action: str,
        ended: list[SessionSummary | None],
        begun: list[SessionStart],
    ) -> QueuedRun:
        def start(session: SessionStart) -> None:
            begun.append(session)
            if action != "check":
                self._context.states.begin(known.key, known.number)
                self._following.took({} if known.pins else session.data_revisions)
            if action == "apply":
                self._drift.begin(session)

        def end(summary: SessionSummary | None) -> None:
            ended.append(summary)
            self._wake.set()

        own = LocalRun(
            source=source,
            on_end=end,
            on_start=start,
            judge=self._drift.judge if action == "apply" else None,
            pins=known.pins,
            scope=self._drift.source,
        )
        is_first = not self._context.states.has_begun(known.key, known.number)
        return QueuedRun(
            run=request.run,
            action=action,
            name=source.name,
            request=request,
            deadline=known.assignment.deadline if is_first else None,
            own=own,
            principal=known.asked_by,
            way=CAUSE,
            origin=self._name,
        )

    def _request(
        self, known: StoredAssignment, source: ManifestSource, run: str, action: str, cause: str
    ) -> ManifestRequest:
        assignment = known.assignment
        return ManifestRequest(
            protocol=PROTOCOLS[action],
            run=run,
            name=source.name,
            bundle=assignment.bundle,
            digest=assignment.bundle.digest,
            data=list(assignment.data),
            requester=known.requester,
            cause=cause,
        )

    # -- what is said

    def _conclude(
        self, known: StoredAssignment, run: str, summary: SessionSummary, *, has_begun: bool
    ) -> None:
        reason, code = summary.reason, summary.code
        if not reason and summary.state not in RIGHT and summary.failed:
            failed = summary.failed[0]
            error = failed.error[0] if failed.error else "failed"
            reason, code = f"{failed.resource}: {error}", failed.code
        self._say(known, summary.state, reason, code, run=run, has_begun=has_begun)
        self._ended = ended_of(self._name, summary)

    def _stand_back(self, known: StoredAssignment, refusal: Refusal) -> None:
        state = NodeState.REFUSED.value
        if refusal.code == DISABLED_CODE:
            state = DISABLED
        elif refusal is LATE:
            state = NodeState.EXPIRED.value
        if self._stands() != state:
            log.warning(
                "an assignment is not applied",
                extra={"assignment": self._name, "state": state, "reason": str(refusal)},
            )
        self._say(known, state, str(refusal), refusal.code)
        self._ended = not_begun(self._name, str(refusal), refusal.code)

    def _stands(self) -> str:
        state = self._context.states.now.get(self._name)
        return state.state if state else ""

    def _say(
        self,
        known: StoredAssignment,
        state: str,
        reason: str = "",
        code: str = "",
        *,
        run: str = "",
        has_begun: bool = False,
        soon: bool = True,
    ) -> None:
        was = self._context.states.now.get(self._name) or AssignmentState(key="", revision=0)
        applied, data_revision, read = was.digest, was.data_revision, was.data_revisions
        if has_begun:
            applied, data_revision = known.assignment.bundle.digest, known.assignment.data_revision
        if run:
            read = {} if known.pins else self._following.tried
        said = AssignmentState(
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
        self._context.states.put(self._name, said, soon=soon)
