"""Executes one run and reports it. Afterwards, it reads the refreshes that the run left pending."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ccm_agent.agent.events.run_report import INTERRUPTED, RunFrame, RunReport, Shorten
from ccm_agent.agent.runs.engine_driver import EngineDriver
from ccm_agent.agent.runs.run_queue import QueuedRun
from ccm_agent.agent.runs.run_records import Checkpoints, RunRecords
from ccm_agent.engine.request import PAUSED, StopFlag
from ccm_agent.metrics.agent import AgentMetrics
from ccm_agent.model.errors import CcmError
from ccm_agent.model.outcome import STOPPED_CODE, SessionSummary
from ccm_agent.model.ports import Clock
from ccm_agent.model.wire import (
    MESSAGE_LIMIT,
    EnsureRequest,
    ExecRequest,
    ManifestRequest,
    NodeRecord,
)
from ccm_agent.storage.spool import Spool
from ccm_agent.storage.undo_store import UndoStore

log = logging.getLogger(__name__)

RESTARTED = "interrupted by a restart of the agent, which starts it again"


class RunReports:
    """
    Creates the report of each run.

    Args:
        record: Contains the node's name and the version of its agent.
        spool: Stores the events.
        clock: Returns the current time.
        shorten: Reduces an event to the form that may be published.
        undo: Lists changes that could not be recorded for an undo.
        on_end: Called with the run and its end state, before its summary is written.
    """

    def __init__(
        self,
        record: NodeRecord,
        spool: Spool,
        clock: Clock,
        shorten: Shorten,
        undo: UndoStore,
        on_end: Callable[[str, str], None],
    ) -> None:
        self._record = record
        self._spool = spool
        self._clock = clock
        self._shorten = shorten
        self._undo = undo
        self._on_end = on_end

    def make(self, job: QueuedRun) -> RunReport:
        """Return the report of a run that begins."""
        request = job.request
        frame = RunFrame(
            run=job.run,
            node=self._record.node,
            manifest=job.name,
            digest=_digest(request),
            noop=job.action == "plan",
            health_check_only=job.action == "check",
            requester=request.requester,
            agent_version=self._record.version,
            cause=request.cause if isinstance(request, ManifestRequest) else "request",
            # the name of an assignment, as in the runs of its convergence loop
            origin=job.name if isinstance(request, ManifestRequest) and request.stage else job.origin,
            message=request.message[:MESSAGE_LIMIT],
        )
        return RunReport(
            frame,
            self._spool,
            self._clock,
            shorten=self._shorten,
            is_full=not isinstance(request, ManifestRequest) or request.events == "all",
            # A node runs its own checks every few seconds, so their events are sent only if a check has a finding.
            is_quiet=job.own is not None and job.action == "check",
            judge=job.own.judge if job.own else None,
            on_end=self._note_last if job.own is None or job.action == "apply" else None,
            warnings=lambda: self._find_losses(job.run),
        )

    def _find_losses(self, run: str) -> list[str]:
        """Return the data of an ending run that this node could not store."""
        events, undo = self._spool.trouble, self._undo.problem(run)
        found = [f"events are only in memory, and a restart would lose them: {events}"] if events else []
        return [*found, f"the run cannot be undone: {undo}"] if undo else found

    def _note_last(self, summary: SessionSummary) -> None:
        """Record the node's last run. It is recorded before its summary, so that a kill does not hide it."""
        if summary.code != PAUSED:
            self._on_end(summary.run, summary.state)


class RunExecutor:
    """
    Executes the runs of one agent.

    Attributes:
        report: The report of the current run; None if there is none.
    """

    def __init__(
        self,
        driver: EngineDriver,
        reports: RunReports,
        records: RunRecords,
        checkpoints: Checkpoints,
        spool: Spool,
        metrics: AgentMetrics | None,
    ) -> None:
        """
        Args:
            driver: Executes a run with the engine.
            reports: Creates the report of each run.
            records: The records of runs on this node.
            checkpoints: Stores the run that continues after a restart.
            spool: Stores waiting events.
            metrics: Counts the runs; None if metrics are off.
        """
        self.report: RunReport | None = None
        self._driver = driver
        self._reports = reports
        self._records = records
        self._checkpoints = checkpoints
        self._spool = spool
        self._metrics = metrics
        self._stop = StopFlag()
        self._run, self._opened = "", dict[str, int]()

    def stop(self, run: str, operator: str, *, is_kill: bool = False) -> bool:
        """
        Stop a run for an operator: it ends after the current resource. With `is_kill`, the resource's program is killed.

        Returns False if this is not the current run.
        """
        if self.report is None or run != self._run:
            return False
        self._stop.set(f"stopped by {operator}", by=operator, is_kill=is_kill)
        return True

    @property
    def stopped_by(self) -> str:
        """The operator who stopped the current run, which ends after its current resource; "" if no operator did."""
        return self._stop.by if self.report is not None else ""

    def interrupt(self) -> None:
        """End the current run, if there is one, after its current resource, because the agent stops."""
        self._stop.set(f"{INTERRUPTED}: the agent was stopped", code="run.interrupted")

    def pause(self) -> None:
        """
        End the current run after its current resource, and leave the rest to the next process.

        The next process continues a requested run. A run that the node started itself ends here, and the next process starts
        it again.
        """
        self._stop.pause()

    def continues(self, run: str) -> bool:
        """Whether the previous process left this run unfinished, and it has not been resumed."""
        return run == self._checkpoints.run

    async def execute(self, job: QueuedRun) -> SessionSummary | None:
        """
        Execute a run. Its end is always reported and logged, unless the result is None: then the next process continues the
        run.
        """
        self._stop = StopFlag()
        self._run, self._opened = job.run, {}
        report = self.report = self._reports.make(job)
        # The log is for requests, which can arrive again; the spool contains the end of the node's own runs.
        if job.own is None:
            self._records.begin(job.run)
        summary = None
        try:
            summary = await self._guarded(job, report)
            await self._records.read_refreshes(job, summary)
            await self._records.note_secrets(job, summary, self._opened)
        finally:
            self.report = None
            self._run = ""
            if job.own is not None:
                job.own.finish(summary)
        if summary is None:
            return None
        if job.own is None:
            self._records.end(job.run, summary)
        await self._spool.settle(flush=False)
        if self._metrics is not None:
            self._metrics.ran(job.action, report.frame.cause, summary)
        return summary

    def discard(self, job: QueuedRun, operator: str) -> SessionSummary:
        """Close a job that an operator stopped before it started."""
        reason = f"stopped by {operator} before it began"
        summary = self._reports.make(job).finish(reason=reason, code=STOPPED_CODE, stopped_by=operator)
        self._records.end(job.run, summary)
        if job.own is not None:
            job.own.finish(summary)
        return summary

    def abandon(self) -> None:
        """Report the end of the current run although its resource is still running, because the agent exits now."""
        if self.report is not None:
            at = self.report.progress.resource
            summary = self.report.finish(
                reason=f"{INTERRUPTED} at {at}, which continues to run" if at else INTERRUPTED,
                code="run.interrupted",
            )
            self._records.end(self._run, summary)

    async def _guarded(self, job: QueuedRun, report: RunReport) -> SessionSummary | None:
        reason = code = ""
        engine: SessionSummary | None = None
        try:
            before = None
            if self._checkpoints.run == job.run:
                before = await self._checkpoints.take(job.run)
            if before is not None:
                report.resume(before)
                log.info("a run continues", extra={"run": job.run, "done": len(before.done)})
            done = before.done if before else []
            engine = await self._driver.apply(job, report, done, self._stop, self._opened.__setitem__)
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
            await self._checkpoints.save(report.checkpoint())
        else:
            summary = report.totals()
            summary.reason, summary.code = RESTARTED, PAUSED
            report.finish(summary)
        log.info("a run is handed over to the next process", extra={"run": job.run})


def _digest(request: ManifestRequest | EnsureRequest | ExecRequest) -> str:
    if not isinstance(request, ManifestRequest):
        return ""
    return request.digest or (request.content.bundle.digest if request.content.bundle else "")
