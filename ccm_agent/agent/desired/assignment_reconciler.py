"""
The assignments of this node: they are read, it is decided which of them apply, and each gets a convergence loop.

They are read by direct get when a notification arrives, at each connection and on an interval; the decision is made again when
facts change. No consumer is made.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ccm_agent.agent.desired.assignment_source import (
    AssignmentSource,
    deadline_refusal,
)
from ccm_agent.agent.desired.assignment_status import AssignmentStatus, RolloutRun
from ccm_agent.agent.desired.assignments import (
    BUCKET,
    CAUSE,
    DATA_BUCKET,
    VANISHED,
    AssignmentCache,
    MatchingAssignment,
    StoredAssignment,
    conflicts,
    select_by_precedence,
    staged,
)
from ccm_agent.agent.desired.drift import Drift, forget_others
from ccm_agent.agent.desired.loop import ConvergenceLoop, ConvergenceResult, pause
from ccm_agent.agent.desired.resource_conflicts import ResourceConflicts
from ccm_agent.agent.state.presence import facts_digest
from ccm_agent.model.errors import BusError, CcmError, ProtocolError, Refusal
from ccm_agent.model.limited_log import LimitedLog
from ccm_agent.sessions.refresh_store import SCOPE

if TYPE_CHECKING:
    from ccm_agent.agent.process.context import AgentContext
    from ccm_agent.model.wire import AssignmentStage

log = logging.getLogger(__name__)

FIRST_READ_S = 5.0
"""A node that starts waits so long for the broker, besides the spread of its first attempt; then it applies what it knew."""


SUPERSEDED = "assignment.superseded"
"""Code of the release of a revision that the assignment does not hold any more."""

OUTRANKED = "assignment.outranked"
"""Code of the release of a revision where another assignment of the name takes precedence."""

READ_AGAIN_S = 10.0
"""Pause after a reading that failed while connected; each node pauses somewhat less, and twice as long after each failure."""


class AssignmentReconciler:
    """
    Runs the loops of one agent's assignments.

    Attributes:
        states: The state of each assignment that applies to this node.
    """

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._bucket = context.ports.bucket(BUCKET)
        self._cache = AssignmentCache(context)
        self._conflicts = ResourceConflicts(context)
        self.states = AssignmentStatus(
            context.node,
            context.state / "assignment_states.json",
            context.clock,
            self._publish,
            pending=lambda name: context.refreshes.of(f"{SCOPE}{name}"),
        )
        self._wake = asyncio.Event()
        self._is_up = asyncio.Event()
        self._must_read = False
        self._notified: dict[str, int] = {}
        self._failures = 0
        self._stops: dict[str, Callable[[], Awaitable[None]]] = {}
        self._loops: dict[str, tuple[AssignmentSource, ConvergenceLoop, asyncio.Task[None]]] = {}
        self._pinned: dict[int, set[tuple[str, int]]] = {}
        self._without_data: set[str] = set()
        self._saving: asyncio.Task[None] | None = None
        self._conflict = ""
        self._reported: dict[str, str] = {}
        self._endings: dict[str, asyncio.Task[None]] = {}
        self._has_read = self._has_swept = False
        self._limited = LimitedLog(log)

    def open(self) -> None:
        """Read what an earlier process knew. Blocking."""
        self._cache.open()
        self.states.open()
        self._pinned = _pinners(map(self._current, self._cache.known.values()))

    def read_again(self) -> None:
        """The bucket may hold other assignments now, or the node listens to other scopes."""
        self._must_read = True
        self._wake.set()

    def decide_again(self) -> None:
        """Facts may have changed, or the policy, or the node was disabled or enabled."""
        self._wake.set()

    async def once(self) -> list[ConvergenceResult]:
        """Converge on all assignments now, whenever they are due; their results."""
        await self._is_up.wait()
        requests = [loop.triggers.request() for _, loop, _ in self._loops.values()]
        return list(await asyncio.gather(*requests))

    async def release(self, stage: AssignmentStage) -> RolloutRun:
        """
        Take the next revision of an assignment, which this node converges on from now on; its loop waits for the end of this run.

        Raises:
            Refusal: The assignment has no such revision, or would not be applied here.
            BusError: It is not known here yet, and cannot be read now.
        """
        if stage.key.rpartition(".")[0] in self._context.scopes and self._staged(stage) is None:
            await self._cache.read_one(stage.key, 0)
        known = self._staged(stage)
        if known is None:
            raise Refusal(
                SUPERSEDED, f"{stage.key}: no such revision to roll out; it was assigned again or removed"
            )
        name, mode = known.assignment.name, known.assignment.mode
        best = await self._best(stage)
        refusal = (
            self._outranked(known, best.get(name))
            or (await self._refused(best) | self._lost(best)).get(name)
            or self._context.admission.policy.refusal(known.asked_by, CAUSE, mode)
        )
        if refusal is not None:
            raise refusal
        await self._cache.save()
        self.states.set_released(stage.key, stage.number)
        await self.states.save()
        # before it is fetched: what is pinned from now on must not be released as old
        await self._keep_needed(best)
        drift = Drift(
            f"{SCOPE}{name}", self._context.state / "converged", lambda: self._context.assigned.facts
        )
        await drift.open()
        run = RolloutRun(known, drift, self._wake.set)
        self.states.rollout_runs[stage.key] = run
        self._wake.set()
        return run

    async def run(self) -> None:
        """Converge until cancelled."""
        self.states.publish()
        async with asyncio.TaskGroup() as group:
            await self._first()
            while True:
                self._wake.clear()
                try:
                    await self._read()
                    await self._decide(group)
                except Exception:  # noqa: BLE001 - one bad moment must not end the assignments
                    self._limited.exception("assignments could not be checked")
                await self.states.save()
                self._is_up.set()
                self._save_later(group)
                await self._wait()

    def _save_later(self, group: asyncio.TaskGroup) -> None:
        """Write to disk after a pause: not the whole fleet at the moment of a notification."""
        is_idle = self._saving is None or self._saving.done()
        if is_idle and (self._cache.is_dirty or self._context.documents.has_unused):
            self._saving = group.create_task(self._save(), name="assignments:save")

    async def _save(self) -> None:
        await pause(self._context)
        await self._cache.save()

    async def _first(self) -> None:
        """Wait for the first reading, for a while: what was known before may be out of date."""
        if not self._cache.known:
            return
        rest_s = self._context.settings.connect_spread_s + FIRST_READ_S
        sleep = asyncio.create_task(self._context.clock.sleep(rest_s), name="assignments:first")
        there = asyncio.create_task(self._wake.wait(), name="assignments:connected")
        try:
            await asyncio.wait({sleep, there}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            there.cancel()

    async def _wait(self) -> None:
        """Wait for a reason; where facts decide, until they may have changed, and after a failed reading for a moment."""
        limit_s: float | None = None
        if self._must_read and self._context.link.connected:
            limit_s = random.uniform(0.5, 1.0) * READ_AGAIN_S * 2 ** min(self._failures - 1, 6)
        elif any(_depends_on_facts(self._current(one)) for one in self._cache.known.values()):
            limit_s = self._context.settings.facts_interval_s
        try:
            async with asyncio.timeout(limit_s):
                await self._wake.wait()
        except TimeoutError:
            return

    # -- reading

    async def _read(self) -> None:
        if not (self._must_read or self._notified) or not self._context.link.connected:
            return
        is_whole = self._must_read or len(self._notified) > 1
        self._must_read = False
        notified, self._notified = self._notified, {}
        try:
            if is_whole:
                await self._listen()
                is_news = await self._cache.read(self._context.scopes, max(notified.values(), default=0))
            else:
                is_news = await self._read_one(*notified.popitem())
            if is_news:
                self._limited.info("assignments have changed", extra={"assignments": len(self._cache.known)})
            self._failures = 0
            self._has_read = True
        except ProtocolError:
            return  # it was reported; what was read before stays in force
        except BusError as err:
            # a broker may be slow while a whole fleet asks; the next interval would be late
            self._failures += 1
            self._must_read = True
            self._limited.info("assignments cannot be read now", extra={"reason": str(err)})

    async def _listen(self) -> None:
        """Be notified of changes in each scope of the node, and in no other."""
        scopes = self._context.scopes
        for scope in [one for one in self._stops if one not in scopes]:
            await self._stops.pop(scope)()
        for scope in scopes:
            if scope not in self._stops:
                self._stops[scope] = await self._bucket.watch_changes(f"{scope}.*", self._on_notification)

    async def _read_one(self, key: str, revision: int) -> bool:
        """Read what a notification names, unless that scope is not one of the node's any more."""
        if key.rpartition(".")[0] not in self._context.scopes:
            return False
        return await self._cache.read_one(key, revision)

    def _on_notification(self, key: str, revision: int) -> None:
        self._notified[key] = max(self._notified.get(key, 0), revision)
        self._wake.set()

    # -- deciding

    async def _decide(self, group: asyncio.TaskGroup) -> None:
        """Decide which assignments apply, and give each loop its assignment."""
        best = await self._best()
        await self._keep_needed(best)
        refused = await self._refused(best) | self._lost(best)
        self.states.retain(set(best), set(self._cache.known))
        for name in [name for name in self._loops if name not in best]:
            self._limited.info("an assignment has ended", extra={"assignment": name})
            source, _, task = self._loops.pop(name)
            task.cancel()
            self._endings[name] = group.create_task(self._end(source, task), name=f"assignment:{name}:end")
        for name, candidate in best.items():
            if name in refused:
                candidate = MatchingAssignment(known=candidate.known, refusal=refused[name])
            self._source(name, group).assign(candidate)
        if self._has_read and not self._has_swept:
            self._has_swept = True
            scopes = {f"{SCOPE}{name}" for name in best}
            await self._context.refreshes.keep_only(SCOPE, scopes)
            await self._context.secret_uses.keep_only(SCOPE, scopes)
            folder = self._context.state / "converged"
            await asyncio.to_thread(forget_others, folder, SCOPE, set(best))

    async def _best(self, releasing: AssignmentStage | None = None) -> dict[str, MatchingAssignment]:
        """Of each name the assignment that applies here, also as it would be once a stage is released."""
        scopes = self._context.scopes
        current = (self._current(one, releasing) for one in self._cache.known.values())
        known = [one for one in current if one.assignment.scope in scopes]
        facts = await self._facts() if any(map(_depends_on_facts, known)) else {}
        return select_by_precedence(
            [candidate for one in known if (candidate := await self._matching(one, facts))]
        )

    def _current(self, known: StoredAssignment, releasing: AssignmentStage | None = None) -> StoredAssignment:
        """The revision of an assignment that this node has: the next one, if it was released here."""
        following = staged(known)
        if following is None:
            return known
        is_releasing = releasing is not None and (releasing.key, releasing.number) == (
            known.key,
            following.number,
        )
        is_released = is_releasing or self.states.is_released(known.key, following.number)
        return following if is_released else known

    def _staged(self, stage: AssignmentStage) -> StoredAssignment | None:
        """The revision that a stage names; a rollout that completed meanwhile has made it the current one."""
        known = self._cache.known.get(stage.key)
        found = staged(known) or known if known is not None else None
        return found if found is not None and found.number == stage.number else None

    @staticmethod
    def _outranked(known: StoredAssignment, best: MatchingAssignment | None) -> Refusal | None:
        """Why a released revision is not the one that applies here."""
        name = known.assignment.name
        if best is None:
            return Refusal("target.mismatch", f"the assignment {name} no longer selects this node")
        if best.known.key != known.key:
            return Refusal(OUTRANKED, f"another assignment named {name} applies here: {best.known.key}")
        return best.refusal

    async def _end(self, source: AssignmentSource, task: asyncio.Task[None]) -> None:
        """Forget what is known about an assignment that was removed: another one may come under its name."""
        await asyncio.wait({task})
        await source.drift.forget()
        await self._context.refreshes.forget(source.scope)
        await self._context.secret_uses.forget(source.scope)
        if self._endings.get(source.name) is asyncio.current_task():
            del self._endings[source.name]

    async def _matching(self, known: StoredAssignment, facts: Mapping[str, Any]) -> MatchingAssignment | None:
        """The assignment, if it selects this node; one whose selector cannot be read is refused rather than ignored."""
        assignment = known.assignment
        if not _depends_on_facts(known):
            return MatchingAssignment(known=known)
        try:
            matches = await self._context.ports.matches(
                assignment.targets, assignment.where, self._context.node, facts
            )
        except CcmError as err:
            if self._reported.get(known.key) != str(err):
                self._reported[known.key] = str(err)
                self._context.events.refused(known.key, str(err))
            return MatchingAssignment(known=known, refusal=Refusal(err.code, str(err)))
        self._reported.pop(known.key, None)
        return MatchingAssignment(known=known) if matches else None

    async def _refused(self, best: Mapping[str, MatchingAssignment]) -> dict[str, Refusal]:
        """Assignments that are refused because another one manages the same resource; plans and late ones manage nothing."""
        status, clock, policy = self.states, self._context.clock, self._context.admission.policy
        applied = {
            name: one.known
            for name, one in best.items()
            if one.refusal is None
            and one.known.assignment.mode == "apply"
            and deadline_refusal(status, clock, one.known) is None
            and policy.refusal(one.known.asked_by, CAUSE, "apply") is None
        }
        refused: dict[str, Refusal] = {}
        if len(applied) > 1:
            facts = await self._facts()
            refused = conflicts(await self._conflicts.managed(applied, facts, facts_digest(facts)))
        sentences = sorted({str(one) for one in refused.values()})
        sentence = "; ".join(sentences)
        if sentence != self._conflict:
            self._conflict = sentence
            self._context.presence.set_warning("assignments", sentence)
            self._context.presence.request_heartbeat()
            for one in sentences:
                self._limited.error("assignments are in conflict", extra={"reason": one})
        return refused

    def _lost(self, best: Mapping[str, MatchingAssignment]) -> dict[str, Refusal]:
        """Assignments that vanished from the bucket, and whose pinned data is that of another broker now."""
        self._without_data &= self._cache.vanished
        reason = (
            "it was not unassigned, but it and the data that it pins are gone from their buckets; "
            "assign it again, or unassign it"
        )
        return {
            name: Refusal(VANISHED, reason)
            for name, one in best.items()
            if one.known.key in self._without_data
        }

    async def _keep_needed(self, best: Mapping[str, MatchingAssignment]) -> None:
        """
        Keep on disk what the node needs when it starts without a network, and release old revisions of data.

        A revision that only new assignments pin is released too, and fetched again: on a broker that was rebuilt, or restored
        from a backup, it has other content.
        """
        current = [one.known for one in best.values()]
        self._context.bundles.current = frozenset(one.assignment.bundle.digest for one in current)
        pinned, before = _pinners(current), self._pinned
        if pinned != before or not self._is_up.is_set():
            self._pinned = pinned
            used = {revision for revision, who in pinned.items() if self._is_same_past(revision, who, before)}
            await self._context.documents.forget_pins(DATA_BUCKET, used)

    def _is_same_past(
        self, revision: int, pinners: set[tuple[str, int]], before: Mapping[int, set[tuple[str, int]]]
    ) -> bool:
        """
        Whether a pinned revision is the one that is on disk.

        It is when an assignment that pinned it before is still there. It is not when the only such assignment has vanished from
        the bucket: what is new there pins a revision of another broker. The vanished one is refused then, because its data is
        lost.
        """
        known, vanished = before.get(revision, set()), self._cache.vanished
        is_other = any(one not in known for one in pinners)
        going_on = {one for one in pinners & known if not (is_other and one[0] in vanished)}
        if not going_on:
            self._without_data |= {key for key, _ in pinners & known}
        return bool(going_on)

    def _source(self, name: str, group: asyncio.TaskGroup) -> AssignmentSource:
        if name not in self._loops:
            source = AssignmentSource(name, self._context, self._cache, self.states)
            loop = ConvergenceLoop(source, self._context)
            task = group.create_task(loop.run(after=self._endings.pop(name, None)), name=f"assignment:{name}")
            self._loops[name] = source, loop, task
        return self._loops[name][0]

    async def _facts(self) -> Mapping[str, Any]:
        return await self._context.facts.current(self._context.settings.facts_interval_s)

    def _publish(self, is_urgent: bool) -> None:
        self._context.record.assignments = dict(self.states.published)
        if is_urgent:
            self._context.presence.request_heartbeat()


def _pinners(known: Iterable[StoredAssignment]) -> dict[int, set[tuple[str, int]]]:
    """The pinned revisions of data, and the assignments that pin them."""
    found: dict[int, set[tuple[str, int]]] = {}
    for one in known:
        if one.assignment.data_revision:
            found.setdefault(one.assignment.data_revision, set()).add((one.key, one.number))
    return found


def _depends_on_facts(known: StoredAssignment) -> bool:
    """Which nodes it selects depends on more facts than its scope says."""
    return bool(known.assignment.targets or known.assignment.where)
