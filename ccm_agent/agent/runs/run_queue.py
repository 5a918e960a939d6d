"""
One run at a time on a node: the queue of runs, the loop that takes the next one, and the progress that is published meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.bus.subjects import event_subject
from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.errors import BusError, Refusal
from ccm_agent.model.json_text import encode_told
from ccm_agent.model.outcome import SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.policy import LOCAL, Principal
from ccm_agent.model.ports import Events
from ccm_agent.model.wire import SESSION_PROGRESS, EnsureRequest, ManifestRequest, Progress
from ccm_agent.policy.grant import Grant

if TYPE_CHECKING:
    from ccm_agent.agent.requests.request_handler import RequestHandler
    from ccm_agent.agent.runs.admission import Maintenance, NodePolicy
    from ccm_agent.agent.runs.recovery import Checkpoints
    from ccm_agent.agent.runs.run_executor import RunExecutor

log = logging.getLogger(__name__)


class LocalRun(Struct, frozen=True, kw_only=True):
    """
    What a run is about that nobody asked for: a manifest of this node's own.

    Attributes:
        source: The manifest.
        on_end: Told of the end; None when the run was left before.
        on_start: Told what the engine says of the start.
        judge: Whether an event is a correction of drift; None: nobody asks.
        pins: Buckets whose documents are read as they were at a revision.
        scope: Whose pending refreshes it runs, and leaves; see `ApplyOptions.scope`.
    """

    source: ManifestSource
    on_end: Callable[[SessionSummary | None], None]
    on_start: Callable[[SessionStart], None] | None = None
    judge: Callable[[TransactionEvent], bool | None] | None = None
    pins: Mapping[str, int] = {}
    scope: str = ""


class QueuedRun(Struct, frozen=True, kw_only=True):
    """
    A run that this node has taken on.

    Attributes:
        run: Its id.
        action: "apply", "plan", "check" or "ensure".
        name: What is applied; a newer job of the same name and action supersedes one that waits. "" supersedes none.
        request: What was asked.
        deadline: It does not begin after this; None: no limit.
        own: Set when the node itself is who asks: neither does such a job supersede, nor is it superseded.
        principal: For whom it is: who sent the request, who signed the assignment, or the node's own configuration.
        way: How it came about, where that is an action of the node's policy: "schedule" or "assignment"; "" for a request.
        grant: What the policy lets it touch; None: nothing binds it, or it has not begun.
        origin: Name of the schedule or assignment that it is due to; "" for others.
    """

    run: str
    action: str
    name: str
    request: ManifestRequest | EnsureRequest
    deadline: datetime | None = None
    own: LocalRun | None = None
    principal: Principal = LOCAL
    way: str = ""
    grant: Grant | None = None
    origin: str = ""


class EnqueueResult(Struct, frozen=True, kw_only=True):
    """
    What became of a job that was offered.

    Attributes:
        position: Its place in the queue, from 1; 0 when it begins at once; -1 when the queue is full.
        superseded: The job that it took the place of.
    """

    position: int
    superseded: QueuedRun | None = None


class RunQueue:
    """
    The queue of one agent.

    Attributes:
        current: The job in hand.
        waiting: The jobs that wait, first come first.
    """

    def __init__(self, limit: int) -> None:
        """At most `limit` jobs wait."""
        self.current: QueuedRun | None = None
        self.waiting: list[QueuedRun] = []
        self._limit = limit
        self._wake = asyncio.Event()

    def offer(self, job: QueuedRun) -> EnqueueResult:
        """Queue a job, unless there is no room."""
        superseded = self._superseded_by(job)
        if superseded is not None:
            self.waiting.remove(superseded)
        if len(self.waiting) >= self._limit:
            return EnqueueResult(position=-1)
        self.waiting.append(job)
        self._wake.set()
        return EnqueueResult(position=len(self.waiting) - (self.current is None), superseded=superseded)

    def withdraw(self, run: str) -> QueuedRun | None:
        """Take a job that waits out of the queue; None when none of this run does."""
        job = next((one for one in self.waiting if one.run == run), None)
        if job is not None:
            self.waiting.remove(job)
        return job

    def position(self, run: str) -> int | None:
        """0 for the job in hand, its place for one that waits, None for any other."""
        if self.current is not None and self.current.run == run:
            return 0
        places = [place for place, job in enumerate(self.waiting, 1) if job.run == run]
        return places[0] if places else None

    async def next(self) -> QueuedRun:
        """The next job, which is in hand until `finish`; waits until there is one."""
        while not self.waiting:
            self._wake.clear()
            await self._wake.wait()
        self.current = self.waiting.pop(0)
        return self.current

    def finish(self) -> None:
        """The job in hand is done."""
        self.current = None

    def _superseded_by(self, job: QueuedRun) -> QueuedRun | None:
        if not job.name or job.own:
            return None
        same = (
            one for one in self.waiting if one.name == job.name and one.action == job.action and not one.own
        )
        return next(same, None)


class ProgressPublisher:
    """Tells the progress of one agent's runs."""

    def __init__(
        self,
        node: str,
        events: Events,
        worker: RunExecutor,
        run_queue: RunQueue,
        every_s: Callable[[], float],
    ) -> None:
        """Nothing is told before `run`."""
        self._node = node
        self._events = events
        self._worker = worker
        self._run_queue = run_queue
        self._every_s = every_s
        self._is_busy = asyncio.Event()

    def begun(self) -> None:
        """A run is under way."""
        self._is_busy.set()

    def ended(self) -> None:
        """None is."""
        self._is_busy.clear()

    async def run(self) -> None:
        """Tell, for ever, while there is a run."""
        while True:
            await self._is_busy.wait()
            every_s = self._every_s()
            await asyncio.sleep(every_s)
            for progress in self._told(every_s):
                try:
                    await self._events.announce(
                        event_subject(SESSION_PROGRESS, self._node, progress.run),
                        encode_told(progress),
                    )
                except BusError as err:
                    log.debug("progress could not be told", extra={"reason": str(err)})

    def _told(self, every_s: float) -> list[Progress]:
        now = self._worker.report.progress_now() if self._worker.report else None
        # a run that began a moment ago has its time yet
        told = [now] if now and now.run_s >= every_s / 2 else []
        told += [
            Progress(protocol=SESSION_PROGRESS, run=job.run, node=self._node, state="queued")
            for job in self._run_queue.waiting
        ]
        return told


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
