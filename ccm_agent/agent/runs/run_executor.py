"""
Carries out one run and reports it; afterwards it reads which refreshes the run left pending.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ccm_agent.agent.desired.assignment_source import fetch_assignment
from ccm_agent.agent.desired.origins import FETCH_S
from ccm_agent.agent.events.run_report import INTERRUPTED, RunFrame, RunReport
from ccm_agent.agent.runs.run_queue import QueuedRun, command_properties
from ccm_agent.engine.bundle import inner_path
from ccm_agent.engine.request import PAUSED, ApplyOptions, ManifestSource, OnEvent, StopFlag
from ccm_agent.model.errors import (
    BusUnavailableError,
    CcmError,
    PlanError,
    ProtocolError,
    Refusal,
)
from ccm_agent.model.ids import short_id
from ccm_agent.model.outcome import SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.wire import (
    MESSAGE_LIMIT,
    STOPPED_CODE,
    EnsureRequest,
    ExecRequest,
    ManifestRequest,
    NodeState,
)
from ccm_agent.sessions.refresh_store import SCOPE
from ccm_agent.storage.plan_store import PlanRecord, SavedPlan

if TYPE_CHECKING:
    from ccm_agent.agent.desired.assignment_status import RolloutRun
    from ccm_agent.agent.process.context import AgentContext
    from ccm_agent.model.wire import AssignmentStage

    Release = Callable[[AssignmentStage], Awaitable[RolloutRun]]

log = logging.getLogger(__name__)

MOVED_NAMED = 10
"""So many resources that changed since a plan are named."""

RESTARTED = "interrupted by a restart of the agent, which starts it again"


class RunExecutor:
    """
    Carries out the runs of one agent.

    Args:
        context: What the services of the agent share.
        release: Takes the next revision of an assignment; None: there are no assignments.

    Attributes:
        report: Of the current run; None when there is none.
    """

    def __init__(self, context: AgentContext, release: Release | None = None) -> None:
        self._release = release
        self.report: RunReport | None = None
        self._context = context
        self._stop = StopFlag()
        self._run, self._opened = "", dict[str, int]()

    def stop(self, run: str, operator: str, *, is_kill: bool = False) -> bool:
        """
        An operator stops a run: it ends after the current resource, whose program is ended with `is_kill`.

        False when this is not the current run.
        """
        if self.report is None or run != self._run:
            return False
        self._stop.set(f"stopped by {operator}", by=operator, is_kill=is_kill)
        return True

    @property
    def stopped_by(self) -> str:
        """The operator who stopped the current run, which ends after its current resource; "": none did."""
        return self._stop.by if self.report is not None else ""

    def interrupt(self) -> None:
        """The agent stops: the current run, if there is one, ends after its current resource."""
        self._stop.set(f"{INTERRUPTED}: the agent was stopped", code="run.interrupted")

    def pause(self) -> None:
        """
        Leave the rest of the current run, after its current resource, to the next process.

        That process continues a requested run. A run of the node itself ends here, and starts again there.
        """
        self._stop.pause()

    async def execute(self, job: QueuedRun) -> SessionSummary | None:
        """Carry out a run. Its end is always reported and logged, except for None: the next process continues it."""
        self._stop = StopFlag()
        self._run, self._opened = job.run, {}
        report = self.report = self._new_report(job)
        # the log is for requests, which can arrive again; the end of the node's own runs is in the spool
        if job.own is None:
            self._context.request_log.begin(job.run)
        summary = None
        try:
            summary = await self._guarded(job, report)
            await self._read_refreshes(job, summary)
            await self._context.note_secrets(job, summary, self._opened)
        finally:
            self.report = None
            self._run = ""
            if job.own is not None:
                job.own.finish(summary)
        if summary is None:
            return None
        if job.own is None:
            self._context.request_log.end(job.run, summary.state, summary.reason, summary.code)
        await self._context.spool.settle(flush=False)
        if self._context.metrics is not None:
            self._context.metrics.ran(job.action, report.frame.cause, summary)
        return summary

    async def _read_refreshes(self, job: QueuedRun, summary: SessionSummary | None) -> None:
        """A run that applied something may have left a refresh for the next one, or done what was left."""
        known = self._context.refreshes
        if job.action in ("plan", "check"):
            return
        if (
            not known.is_empty
            or summary is None
            or summary.refresh_pending
            or summary.state in (NodeState.FAILED, NodeState.STOPPED)
        ):
            await known.refresh()

    def discard(self, job: QueuedRun, operator: str) -> SessionSummary:
        """Close a job that an operator stopped before it began."""
        reason = f"stopped by {operator} before it began"
        summary = self._new_report(job).finish(reason=reason, code=STOPPED_CODE, stopped_by=operator)
        self._context.request_log.end(job.run, summary.state, summary.reason, summary.code)
        if job.own is not None:
            job.own.finish(summary)
        return summary

    def abandon(self) -> None:
        """Report the end of the current run though its resource still runs: the agent ends now."""
        if self.report is not None:
            at = self.report.progress.resource
            summary = self.report.finish(
                reason=f"{INTERRUPTED} at {at}, which continues" if at else INTERRUPTED,
                code="run.interrupted",
            )
            self._context.request_log.end(self._run, summary.state, summary.reason, summary.code)

    async def _guarded(self, job: QueuedRun, report: RunReport) -> SessionSummary | None:
        reason = code = ""
        engine: SessionSummary | None = None
        try:
            before = None
            if self._context.checkpoints.run == job.run:
                before = await self._context.checkpoints.take(job.run)
            if before is not None:
                report.resume(before)
                log.info("a run continues", extra={"run": job.run, "done": len(before.done)})
            engine = await self._apply(job, report, before.done if before else [])
            if engine.code == PAUSED and not report.is_closed:
                await self._leave_to_next(job, report)
                return None
        except CcmError as err:
            reason, code = str(err), err.code
        except Exception as err:  # a run must not end the agent
            log.exception("a run failed unexpectedly", extra={"run": job.run})
            reason, code = f"{type(err).__name__}: {err}; this is a bug in the agent", "ccm.fault"
        return None if report.is_closed else report.finish(engine, reason=reason, code=code)

    async def _leave_to_next(self, job: QueuedRun, report: RunReport) -> None:
        if job.own is None:
            await self._context.checkpoints.save(report.checkpoint())
        else:
            summary = report.totals()
            summary.reason, summary.code = RESTARTED, PAUSED
            report.finish(summary)
        log.info("a run is handed over to the next process", extra={"run": job.run})

    async def _apply(self, job: QueuedRun, report: RunReport, done: list[TransactionEvent]) -> SessionSummary:
        request = job.request
        options = await self._options(job, report, done)
        if isinstance(request, ManifestRequest) and request.stage is not None:
            return await self._apply_stage(request.stage, job, report, options)
        if not isinstance(request, ManifestRequest):
            report.start()
            if isinstance(request, ExecRequest):
                await self._context.engine.ensure("exec", command_properties(request), options)
            else:
                await self._context.engine.ensure(request.type, request.properties, options)
            summary = report.totals()
            self._stop.record_in(summary)
            return summary
        source = job.own.source if job.own else await self._source(request)
        if request.plan and not done:
            await self._check_plan(request, source, options)
        if request.undo and job.action == "apply":
            return await self._context.undo.follow(request.undo, self._context.engine.apply(source, options))
        if not request.keep or job.action != "plan":
            return await self._context.engine.apply(source, options)
        summary, found = await self._plan(request, source, options)
        # an apply could change more than a restricted plan can tell, and a failed run is not saved as a plan
        if (
            summary.state in (NodeState.STABLE, NodeState.CHANGED)
            and not summary.unknown_count
            and await self._context.plans.keep(found)
        ):
            summary.found = found.found
        return summary

    async def _apply_stage(
        self, stage: AssignmentStage, job: QueuedRun, report: RunReport, options: ApplyOptions
    ) -> SessionSummary:
        """Take the next revision of an assignment, and apply it with the data that it pins."""
        if job.action != "apply":
            # the convergence loop would apply what an operator who may only plan has released
            raise ProtocolError(f"{job.name}: a {job.action} cannot release a revision; only an apply can")
        if self._release is None:
            raise Refusal("request.unknown", "this agent has no assignments")
        rollout, summary = await self._release(stage), None
        try:
            summary = await self._apply_release(rollout, report, options)
            return summary
        finally:
            rollout.close(None if self._stop.is_set or self._stop.is_pause else summary)

    async def _apply_release(
        self, rollout: RolloutRun, report: RunReport, options: ApplyOptions
    ) -> SessionSummary:
        known, assignment = rollout.known, rollout.known.assignment
        try:
            async with asyncio.timeout(FETCH_S):
                source = await fetch_assignment(self._context, known)
        except TimeoutError as err:
            raise BusUnavailableError(f"the assignment could not be fetched in {FETCH_S:g} s") from err
        report.judge = rollout.drift.judge
        # the name of the manifest, as in the runs of the convergence loop
        report.frame = replace(report.frame, manifest=source.name)
        released = replace(
            options,
            hiera=(*options.hiera, *assignment.data),
            pins=known.pins,
            scope=f"{SCOPE}{assignment.name}",
            on_start=rollout.start_with(options.run, options.on_start),
        )
        return await self._context.engine.apply(source, released)

    async def _plan(
        self, request: ManifestRequest, source: ManifestSource, options: ApplyOptions
    ) -> tuple[SessionSummary, SavedPlan]:
        """Plan, and return what was found besides the summary."""
        record, on_event = PlanRecord(), options.on_event

        async def note(event: TransactionEvent) -> None:
            record.add(event)
            waiting = on_event(event) if on_event is not None else None
            if waiting is not None:
                await waiting

        planned = replace(options, noop=True, on_event=note)
        summary = await self._context.engine.apply(source, planned)
        return summary, record.finish(options.run, summary, request.data, self._context.clock.now())

    async def _check_plan(
        self, request: ManifestRequest, source: ManifestSource, options: ApplyOptions
    ) -> None:
        """
        Plan once more without reporting it, and compare with the plan that is to be applied.

        Raises:
            PlanError: This node does not have the plan, or has changed since. Nothing was changed.
        """
        run = request.plan
        kept = await self._context.plans.find(run)
        if kept is None:
            raise PlanError(
                f"this node does not have the plan {short_id(run)}: it keeps the newest 20 for a day; plan again"
            )
        quiet = replace(
            options, on_event=None, on_start=None, on_resource=None, metrics=None, diff=False, done=()
        )
        summary, found = await self._plan(request, source, quiet)
        if self._stop.is_set or self._stop.is_pause:
            return  # the apply ends at once, and the next process looks again
        is_other = (kept.digest, kept.data) != (found.digest, found.data)
        moved = ["the manifest"] if is_other else kept.moved(found)
        if moved or summary.reason:
            more = f" and {len(moved) - MOVED_NAMED} more" if len(moved) > MOVED_NAMED else ""
            names = ", ".join(one[:200] for one in moved[:MOVED_NAMED]) or summary.reason
            raise PlanError(
                f"nothing was changed: since the plan {short_id(run)}, these have changed: {names}{more}; plan again"
            )

    async def _source(self, request: ManifestRequest) -> ManifestSource:
        content = request.content
        if request.undo:
            if content.bundle is not None or content.manifest or request.part or request.keep or request.plan:
                raise ProtocolError(f"{request.name}: the request has both a manifest and a run to undo")
            record = await self._context.undo.find(request.undo)
            return ManifestSource(name=request.name, undo=record)
        if content.bundle is None:
            text = content.manifest.encode()
            if request.digest and hashlib.sha256(text).hexdigest() != request.digest:
                raise ProtocolError(f"{request.name}: the manifest does not match its digest; send it again")
            return ManifestSource(text=text, name=request.name, digest=request.digest)
        bundle = content.bundle
        if request.digest and request.digest != bundle.digest:
            raise ProtocolError(f"{request.name}: the request has two digests for one bundle; send it again")
        manifest = inner_path(bundle.manifest, request.name)
        folder = await self._context.bundles.unpacked(bundle)
        return ManifestSource(
            path=f"{folder}/{manifest}",
            directory=folder,
            name=request.name,
            digest=bundle.digest,
        )

    async def _options(self, job: QueuedRun, report: RunReport, done: list[TransactionEvent]) -> ApplyOptions:
        request = job.request
        context = self._context
        facts = await context.facts.current(context.settings.facts_interval_s)
        own = job.own

        def on_start(start: SessionStart) -> None:
            if own is not None and own.on_start is not None:
                own.on_start(start)
            if not report.has_started:
                report.start(start)

        external_data = context.settings.external_data_url
        urls = [external_data] if external_data else []
        if isinstance(request, ManifestRequest):
            urls += request.data
        return ApplyOptions(
            noop=job.action == "plan",
            health_check_only=job.action == "check",
            hiera=tuple(urls),
            keeps_hiera=True,
            pins=own.pins if own is not None else {},
            facts=facts,
            cause=report.frame.cause,
            requester=request.requester,
            node=self._context.node,
            run=job.run,
            on_start=on_start,
            on_event=self._on_event(report),
            on_resource=report.on_resource,
            on_secret=self._opened.__setitem__,
            stop=self._stop,
            done=done,
            metrics=self._context.metrics,
            grant=job.grant,
            own_hiera=frozenset({external_data} if external_data else ()),
            is_literal=isinstance(request, ExecRequest),
            scope=own.scope if own is not None else f"request {job.name}",
            diff=not isinstance(request, ExecRequest) and request.diff,
            undo_log=context.undo if context.undo.is_on else None,
            # checks go on: a lock keeps a resource from being changed, not from being watched
            lock=context.locks.why if job.action != "check" else None,
            selection=request.part if isinstance(request, ManifestRequest) else None,
        )

    def _on_event(self, report: RunReport) -> OnEvent:
        """Where the engine's events go: into the report, and into the numbers if there are any."""
        metrics = self._context.metrics
        if metrics is None:
            return report.resource

        async def count_and_report(event: TransactionEvent) -> None:
            metrics.resource(event)
            await report.resource(event)

        return count_and_report

    def _new_report(self, job: QueuedRun) -> RunReport:
        request = job.request
        frame = RunFrame(
            run=job.run,
            node=self._context.node,
            manifest=job.name,
            digest=_digest(request),
            noop=job.action == "plan",
            health_check_only=job.action == "check",
            requester=request.requester,
            agent_version=self._context.version,
            cause=request.cause if isinstance(request, ManifestRequest) else "request",
            # the name of an assignment, as in the runs of its convergence loop
            origin=job.name if isinstance(request, ManifestRequest) and request.stage else job.origin,
            message=request.message[:MESSAGE_LIMIT],
        )
        return RunReport(
            frame,
            self._context.spool,
            self._context.clock,
            shorten=self._context.ports.shorten,
            is_full=not isinstance(request, ManifestRequest) or request.events == "all",
            # checks of its own that a node runs every few seconds are worth an event when they say something
            is_quiet=job.own is not None and job.action == "check",
            judge=job.own.judge if job.own else None,
            on_end=self._note_last if job.own is None or job.action == "apply" else None,
            warnings=lambda: self._find_losses(job.run),
        )

    def _find_losses(self, run: str) -> list[str]:
        """What this node could not keep of a run that ends now."""
        events, undo = self._context.spool.trouble, self._context.undo.problem(run)
        found = [f"events are only in memory, and a restart would lose them: {events}"] if events else []
        return [*found, f"the run cannot be undone: {undo}"] if undo else found

    def _note_last(self, summary: SessionSummary) -> None:
        """The one place that says what the last run of this node is: before its summary, so no kill hides it."""
        if summary.code != PAUSED:
            self._context.note_last_run(summary.run, summary.state)


def _digest(request: ManifestRequest | EnsureRequest | ExecRequest) -> str:
    if not isinstance(request, ManifestRequest):
        return ""
    return request.digest or (request.content.bundle.digest if request.content.bundle else "")
