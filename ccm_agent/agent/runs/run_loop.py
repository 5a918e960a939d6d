"""The loop that carries out one run at a time, and the progress that is published meanwhile."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.errors import BusError, Refusal
from ccm_agent.model.formats.json_text import encode_message
from ccm_agent.model.wire import (
    REPORTING,
    SESSION_PROGRESS,
    Progress,
)

if TYPE_CHECKING:
    from ccm_agent.agent.process.context import AgentContext
    from ccm_agent.agent.requests.request_handler import RequestHandler
    from ccm_agent.agent.runs.run_executor import RunExecutor
    from ccm_agent.agent.runs.run_queue import QueuedRun

log = logging.getLogger(__name__)

REPORTING_RUNS = 20
"""So many of the oldest waiting events are looked at for runs whose controllers are told that their events wait."""


class ProgressPublisher:
    """
    Publishes every few seconds where the runs of one agent are, for operators who follow them.

    It goes on until the stream has the events of a run: a controller would take a node for lost whose run has ended and whose
    events wait for a slow broker.
    """

    def __init__(self, context: AgentContext, executor: RunExecutor) -> None:
        self._context = context
        self._executor = executor
        self._waited_s: dict[str, float] = {}
        self.is_busy = asyncio.Event()

    async def run(self) -> None:
        """Publish while there is a run or events of one wait, until cancelled."""
        is_reporting = False
        while True:
            if not is_reporting:
                await self.is_busy.wait()
            every_s = self._context.settings.progress_s
            await asyncio.sleep(every_s)
            found = [*self._current(every_s), *self._reporting(every_s)]
            is_reporting = bool(found)
            for progress in found:
                subject = event_subject(SESSION_PROGRESS, self._context.node, progress.run)
                try:
                    await self._context.ports.events.announce(subject, encode_message(progress))
                except BusError as err:
                    log.debug("progress could not be published", extra={"reason": str(err)})

    def _current(self, every_s: float) -> list[Progress]:
        now = self._executor.report.progress_now() if self._executor.report else None
        # a run that has just started has its time yet
        found = [now] if now and now.run_s >= every_s / 2 else []
        found += [
            Progress(protocol=SESSION_PROGRESS, run=job.run, node=self._context.node, state="queued")
            for job in self._context.run_queue.waiting
        ]
        return found

    def _reporting(self, every_s: float) -> list[Progress]:
        """The runs that have ended and whose events the stream has not acknowledged yet."""
        current = self._context.run_queue.current
        waiting = [
            run
            for run in self._context.spool.waiting_runs(REPORTING_RUNS)
            if current is None or run != current.run
        ]
        # each message differs from the one before it: controllers ignore a repeated one
        self._waited_s = {run: self._waited_s.get(run, 0.0) + every_s for run in waiting}
        return [
            Progress(
                protocol=SESSION_PROGRESS,
                run=run,
                node=self._context.node,
                state=REPORTING,
                run_s=self._waited_s[run],
            )
            for run in waiting
        ]


class RunLoop:
    """
    Carries out the runs of one agent, one after the other. A run that may not start when its turn comes is refused then.

    Attributes:
        is_idle: Set while there is no run.
    """

    def __init__(
        self,
        context: AgentContext,
        handler: RequestHandler,
        executor: RunExecutor,
        progress: ProgressPublisher,
    ) -> None:
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        self._context = context
        self._handler = handler
        self._executor = executor
        self._progress = progress
        self._is_closed = False

    def close(self) -> None:
        """Start no further runs: waiting ones are in the request log, and the next process starts them."""
        self._is_closed = True

    async def run(self) -> None:
        """Carry out run after run, until cancelled."""
        queue = self._context.run_queue
        while True:
            job = await queue.next()
            if self._is_closed:
                await asyncio.Event().wait()
            self.is_idle.clear()
            self._progress.is_busy.set()
            try:
                await self._execute(job)
            finally:
                queue.finish()
                self._progress.is_busy.clear()
                self.is_idle.set()

    async def _execute(self, job: QueuedRun) -> None:
        context, admission = self._context, self._context.admission
        if job.deadline is not None and context.clock.now() > job.deadline:
            await self._handler.expired(job)
            return
        ruling = admission.policy.ruling(job.principal, job.way or job.action, job.action)
        refusal = admission.maintenance.refusal(job.action)
        if refusal is None and not ruling.is_allowed:
            refusal = Refusal(ruling.code, ruling.reason)
        # a run that has started continues to its end, after a restart too; what the policy forbids by now fails in it
        if refusal is not None and job.run != context.checkpoints.run:
            await self._handler.refused(job, refusal)
            return
        summary = await self._executor.execute(replace(job, grant=ruling.grant))
        if summary is not None and (job.own is None or job.action == "apply"):
            fields = {"run": job.run, "state": summary.state, "reason": summary.reason}
            log.info("a run has ended", extra=fields)
        await context.revision_guard.save()
