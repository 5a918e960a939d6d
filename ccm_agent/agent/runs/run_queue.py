"""
Whose turn it is: one run at a time on a node, and a bounded queue of those that wait, in order of arrival.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime

from msgspec import Struct

from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.outcome import SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.policy import LOCAL, Principal
from ccm_agent.model.wire import EnsureRequest, ManifestRequest
from ccm_agent.policy.grant import Grant


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
