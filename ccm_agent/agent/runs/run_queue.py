"""The runs that a node has accepted, and the queue in which they wait."""

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
"""The action of a run, by the protocol of its request."""

EXPIRED = Refusal("run.expired", "its deadline passed before it began")
"""The refusal of a run whose deadline passed while it waited in the queue."""


class LocalRun(Struct, frozen=True, kw_only=True):
    """
    The additional data of a run that the node itself starts, to apply a manifest that it converges on.

    Attributes:
        source: The manifest.
        ended: Receives the summary at the end; None if the run ended without a summary, or never started.
        on_start: Called with the engine's start of the session.
        judge: Returns whether an event corrected drift (see `Judge`); None: corrections are not tracked.
        pins: The revisions of buckets at which documents are read, by bucket name.
        scope: The owner of its pending refreshes; see `ApplyOptions.scope`.
    """

    source: ManifestSource
    ended: asyncio.Future[SessionSummary | None]
    on_start: Callable[[SessionStart], None] | None = None
    judge: Callable[[TransactionEvent], bool | None] | None = None
    pins: Mapping[str, int] = {}
    scope: str = ""

    def finish(self, summary: SessionSummary | None) -> None:
        """Set the result of `ended`, unless it is already set."""
        if not self.ended.done():
            self.ended.set_result(summary)


class ReleasedRun(Struct, frozen=True, kw_only=True):
    """
    The additional data of a run that applies a revision of an assignment as a step of a rollout.

    Attributes:
        fetch: Stores the data that the assignment pins on disk, and returns the manifest; raises CcmError.
        data: URLs of its data.
        pins: The revisions of buckets at which documents are read, by bucket name.
        scope: The owner of its pending refreshes; see `ApplyOptions.scope`.
        judge: Returns whether an event corrected drift; see `Judge`.
        start_with: Called with the run's id and an optional function. Returns the function to call when the session starts, which
            also calls the given one.
        close: Called at the end with the summary, or with None if the convergence loop does the rest.
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
    A run that this node has accepted.

    Attributes:
        run: Its id.
        action: "apply", "plan", "check", "ensure" or "exec".
        name: The name of the applied manifest or resource. A newer job with the same name and action supersedes a waiting one,
            except for commands and jobs without a name.
        request: The request that the run executes.
        deadline: The run does not begin after this time; None: no limit.
        own: Set if the node itself started the run. Such a job does not supersede others and is not superseded.
        principal: The principal on whose behalf it runs: the request's sender, the assignment's signer, or the node's own
            configuration.
        way: Its trigger, as an action of the node's policy: "schedule" or "assignment"; "" for a request.
        grant: The resources that the policy allows the run to change; None: no restriction, or the run has not started.
        origin: Name of the schedule or assignment that triggered it; "" for others.
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
    Build the run for a request.

    Raises:
        ProtocolError: The request does not start a run.
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
    """Return the time by which the run of a request must start; None if it may start at any time."""
    if request.deadline is not None:
        return request.deadline
    if request.deadline_s > 0 and due is not None:
        try:
            return due + timedelta(seconds=request.deadline_s)
        except OverflowError:
            return None  # later than any datetime
    return None


class EnqueueResult(Struct, frozen=True, kw_only=True):
    """
    The result of offering a job.

    Attributes:
        position: Its place in the queue, from 1; 0 when it begins immediately; -1 when the queue is full.
        superseded: The waiting job that it replaced; None if there was none.
    """

    position: int
    superseded: QueuedRun | None = None


class RunQueue:
    """
    The queue of one agent.

    Attributes:
        current: The current job.
        waiting: The waiting jobs, oldest first.
    """

    def __init__(self, limit: int) -> None:
        """Create a queue for at most `limit` waiting jobs."""
        self.current: QueuedRun | None = None
        self.waiting: list[QueuedRun] = []
        self._limit = limit
        self._wake = asyncio.Event()

    def offer(self, job: QueuedRun) -> EnqueueResult:
        """Add a job to the queue, unless the queue is full."""
        superseded = self._superseded_by(job)
        if superseded is not None:
            self.waiting.remove(superseded)
        if len(self.waiting) >= self._limit:
            return EnqueueResult(position=-1)
        self.waiting.append(job)
        self._wake.set()
        return EnqueueResult(position=len(self.waiting) - (self.current is None), superseded=superseded)

    def withdraw(self, run: str) -> QueuedRun | None:
        """Remove the waiting job of a run from the queue and return it; None if there is none."""
        job = next((one for one in self.waiting if one.run == run), None)
        if job is not None:
            self.waiting.remove(job)
        return job

    def position(self, run: str) -> int | None:
        """Return 0 for the current job, its place in the queue for a waiting job, or None for any other."""
        if self.current is not None and self.current.run == run:
            return 0
        places = [place for place, job in enumerate(self.waiting, 1) if job.run == run]
        return places[0] if places else None

    async def next(self) -> QueuedRun:
        """Wait for the next job and return it; it is the current job until `finish`."""
        while not self.waiting:
            self._wake.clear()
            await self._wake.wait()
        self.current = self.waiting.pop(0)
        return self.current

    def finish(self) -> None:
        """Mark the current job as done."""
        self.current = None

    def _superseded_by(self, job: QueuedRun) -> QueuedRun | None:
        if not job.name or job.own or job.action == "exec":
            return None
        wanted = job.name, job.action, _part(job)
        same = (one for one in self.waiting if (one.name, one.action, _part(one)) == wanted and not one.own)
        return next(same, None)


def _part(job: QueuedRun) -> ResourceSelection | None:
    """Return the part of the manifest that a job applies; a job supersedes only jobs that apply the same part."""
    part = job.request.part if isinstance(job.request, ManifestRequest) else None
    if part is None:
        return None
    return ResourceSelection(only=part.only, tags=part.tags, skip_tags=part.skip_tags)


def command_properties(request: ExecRequest) -> dict[str, object]:
    """
    Return the properties for the command in a request. More of its output is kept than for other resources.

    Raises:
        InputError: The request has no command, or an argument contains a NUL character.
    """
    if not any(request.argv) or "\0" in "".join(request.argv):
        raise InputError("the request has no command")
    properties: dict[str, object] = {"name": shlex.join(request.argv), "logoutput": True, "provider": "posix"}
    return properties | ({"timeout": f"{request.timeout_s:f}s"} if request.timeout_s else {})
