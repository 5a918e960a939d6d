"""
Carries out the runs of one agent, one after the other; what may not begin when its turn has come is refused then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.agent.node.maintenance import Maintenance
from ccm_agent.agent.requests.node_policy import NodePolicy
from ccm_agent.agent.requests.request_handler import Refusal, RequestHandler
from ccm_agent.agent.runs.checkpoint import Checkpoints
from ccm_agent.agent.runs.progress import ProgressPublisher
from ccm_agent.agent.runs.run_executor import RunExecutor
from ccm_agent.agent.runs.run_queue import QueuedRun, RunQueue
from ccm_agent.model.outcome import SessionSummary


class RunParts(Struct, frozen=True, kw_only=True):
    """
    What the loop uses of its agent.

    Attributes:
        run_queue: The queue.
        handlers: Answer for requests that may not begin.
        worker: Carries out.
        teller: Tells the progress.
        maintenance, policy: Whether a run may begin.
        checkpoints: The run that an earlier process has begun.
        keep: Called after each run, to keep what it has learned.
        on_end: Told how a run of which the node's record speaks has ended.
    """

    run_queue: RunQueue
    handlers: RequestHandler
    worker: RunExecutor
    teller: ProgressPublisher
    maintenance: Maintenance
    policy: NodePolicy
    checkpoints: Checkpoints
    keep: Callable[[], Awaitable[None]]
    on_end: Callable[[str, SessionSummary | None], None]


class RunLoop:
    """
    The loop of one agent.

    Attributes:
        is_idle: Set while there is no run.
    """

    def __init__(self, parts: RunParts) -> None:
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        self._parts = parts
        self._is_closed = False

    def close(self) -> None:
        """Begin nothing more: what waits stands in the ledger, and is begun by the next process."""
        self._is_closed = True

    async def run(self) -> None:
        """Carry out run after run, until cancelled."""
        parts = self._parts
        while True:
            job = await parts.run_queue.next()
            if self._is_closed:
                await asyncio.Event().wait()
            self.is_idle.clear()
            parts.teller.begun()
            try:
                await self._carry_out(job)
            finally:
                parts.run_queue.finish()
                parts.teller.ended()
                self.is_idle.set()

    async def _carry_out(self, job: QueuedRun) -> None:
        parts = self._parts
        if parts.handlers.is_late(job.deadline):
            await parts.handlers.expired(job)
            return
        ruling = parts.policy.ruling(job.principal, job.way or job.action, job.action)
        refusal = parts.maintenance.refusal(job.action)
        if refusal is None and not ruling.is_allowed:
            refusal = Refusal(ruling.code, ruling.reason)
        # a run that was begun goes on to its end, with a restart in between too; what the policy forbids by now fails in it
        if refusal is not None and job.run != parts.checkpoints.run:
            await parts.handlers.refused(job, refusal)
            return
        summary = await parts.worker.carry_out(replace(job, grant=ruling.grant))
        if job.own is None or job.action == "apply":
            parts.on_end(job.run, summary)
        await parts.keep()
