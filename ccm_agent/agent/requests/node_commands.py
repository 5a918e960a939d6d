"""
Operators' commands to a node other than runs: disable, enable, lock, unlock and converge now.

A node executes each command once, even if the request is delivered several times. Convergence takes long, so its request is
accepted immediately. Meanwhile the node reports progress, and the final answer follows at the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ccm_agent.agent.events.publisher import AgentEventPublisher, ProgressSender
from ccm_agent.agent.runs.admission import Admission
from ccm_agent.model.errors import CcmError, Refusal
from ccm_agent.model.ports import Clock
from ccm_agent.model.records.maintenance import LONGEST_LOCK_S, LockChange, ResourceLock
from ccm_agent.model.records.policy import Principal
from ccm_agent.model.resource import parse_reference
from ccm_agent.model.wire import (
    NODE_CONVERGE,
    NODE_DISABLE,
    NODE_ENABLE,
    PROGRESS_INTERVAL_S,
    SESSION_PROGRESS,
    Disabled,
    MaintenanceRequest,
    NodeState,
    Progress,
    Request,
)

if TYPE_CHECKING:
    from ccm_agent.agent.desired.loop import ConvergenceResult

log = logging.getLogger(__name__)

TEXT_LIMIT = 500
"""Maximum characters of a reason or a name, which are in the node's record and in each refusal."""

LOCK_GRACE_S = 3600.0
"""The allowed difference between the clocks of an operator and a node, for the longest lock."""

WAITING_LIMIT = 8
"""The maximum number of requests that wait for the next convergence."""

RESULTS_LIMIT = 200
"""The maximum number of results in an answer, which is one message."""

NodeCommand = Callable[[Request, Principal], Awaitable[dict[str, Any] | None]]
"""Executes a request. Returns the body of the answer, or None if the answer follows later. Refusals are raised."""


_WORST = (NodeState.FAILED, NodeState.STOPPED, NodeState.REFUSED, NodeState.CHANGED)


def convergence_end(body: Mapping[str, Any]) -> tuple[str, str]:
    """
    Return the result of a node's convergence, for a rollout, from the body of its answer.

    Returns:
        The end state and the reason; "" if the body is from another command. A refused source is a failure: the node does not
        converge on it.
    """
    if "ended" not in body:
        return "", ""
    for state in _WORST:
        for one in body["ended"]:
            if one["state"] == state:
                end = NodeState.FAILED if state is NodeState.REFUSED else state
                reason = one.get("reason", "")
                return end, _cut(f"{one['name']}: {reason}" if reason else "")
    return NodeState.STABLE, ""


class SendAnswer(Protocol):
    """Sends the answer to a request, and records that the request was handled."""

    async def __call__(self, run: str, body: dict[str, Any], refusal: CcmError | None) -> None:
        """Send the answer; with a refusal, the request was not executed."""
        ...


class NodeCommands:
    """
    The commands of one agent.

    Args:
        admission: The node's disabled state and its locked resources.
        events: Publishes the operators' commands.
        progress: Publishes that a convergence is in progress.
        converge: Converges now on all manifests and assignments.
        clock: Returns the current time.
    """

    def __init__(
        self,
        admission: Admission,
        events: AgentEventPublisher,
        progress: ProgressSender,
        converge: Callable[[], Awaitable[list[ConvergenceResult]]],
        clock: Clock,
    ) -> None:
        self._admission = admission
        self._events = events
        self._progress = progress
        self._converge_once = converge
        self._clock = clock
        self._waiting: list[str] = []
        self._served: list[str] = []
        self._wake = asyncio.Event()

    def by_protocol(self) -> Mapping[str, NodeCommand]:
        """The commands, by the protocol id of their requests."""
        return {NODE_DISABLE: self._disable, NODE_ENABLE: self._enable, NODE_CONVERGE: self._converge}

    async def run(self, answer: SendAnswer, every_s: float = PROGRESS_INTERVAL_S) -> None:
        """
        Converge at each request, until cancelled. Requests that arrive during a convergence are served by the next one.

        Args:
            answer: Sends an answer.
            every_s: How often progress is reported.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._served, self._waiting = self._waiting, []
            body, refusal = await self._converged(every_s)
            for run in self._served:
                await answer(run, body, refusal)
            self._served = []

    async def _disable(self, request: Request, principal: Principal) -> dict[str, Any]:
        asked, now = _maintenance(request), self._clock.now().replace(microsecond=0)
        if asked.lock is not None and asked.lock.release:
            return await self._unlock(asked.lock, principal)
        if asked.until is not None and asked.until <= now:
            raise Refusal("maintenance.past", f"{asked.until.isoformat()} has passed; check the node's clock")
        if not (asked.lock or asked).why.strip():
            raise Refusal("maintenance.why", "the reason is missing")
        if asked.lock is not None:
            return await self._lock(asked.lock, now, asked.until, principal)
        disabled = Disabled(since=now, until=asked.until, why=_cut(asked.why), by=_cut(principal.title))
        await self._admission.maintenance.disable(disabled)
        return {"disabled": msgspec.to_builtins(disabled)}

    async def _lock(
        self, asked: LockChange, now: datetime, until: datetime | None, principal: Principal
    ) -> dict[str, Any]:
        if until is None or (until - now).total_seconds() > LONGEST_LOCK_S + LOCK_GRACE_S:
            raise Refusal("lock.time", f"a lock can last at most {LONGEST_LOCK_S // 86_400} days")
        resources = list(dict.fromkeys(asked.resources))
        for resource in resources:
            if parse_reference(resource) is None or len(resource) > TEXT_LIMIT:
                raise Refusal("lock.resource", f"{_cut(resource)}: is not type#name")
        if not resources:
            raise Refusal("lock.resource", "the request does not name a resource")
        why, by = _cut(asked.why), _cut(principal.title)
        locks = [ResourceLock(resource=one, since=now, until=until, why=why, by=by) for one in resources]
        await self._admission.locks.lock(locks)
        self._events.locked(locks)
        return {"locked": resources}

    async def _unlock(self, asked: LockChange, principal: Principal) -> dict[str, Any]:
        released = await self._admission.locks.release(asked.resources)
        if released:
            self._events.unlocked(released, _cut(principal.title), _cut(asked.why))
        return {"unlocked": released}

    async def _enable(self, request: Request, principal: Principal) -> dict[str, Any]:
        was = await self._admission.maintenance.enable(_cut(principal.title), _cut(_maintenance(request).why))
        return {"was_disabled": was}

    async def _converge(self, request: Request, principal: Principal) -> None:
        if request.run in (*self._served, *self._waiting):
            return
        if refusal := self._admission.refusal("apply"):
            raise refusal
        if len(self._waiting) >= WAITING_LIMIT:
            raise Refusal("queue.full", f"{WAITING_LIMIT} requests to converge are already waiting")
        self._events.converges(_cut(principal.title), _cut(_maintenance(request).why))
        self._waiting.append(request.run)
        self._wake.set()

    async def _converged(self, every_s: float) -> tuple[dict[str, Any], CcmError | None]:
        """Converge and report progress. Returns the body of the answers, and the reason of a refusal."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._guarded(), name="agent:converge")
            began_s = self._clock.monotonic()
            while not task.done():
                await asyncio.wait([task], timeout=every_s)
                if not task.done():
                    await self._report(self._clock.monotonic() - began_s)
        return task.result()

    async def _guarded(self) -> tuple[dict[str, Any], CcmError | None]:
        try:
            ended = await self._converge_once()
        except CcmError as err:
            return {}, err
        return {"ended": [_told(one) for one in ended[:RESULTS_LIMIT]], "count": len(ended)}, None

    async def _report(self, run_s: float) -> None:
        for run in self._served:
            # Includes the time, because a controller treats an identical report as replayed.
            await self._progress.announce(
                Progress(protocol=SESSION_PROGRESS, run=run, node=self._progress.node, run_s=run_s)
            )


def _maintenance(request: Request) -> MaintenanceRequest:
    assert isinstance(request, MaintenanceRequest)
    return request


def _told(one: ConvergenceResult) -> dict[str, Any]:
    """Return a result in the form of an answer; failed resources are in the events of the run."""
    short = msgspec.structs.replace(one, name=_cut(one.name), reason=_cut(one.reason), resources=[])
    told: dict[str, Any] = msgspec.to_builtins(short)
    return told


def _cut(text: str) -> str:
    return text[:TEXT_LIMIT]
