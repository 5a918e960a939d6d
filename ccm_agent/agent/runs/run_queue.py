"""The runs that a node has accepted: what each of them is, and the queue in which they wait."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from ccm_agent.engine.request import ManifestSource, OnStart
from ccm_agent.model.errors import InputError, ProtocolError, Refusal
from ccm_agent.model.outcome import SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.records.policy import LOCAL, Principal
from ccm_agent.model.selection import ResourceSelection
from ccm_agent.model.wire import (
    MANIFEST_APPLY,
    MANIFEST_CHECK,
    MANIFEST_PLAN,
    RESOURCE_ENSURE,
    RESOURCE_EXEC,
    EnsureRequest,
    ExecRequest,
    ManifestRequest,
    Request,
)
from ccm_agent.policy.grant import Grant

log = logging.getLogger(__name__)

ACTIONS = {
    MANIFEST_APPLY: "apply",
    MANIFEST_PLAN: "plan",
    MANIFEST_CHECK: "check",
    RESOURCE_ENSURE: "ensure",
    RESOURCE_EXEC: "exec",
}
"""Requests that become runs."""

EXPIRED = Refusal("run.expired", "its deadline passed before it began")
"""Why a run is not started whose deadline passed while it waited."""


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


class ReleasedRun(Struct, frozen=True, kw_only=True):
    """
    What a run needs that applies a revision of an assignment as a step of a rollout.

    Attributes:
        fetch: Returns the manifest, with the data that the assignment pins on disk; raises CcmError.
        data: URLs of its data.
        pins: Buckets whose documents are read as they were at a revision.
        scope: Whose pending refreshes it runs, and leaves; see `ApplyOptions.scope`.
        judge: Whether an event is a correction of drift.
        start_with: Given the run's id and a function: what is called when the session starts, which also calls that function.
        close: Called with the summary at the end; None: the run leaves the rest to the convergence loop.
    """

    fetch: Callable[[], Awaitable[ManifestSource]]
    data: Sequence[str]
    pins: Mapping[str, int]
    scope: str
    judge: Callable[[TransactionEvent], bool | None]
    start_with: Callable[[str, OnStart | None], OnStart]
    close: Callable[[SessionSummary | None], None]


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
