"""The loop that executes one run at a time, and the publisher of its progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from ccm_agent.agent.events.publisher import ProgressSender
from ccm_agent.agent.runs.admission import Admission
from ccm_agent.agent.runs.run_executor import RunExecutor
from ccm_agent.agent.runs.run_queue import EXPIRED, QueuedRun, RunQueue
from ccm_agent.agent.state.settings import Settings
from ccm_agent.model.errors import Refusal
from ccm_agent.model.ports import Clock
from ccm_agent.model.wire import REPORTING, SESSION_PROGRESS, Progress
from ccm_agent.storage.spool import Spool

log = logging.getLogger(__name__)

REPORTING_RUNS = 20
"""The number of waiting events, oldest first, whose runs are reported to controllers as still sending events."""


class ProgressPublisher:
    """
    Publishes the progress of one agent's runs every few seconds, for operators who follow them.

    Publishing continues until the stream has all events of a run. Otherwise, a controller would treat the node as lost if
    its run has ended while its events wait for a slow broker.
    """

    def __init__(
        self,
        is_busy: asyncio.Event,
        executor: RunExecutor,
        run_queue: RunQueue,
        spool: Spool,
        sender: ProgressSender,
        settings: Callable[[], Settings],
    ) -> None:
        """
        Args:
            is_busy: Set while there is a run.
            executor: Executes the current run.
            run_queue: The waiting runs.
            spool: The waiting events.
            sender: Publishes the progress of a run.
            settings: Returns the current configuration.
        """
        self._is_busy = is_busy
        self._executor = executor
        self._run_queue = run_queue
        self._spool = spool
        self._sender = sender
        self._settings = settings
        self._waited_s: dict[str, float] = {}

    async def run(self) -> None:
        """Publish while there is a run or while events of a run wait, until cancelled."""
        is_reporting = False
        while True:
            if not is_reporting:
                await self._is_busy.wait()
            every_s = self._settings().progress_s
            await asyncio.sleep(every_s)
            found = [*self._current(every_s), *self._reporting(every_s)]
            is_reporting = bool(found)
            for progress in found:
                await self._sender.announce(progress)

    def _current(self, every_s: float) -> list[Progress]:
        now = self._executor.report.progress_now() if self._executor.report else None
        # Do not publish the progress of a run that has just started.
        found = [now] if now and now.run_s >= every_s / 2 else []
        found += [
            Progress(protocol=SESSION_PROGRESS, run=job.run, node=self._sender.node, state="queued")
            for job in self._run_queue.waiting
        ]
        return found

    def _reporting(self, every_s: float) -> list[Progress]:
        """Return the runs that have ended but have events that the stream has not acknowledged."""
        current = self._run_queue.current
        waiting = [
            run for run in self._spool.waiting_runs(REPORTING_RUNS) if current is None or run != current.run
        ]
        # Each message differs from the previous one, because controllers ignore a repeated message.
        self._waited_s = {run: self._waited_s.get(run, 0.0) + every_s for run in waiting}
        return [
            Progress(
                protocol=SESSION_PROGRESS,
                run=run,
                node=self._sender.node,
                state=REPORTING,
                run_s=self._waited_s[run],
            )
            for run in waiting
        ]


class RunLoop:
    """
    Executes the runs of one agent, one after the other. A run that may not start when its turn comes is refused.

    Attributes:
        is_idle: Set while there is no run.
        is_busy: Set while there is a run.
    """

    def __init__(
        self,
        run_queue: RunQueue,
        admission: Admission,
        executor: RunExecutor,
        refuse: Callable[[QueuedRun, Refusal], Awaitable[None]],
        save: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """
        Args:
            run_queue: The waiting runs.
            admission: Decides whether a run may start now.
            executor: Executes a run.
            refuse: Reports that a run does not start, with the reason.
            save: Saves the document numbers that a run has read.
            clock: Returns the current time.
        """
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        self.is_busy = asyncio.Event()
        self._run_queue = run_queue
        self._admission = admission
        self._executor = executor
        self._refuse = refuse
        self._save = save
        self._clock = clock
        self._is_closed = False

    def close(self) -> None:
        """Stop starting runs. Waiting runs are in the request log, and the next process starts them."""
        self._is_closed = True

    async def run(self) -> None:
        """Execute runs until cancelled."""
        queue = self._run_queue
        while True:
            job = await queue.next()
            if self._is_closed:
                await asyncio.Event().wait()
            self.is_idle.clear()
            self.is_busy.set()
            try:
                await self._execute(job)
            finally:
                queue.finish()
                self.is_busy.clear()
                self.is_idle.set()

    async def _execute(self, job: QueuedRun) -> None:
        admission = self._admission
        if job.deadline is not None and self._clock.now() > job.deadline:
            await self._refuse(job, EXPIRED)
            return
        ruling = admission.policy.ruling(job.principal, job.way or job.action, job.action)
        refusal = admission.maintenance.refusal(job.action)
        if refusal is None and not ruling.is_allowed:
            refusal = Refusal(ruling.code, ruling.reason)
        # A run that has started continues to its end, even after a restart. Resources that the policy now forbids fail.
        if refusal is not None and not self._executor.continues(job.run):
            await self._refuse(job, refusal)
            return
        summary = await self._executor.execute(replace(job, grant=ruling.grant))
        if summary is not None and (job.own is None or job.action == "apply"):
            fields = {"run": job.run, "state": summary.state, "reason": summary.reason}
            log.info("a run has ended", extra=fields)
        await self._save()
