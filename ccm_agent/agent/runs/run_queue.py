"""
One run at a time on a node: the queue of runs, the loop that takes the next one, and the progress that is published meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.bus.subjects import event_subject
from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.errors import BusError, InputError, ProtocolError, Refusal
from ccm_agent.model.formats.json_text import encode_message
from ccm_agent.model.outcome import SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.records.policy import LOCAL, Principal
from ccm_agent.model.selection import ResourceSelection
from ccm_agent.model.wire import (
    MANIFEST_APPLY,
    MANIFEST_CHECK,
    MANIFEST_PLAN,
    REPORTING,
    RESOURCE_ENSURE,
    RESOURCE_EXEC,
    SESSION_PROGRESS,
    EnsureRequest,
    ExecRequest,
    ManifestRequest,
    Progress,
    Request,
)
from ccm_agent.policy.grant import Grant

if TYPE_CHECKING:
    from ccm_agent.agent.context import AgentContext
    from ccm_agent.agent.requests.request_handler import RequestHandler
    from ccm_agent.agent.runs.run_executor import RunExecutor

log = logging.getLogger(__name__)

ACTIONS = {
    MANIFEST_APPLY: "apply",
    MANIFEST_PLAN: "plan",
    MANIFEST_CHECK: "check",
    RESOURCE_ENSURE: "ensure",
    RESOURCE_EXEC: "exec",
}
"""Requests that become runs."""

REPORTING_RUNS = 20
"""So many of the oldest waiting events are looked at for runs whose controllers are told that their events wait."""


class LocalRun(Struct, frozen=True, kw_only=True):
    """
    What a run of the node itself needs besides its request: it applies a manifest that this node converges on.

    Attributes:
        source: The manifest.
        ended: Gets the summary at the end; None when the run ended before its summary, or never started.
        on_start: Called with the engine's start of the session.
        judge: Whether an event is a correction of drift; None: that is not of interest.
        pins: Buckets whose documents are read as they were at a revision.
        scope: Whose pending refreshes it runs, and leaves; see `ApplyOptions.scope`.
    """

    source: ManifestSource
    ended: asyncio.Future[SessionSummary | None]
    on_start: Callable[[SessionStart], None] | None = None
    judge: Callable[[TransactionEvent], bool | None] | None = None
    pins: Mapping[str, int] = {}
    scope: str = ""

    def finish(self, summary: SessionSummary | None) -> None:
        """The run has ended."""
        if not self.ended.done():
            self.ended.set_result(summary)


class QueuedRun(Struct, frozen=True, kw_only=True):
    """
    A run that this node has taken on.

    Attributes:
        run: Its id.
        action: "apply", "plan", "check", "ensure" or "exec".
        name: What is applied; a newer job of the same name and action supersedes one that waits. "" and commands supersede none.
        request: What was asked.
        deadline: It does not begin after this; None: no limit.
        own: Set when the node itself is who asks: neither does such a job supersede, nor is it superseded.
        principal: For whom it is: who sent the request, who signed the assignment, or the node's own configuration.
        way: How it came about, where that is an action of the node's policy: "schedule" or "assignment"; "" for a request.
        grant: What the policy lets it touch; None: nothing restricts it, or it has not started.
        origin: Name of the schedule or assignment that it is due to; "" for others.
    """

    run: str
    action: str
    name: str
    request: ManifestRequest | EnsureRequest | ExecRequest
    deadline: datetime | None = None
    own: LocalRun | None = None
    principal: Principal = LOCAL
    way: str = ""
    grant: Grant | None = None
    origin: str = ""


def build_run(protocol: str, request: Request, deadline: datetime | None, principal: Principal) -> QueuedRun:
    """
    The run that a request becomes.

    Raises:
        ProtocolError: It becomes none.
    """
    if isinstance(request, EnsureRequest):
        name = f"{request.type}#{request.properties.get('name', '')}"
    elif isinstance(request, ExecRequest):
        name = f"exec#{shlex.join(request.argv)}"
    elif isinstance(request, ManifestRequest):
        name = request.name
    else:
        raise ProtocolError(f"{protocol}: not a request that starts a run")
    return QueuedRun(
        run=request.run,
        action=ACTIONS[protocol],
        name=name,
        request=request,
        deadline=deadline,
        principal=principal,
    )


def find_deadline(request: Request, due: datetime | None) -> datetime | None:
    """When a request must have started; None when it may start at any time."""
    if request.deadline is not None:
        return request.deadline
    if request.deadline_s > 0 and due is not None:
        try:
            return due + timedelta(seconds=request.deadline_s)
        except OverflowError:
            return None  # beyond the calendar
    return None


class EnqueueResult(Struct, frozen=True, kw_only=True):
    """
    The result of offering a job.

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
        current: The current job.
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
        """0 for the current job, its place for one that waits, None for any other."""
        if self.current is not None and self.current.run == run:
            return 0
        places = [place for place, job in enumerate(self.waiting, 1) if job.run == run]
        return places[0] if places else None

    async def next(self) -> QueuedRun:
        """The next job, which is the current one until `finish`; waits until there is one."""
        while not self.waiting:
            self._wake.clear()
            await self._wake.wait()
        self.current = self.waiting.pop(0)
        return self.current

    def finish(self) -> None:
        """The current job is done."""
        self.current = None

    def _superseded_by(self, job: QueuedRun) -> QueuedRun | None:
        if not job.name or job.own or job.action == "exec":
            return None
        wanted = job.name, job.action, _part(job)
        same = (one for one in self.waiting if (one.name, one.action, _part(one)) == wanted and not one.own)
        return next(same, None)


def _part(job: QueuedRun) -> ResourceSelection | None:
    """Which part of its manifest a job applies: a run of a part replaces no run of another part, or of the whole."""
    part = job.request.part if isinstance(job.request, ManifestRequest) else None
    if part is None:
        return None
    return ResourceSelection(only=part.only, tags=part.tags, skip_tags=part.skip_tags)


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


def command_properties(request: ExecRequest) -> dict[str, object]:
    """
    The properties of the command of a request, which keeps more of its output than other resources.

    Raises:
        InputError: The request has no command, or one that no program can be given.
    """
    if not any(request.argv) or "\0" in "".join(request.argv):
        raise InputError("the request has no command")
    properties: dict[str, object] = {"name": shlex.join(request.argv), "logoutput": True, "provider": "posix"}
    return properties | ({"timeout": f"{request.timeout_s:f}s"} if request.timeout_s else {})
