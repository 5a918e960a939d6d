"""
What is assigned to this node, and who converges on it: the assignments are read, judged, and each given to its worker.

Read by direct get at a poke, at each connection and now and then; judged again when facts change. No consumer is made.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from ccm_agent.agent.cache.bundle_cache import BundleCache
from ccm_agent.agent.cache.document_cache import CachedBuckets
from ccm_agent.agent.desired.assignment_cache import AssignmentCache
from ccm_agent.agent.desired.assignment_loop import AssignmentContext, AssignmentLoop, deadline_refusal
from ccm_agent.agent.desired.assignment_rules import (
    DATA_BUCKET,
    VANISHED,
    MatchingAssignment,
    StoredAssignment,
    conflicts,
    select_by_precedence,
)
from ccm_agent.agent.desired.assignment_status import AssignmentStatus
from ccm_agent.agent.desired.drift import Drift, forget_others
from ccm_agent.agent.desired.resource_conflicts import ResourceConflicts
from ccm_agent.agent.desired.run_once import ConvergenceResult
from ccm_agent.agent.node.presence import facts_digest
from ccm_agent.agent.runs.run_executor import PendingRefreshes
from ccm_agent.model.errors import BusError, CcmError, ProtocolError, Refusal
from ccm_agent.model.limited_log import LimitedLog
from ccm_agent.model.ports import BrokerConnection, KeyValue

log = logging.getLogger(__name__)

KIND = "assignment "
"""Before its name, what was settled under an assignment is kept by."""

FIRST_READ_S = 5.0
"""A node that starts waits so long for the broker, besides the spread of its first attempt; then what it knew stands."""


READ_AGAIN_S = 10.0
"""After a reading that failed though the broker is there; each node somewhat sooner, and twice as long each time it fails."""


class ReconcilerContext(Struct, frozen=True, kw_only=True):
    """
    What assignments ask of the rest of the agent.

    Attributes:
        loop_context: What their workers need.
        bucket: `CCM_ASSIGNMENTS`, for its pokes.
        source: The same, read.
        link: The connection.
        scopes: The node's scopes as they are now.
        facts: All facts, as fresh as the configuration says.
        matches: Whether targets and expression mean this node with these facts.
        resource_conflicts: Finds resources that several assignments manage.
        bundles, data: What is kept on disk.
        assigned: Assigned facts; under others a change is no drift.
        folder: Where it is kept what is settled.
        refreshes: What is still to be refreshed here.
        on_conflict: Told the sentence about assignments in conflict; "" when there are none.
    """

    loop_context: AssignmentContext
    bucket: KeyValue
    source: AssignmentCache
    link: BrokerConnection
    scopes: Callable[[], list[str]]
    facts: Callable[[], Awaitable[Mapping[str, Any]]]
    matches: Callable[[list[str], str, Mapping[str, Any]], Awaitable[bool]]
    resource_conflicts: ResourceConflicts
    bundles: BundleCache
    data: CachedBuckets
    assigned: Callable[[], Mapping[str, Any]]
    folder: Path
    refreshes: PendingRefreshes
    on_conflict: Callable[[str], None]


class AssignmentReconciler:
    """The assignments of one agent."""

    def __init__(self, context: ReconcilerContext) -> None:
        """Nothing runs yet."""
        self._context = context
        self._wake = asyncio.Event()
        self._is_up = asyncio.Event()
        self._must_read = False
        self._poked: dict[str, int] = {}
        self._failures = 0
        self._pokes: dict[str, Callable[[], Awaitable[None]]] = {}
        self._workers: dict[str, tuple[AssignmentLoop, asyncio.Task[None]]] = {}
        self._pinned: dict[int, set[tuple[str, int]]] = {}
        self._without_data: set[str] = set()
        self._keeping: asyncio.Task[None] | None = None
        self._conflict = ""
        self._told: dict[str, str] = {}
        self._endings: dict[str, asyncio.Task[None]] = {}
        self._has_read = self._has_swept = False
        self._limited = LimitedLog(log)

    @property
    def states(self) -> AssignmentStatus:
        """How this node stands to each assignment that means it."""
        return self._context.loop_context.states

    def open(self) -> None:
        """Take what an earlier process knew. Blocking."""
        self._context.source.open()
        self.states.open()
        self._pinned = _pinners(self._context.source.known.values())

    def read_again(self) -> None:
        """The bucket may hold other assignments now, or the node listens to other scopes."""
        self._must_read = True
        self._wake.set()

    def look_again(self) -> None:
        """Facts may be others now, or the node was disabled, or enabled."""
        self._wake.set()

    async def once(self) -> list[ConvergenceResult]:
        """Converge on everything now, whenever it is due; how each ended."""
        await self._is_up.wait()
        orders = [worker.once() for worker, _ in self._workers.values()]
        return list(await asyncio.gather(*orders))

    async def run(self) -> None:
        """Converge on what is assigned, for ever."""
        self.states.tell()
        async with asyncio.TaskGroup() as group:
            await self._first()
            while True:
                self._wake.clear()
                try:
                    await self._read()
                    await self._judge(group)
                except Exception:  # noqa: BLE001 - one bad moment must not end the assignments
                    self._limited.exception("assignments could not be looked at")
                await self.states.keep()
                self._is_up.set()
                self._keep_later(group)
                await self._wait()

    def _keep_later(self, group: asyncio.TaskGroup) -> None:
        """A disk is written to as assignments are applied: not by a whole fleet at the moment at which it hears something."""
        is_idle = self._keeping is None or self._keeping.done()
        if is_idle and (self._context.source.is_dirty or self._context.data.has_unused):
            self._keeping = group.create_task(self._keep(), name="assignments:keep")

    async def _keep(self) -> None:
        pause_s = self._context.loop_context.settings().change_pause_s
        if pause_s:
            await self._context.loop_context.clock.sleep(random.uniform(0, pause_s))
        await self._context.loop_context.keep()

    async def _first(self) -> None:
        """Wait for the first reading, for a while: what was known before may be out of date."""
        context = self._context
        if not context.source.known:
            return
        rest_s = context.loop_context.settings().connect_spread_s + FIRST_READ_S
        sleep = asyncio.create_task(context.loop_context.clock.sleep(rest_s), name="assignments:first")
        there = asyncio.create_task(self._wake.wait(), name="assignments:connected")
        try:
            await asyncio.wait({sleep, there}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            there.cancel()

    async def _wait(self) -> None:
        """Until there is a reason; where facts decide until they may be others, and after a failed reading for a moment."""
        limit_s: float | None = None
        if self._must_read and self._context.link.connected:
            limit_s = random.uniform(0.5, 1.0) * READ_AGAIN_S * 2 ** min(self._failures - 1, 6)
        elif any(map(_asks, self._context.source.known.values())):
            limit_s = self._context.loop_context.settings().facts_interval_s
        try:
            async with asyncio.timeout(limit_s):
                await self._wake.wait()
        except TimeoutError:
            return

    # -- reading

    async def _read(self) -> None:
        if not (self._must_read or self._poked) or not self._context.link.connected:
            return
        is_whole = self._must_read or len(self._poked) > 1
        self._must_read = False
        poked, self._poked = self._poked, {}
        try:
            if is_whole:
                await self._listen()
                is_news = await self._context.source.read(
                    self._context.scopes(), max(poked.values(), default=0)
                )
            else:
                is_news = await self._read_one(*poked.popitem())
            if is_news:
                self._limited.info(
                    "assignments have changed", extra={"assignments": len(self._context.source.known)}
                )
            self._failures = 0
            self._has_read = True
        except ProtocolError:
            return  # it was told; what stands stands
        except BusError as err:
            # a broker that is slow, for a whole fleet asks at once, would otherwise be asked again at the next interval
            self._failures += 1
            self._must_read = True
            self._limited.info("assignments cannot be read now", extra={"reason": str(err)})

    async def _listen(self) -> None:
        """Be poked for each scope of the node, and for no other."""
        scopes = self._context.scopes()
        for scope in [one for one in self._pokes if one not in scopes]:
            await self._pokes.pop(scope)()
        for scope in scopes:
            if scope not in self._pokes:
                self._pokes[scope] = await self._context.bucket.pokes(f"{scope}.*", self._on_poke)

    async def _read_one(self, key: str, revision: int) -> bool:
        """What a poke names, unless that scope is none of the node's any more."""
        if key.rpartition(".")[0] not in self._context.scopes():
            return False
        return await self._context.source.read_one(key, revision)

    def _on_poke(self, key: str, revision: int) -> None:
        self._poked[key] = max(self._poked.get(key, 0), revision)
        self._wake.set()

    # -- judging

    async def _judge(self, group: asyncio.TaskGroup) -> None:
        """Give each worker what counts now."""
        scopes = self._context.scopes()
        known = [one for one in self._context.source.known.values() if one.assignment.scope in scopes]
        facts = await self._context.facts() if any(map(_asks, known)) else {}
        best = select_by_precedence(
            [candidate for one in known if (candidate := await self._meant(one, facts))]
        )
        await self._keep_needed(best)
        refused = await self._refused(best) | self._lost(best)
        self.states.keep_only(set(best), set(self._context.source.known))
        for name in [name for name in self._workers if name not in best]:
            self._limited.info("an assignment has ended", extra={"assignment": name})
            worker, task = self._workers.pop(name)
            task.cancel()
            self._endings[name] = group.create_task(
                self._end(name, worker, task), name=f"assignment:{name}:end"
            )
        for name, candidate in best.items():
            if name in refused:
                candidate = MatchingAssignment(known=candidate.known, refusal=refused[name])
            self._worker(name, group).assign(candidate)
        if self._has_read and not self._has_swept:
            self._has_swept = True
            await self._context.refreshes.keep_only(KIND, {f"{KIND}{name}" for name in best})
            await asyncio.to_thread(forget_others, self._context.folder, KIND, set(best))

    async def _end(self, name: str, worker: AssignmentLoop, task: asyncio.Task[None]) -> None:
        """What was settled under an assignment that is no more says nothing about one that comes under its name."""
        await asyncio.wait({task})
        await worker.forget()
        await self._context.refreshes.forget(f"{KIND}{name}")
        if self._endings.get(name) is asyncio.current_task():
            del self._endings[name]

    async def _meant(self, known: StoredAssignment, facts: Mapping[str, Any]) -> MatchingAssignment | None:
        """The assignment, if it means this node; one whose selector cannot be read is refused rather than passed over."""
        assignment = known.assignment
        if not _asks(known):
            return MatchingAssignment(known=known)
        try:
            is_meant = await self._context.matches(assignment.targets, assignment.where, facts)
        except CcmError as err:
            if self._told.get(known.key) != str(err):
                self._told[known.key] = str(err)
                self._context.loop_context.on_refused(known.key, str(err))
            return MatchingAssignment(known=known, refusal=Refusal(err.code, str(err)))
        self._told.pop(known.key, None)
        return MatchingAssignment(known=known) if is_meant else None

    async def _refused(self, best: Mapping[str, MatchingAssignment]) -> dict[str, Refusal]:
        """Who is refused because another one manages the same; a plan manages nothing, nor does what comes too late."""
        applied = {
            name: one.known
            for name, one in best.items()
            if one.refusal is None
            and one.known.assignment.mode == "apply"
            and deadline_refusal(self._context.loop_context, one.known) is None
            and self._context.loop_context.forbids(one.known, "apply") is None
        }
        refused: dict[str, Refusal] = {}
        if len(applied) > 1:
            facts = await self._context.facts()
            refused = conflicts(
                await self._context.resource_conflicts.managed(applied, facts, facts_digest(facts))
            )
        sentences = sorted({str(one) for one in refused.values()})
        sentence = "; ".join(sentences)
        if sentence != self._conflict:
            self._conflict = sentence
            self._context.on_conflict(sentence)
            for one in sentences:
                self._limited.error("assignments are in conflict", extra={"reason": one})
        return refused

    def _lost(self, best: Mapping[str, MatchingAssignment]) -> dict[str, Refusal]:
        """Those that vanished from the bucket and whose pinned data is that of another broker now."""
        self._without_data &= self._context.source.vanished
        reason = (
            "it is gone from the bucket without having been unassigned, and so is the data that it pins; "
            "assign it again, or unassign it"
        )
        return {
            name: Refusal(VANISHED, reason)
            for name, one in best.items()
            if one.known.key in self._without_data
        }

    async def _keep_needed(self, best: Mapping[str, MatchingAssignment]) -> None:
        """
        What stands must be on disk when the node starts without a network; the rest of the past may go.

        A revision that only assignments pin which are new goes too, and is fetched again: on a broker that was made anew, or put
        back to a backup, it is another past.
        """
        standing = [one.known for one in best.values()]
        self._context.bundles.standing = frozenset(one.assignment.bundle.digest for one in standing)
        pinned, before = _pinners(standing), self._pinned
        if pinned != before or not self._is_up.is_set():
            self._pinned = pinned
            used = {revision for revision, who in pinned.items() if self._is_same_past(revision, who, before)}
            await self._context.data.forget_pins(DATA_BUCKET, used)

    def _is_same_past(
        self, revision: int, pinners: set[tuple[str, int]], before: Mapping[int, set[tuple[str, int]]]
    ) -> bool:
        """
        A pinned revision is the one that is on disk.

        It is when an assignment goes on that pinned it before. It is not when one that has vanished from the bucket is the only
        such one: what is new there pins the past of another broker. The vanished one is refused then, for its data is lost.
        """
        known, vanished = before.get(revision, set()), self._context.source.vanished
        is_other = any(one not in known for one in pinners)
        going_on = {one for one in pinners & known if not (is_other and one[0] in vanished)}
        if not going_on:
            self._without_data |= {key for key, _ in pinners & known}
        return bool(going_on)

    def _worker(self, name: str, group: asyncio.TaskGroup) -> AssignmentLoop:
        if name not in self._workers:
            drift = Drift(f"{KIND}{name}", self._context.folder, self._context.assigned)
            worker = AssignmentLoop(name, drift, self._context.loop_context)
            ending = self._endings.pop(name, None)
            task = group.create_task(worker.run(after=ending), name=f"assignment:{name}")
            self._workers[name] = worker, task
        return self._workers[name][0]


def _pinners(known: Iterable[StoredAssignment]) -> dict[int, set[tuple[str, int]]]:
    """The revisions of data that are pinned, and by which assignments."""
    found: dict[int, set[tuple[str, int]]] = {}
    for one in known:
        if one.assignment.data_revision:
            found.setdefault(one.assignment.data_revision, set()).add((one.key, one.number))
    return found


def _asks(known: StoredAssignment) -> bool:
    """Whom it means depends on more facts than its scope says."""
    return bool(known.assignment.targets or known.assignment.where)
