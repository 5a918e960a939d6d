"""
Reads the assignments of this node, decides which of them apply, and runs a convergence loop for each.

They are read by direct get when a notification arrives, after each connection and at regular intervals. The decision is repeated
when facts change. No consumer is created.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial

from ccm_agent.agent.cache.facts import FactCache
from ccm_agent.agent.desired.assignment_content import AssignmentContent
from ccm_agent.agent.desired.assignment_source import AssignmentSource
from ccm_agent.agent.desired.assignment_status import AssignmentRules, AssignmentStatus, RolloutRun
from ccm_agent.agent.desired.assignments import (
    AssignmentCache,
    AssignmentSelection,
    MatchingAssignment,
    StoredAssignment,
    conflicts,
)
from ccm_agent.agent.desired.drift import SourceRecords
from ccm_agent.agent.desired.loop import ConvergenceLoop, ConvergenceResult, MakeLoop
from ccm_agent.agent.desired.resource_conflicts import ResourceConflicts
from ccm_agent.agent.runs.run_queue import ReleasedRun
from ccm_agent.agent.state.presence import NodePresence, facts_digest
from ccm_agent.agent.state.settings import Settings
from ccm_agent.model.errors import BusError, ProtocolError, Refusal
from ccm_agent.model.limited_log import LimitedLog
from ccm_agent.model.ports import BrokerConnection, Clock, KeyReader
from ccm_agent.model.wire import AssignmentStage
from ccm_agent.sessions.refresh_store import SCOPE

log = logging.getLogger(__name__)

FIRST_READ_S = 5.0
"""
How long a starting node waits for the broker, after the random delay of its first attempt, before it applies known assignments.
"""


SUPERSEDED = "assignment.superseded"
"""The refusal code if a rollout releases a revision that the assignment no longer has."""

OUTRANKED = "assignment.outranked"
"""The refusal code if a rollout releases a revision, but another assignment of the same name takes precedence."""

READ_AGAIN_S = 10.0
"""
The pause after a read that failed while connected. Nodes pause for 50 to 100% of it, and the pause doubles after each failure.
"""


class AssignmentReader:
    """
    Reads the assignments of one node when they may have changed.

    Attributes:
        wake: Set when there is a reason to read, or to decide again.
        has_read: Whether this process has read them at least once.
    """

    def __init__(
        self,
        cache: AssignmentCache,
        bucket: KeyReader,
        presence: NodePresence,
        link: BrokerConnection,
        settings: Callable[[], Settings],
        clock: Clock,
    ) -> None:
        """
        Args:
            cache: The assignments as read.
            bucket: Notifies of changes.
            presence: The scopes of the node.
            link: The connection.
            settings: Returns the current configuration.
            clock: Returns the current time.
        """
        self.wake = asyncio.Event()
        self.has_read = False
        self._cache = cache
        self._bucket = bucket
        self._presence = presence
        self._link = link
        self._settings = settings
        self._clock = clock
        self._must_read = False
        self._notified: dict[str, int] = {}
        self._failures = 0
        self._stops: dict[str, Callable[[], Awaitable[None]]] = {}
        self._limited = LimitedLog(log)

    def read_again(self) -> None:
        """Read again, because the assignments in the bucket or the scopes of the node may have changed."""
        self._must_read = True
        self.wake.set()

    async def wait_first(self) -> None:
        """Wait a limited time until assignments can be read, because the known ones may be out of date."""
        if not self._cache.known:
            return
        rest_s = self._settings().connect_spread_s + FIRST_READ_S
        sleep = asyncio.create_task(self._clock.sleep(rest_s), name="assignments:first")
        there = asyncio.create_task(self.wake.wait(), name="assignments:connected")
        try:
            await asyncio.wait({sleep, there}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            there.cancel()

    async def wait(self, *, depends_on_facts: bool) -> None:
        """Wait for `wake`. The wait is limited if facts determine which assignments apply, or if the last read failed."""
        limit_s: float | None = None
        if self._must_read and self._link.connected:
            limit_s = random.uniform(0.5, 1.0) * READ_AGAIN_S * 2 ** min(self._failures - 1, 6)
        elif depends_on_facts:
            limit_s = self._settings().facts_interval_s
        try:
            async with asyncio.timeout(limit_s):
                await self.wake.wait()
        except TimeoutError:
            return

    async def read(self) -> None:
        """Read the changes, if the broker is connected."""
        if not (self._must_read or self._notified) or not self._link.connected:
            return
        is_whole = self._must_read or len(self._notified) > 1
        self._must_read = False
        notified, self._notified = self._notified, {}
        try:
            if is_whole:
                await self._listen()
                is_news = await self._cache.read(self._presence.scopes, max(notified.values(), default=0))
            else:
                is_news = await self._read_one(*notified.popitem())
            if is_news:
                self._limited.info("assignments have changed", extra={"assignments": len(self._cache.known)})
            self._failures = 0
            self.has_read = True
        except ProtocolError:
            return  # the error was reported; the assignments that were read earlier still apply
        except BusError as err:
            # A broker may be slow while a whole fleet reads. Waiting for the next interval would take too long.
            self._failures += 1
            self._must_read = True
            self._limited.info("assignments cannot be read now", extra={"reason": str(err)})

    async def _listen(self) -> None:
        """Subscribe to changes in the scopes of the node, and end other subscriptions."""
        scopes = self._presence.scopes
        for scope in [one for one in self._stops if one not in scopes]:
            await self._stops.pop(scope)()
        for scope in scopes:
            if scope not in self._stops:
                self._stops[scope] = await self._bucket.watch_changes(f"{scope}.*", self._on_notification)

    async def _read_one(self, key: str, revision: int) -> bool:
        """Read the key that a notification names, unless the node no longer has its scope."""
        if key.rpartition(".")[0] not in self._presence.scopes:
            return False
        return await self._cache.read_one(key, revision)

    def _on_notification(self, key: str, revision: int) -> None:
        self._notified[key] = max(self._notified.get(key, 0), revision)
        self.wake.set()


class ConflictingAssignments:
    """
    Finds assignments of one node that are refused because another assignment manages the same resource.

    Args:
        resources: Finds the resources that each assignment manages.
        rules: Decides whether they may be applied.
        facts: The facts of the node.
        presence: Publishes conflicts.
    """

    def __init__(
        self, resources: ResourceConflicts, rules: AssignmentRules, facts: FactCache, presence: NodePresence
    ) -> None:
        self._resources = resources
        self.rules = rules
        self._facts = facts
        self._presence = presence
        self._conflict = ""
        self._best: Mapping[str, MatchingAssignment] | None = None
        self._limited = LimitedLog(log)

    async def managed_but(self, name: str) -> set[str] | None:
        """
        Return the keys of the resources that all other assignments manage, including refused assignments; None if unknown.
        """
        if self._best is None:
            return None
        applied = {
            one: matching.known
            for one, matching in self._best.items()
            if matching.known.assignment.mode == "apply"
        }
        facts = await self._facts.current()
        managed = await self._resources.managed(applied, facts, facts_digest(facts))
        others = applied.keys() - {name}
        return set().union(*(managed[one] for one in others)) if others <= managed.keys() else None

    async def refused(self, best: Mapping[str, MatchingAssignment]) -> dict[str, Refusal]:
        """
        Return the assignments refused because another one manages the same resource. Plans and expired assignments do not
        manage resources.
        """
        self._best = best
        applied = {
            name: one.known
            for name, one in best.items()
            if one.refusal is None
            and one.known.assignment.mode == "apply"
            and self.rules.deadline_refusal(one.known) is None
            and self.rules.policy_refusal(one.known, "apply") is None
        }
        refused: dict[str, Refusal] = {}
        if len(applied) > 1:
            facts = await self._facts.current()
            refused = conflicts(await self._resources.managed(applied, facts, facts_digest(facts)))
        sentences = sorted({str(one) for one in refused.values()})
        sentence = "; ".join(sentences)
        if sentence != self._conflict:
            self._conflict = sentence
            self._presence.set_warning("assignments", sentence)
            self._presence.request_heartbeat()
            for one in sentences:
                self._limited.error("assignments are in conflict", extra={"reason": one})
        return refused


class AssignmentLoops:
    """
    The convergence loops of one node's assignments.

    Args:
        make_source: Creates the source for the assignments of a name.
        make_loop: Creates the loop of a source.
        records: The records stored for each source.
    """

    def __init__(
        self, make_source: Callable[[str], AssignmentSource], make_loop: MakeLoop, records: SourceRecords
    ) -> None:
        self._make_source = make_source
        self._make_loop = make_loop
        self._records = records
        self._loops: dict[str, tuple[AssignmentSource, ConvergenceLoop, asyncio.Task[None]]] = {}
        self._endings: dict[str, asyncio.Task[None]] = {}
        self._limited = LimitedLog(log)

    async def once(self) -> list[ConvergenceResult]:
        """Converge on all assignments now, even if they are not due; return their results."""
        requests = [loop.triggers.request() for _, loop, _ in self._loops.values()]
        return list(await asyncio.gather(*requests))

    def assign(self, name: str, wanted: MatchingAssignment, group: asyncio.TaskGroup) -> None:
        """Apply this assignment from now on; a new name gets a loop, which runs in the group."""
        if name not in self._loops:
            source = self._make_source(name)
            loop = self._make_loop(source)
            task = group.create_task(loop.run(after=self._endings.pop(name, None)), name=f"assignment:{name}")
            self._loops[name] = source, loop, task
        self._loops[name][0].assign(wanted)

    def end_others(self, names: Collection[str], group: asyncio.TaskGroup) -> None:
        """End the loops of all names except these."""
        for name in [name for name in self._loops if name not in names]:
            self._limited.info("an assignment has ended", extra={"assignment": name})
            source, _, task = self._loops.pop(name)
            task.cancel()
            self._endings[name] = group.create_task(self._end(source, task), name=f"assignment:{name}:end")

    async def forget_others(self, names: Collection[str]) -> None:
        """Delete the records of earlier processes about all names except these."""
        await self._records.keep_only(SCOPE, [f"{SCOPE}{name}" for name in names])
        await self._records.keep_drift_only(SCOPE, names)

    async def _end(self, source: AssignmentSource, task: asyncio.Task[None]) -> None:
        """Delete the records of a removed assignment, because a new one may get the same name."""
        await asyncio.wait({task})
        await self._records.forget(source.scope, source.drift)
        if self._endings.get(source.name) is asyncio.current_task():
            del self._endings[source.name]


class AssignmentReconciler:
    """
    Runs the loops of one agent's assignments.

    Attributes:
        states: The state of each assignment that applies to this node.
    """

    def __init__(
        self,
        reader: AssignmentReader,
        selection: AssignmentSelection,
        conflicts: ConflictingAssignments,
        content: AssignmentContent,
        loops: AssignmentLoops,
        states: AssignmentStatus,
    ) -> None:
        """
        Args:
            reader: Reads the assignments.
            selection: Selects the assignments that apply.
            conflicts: Finds the assignments that are refused.
            content: Fetches their manifests and data.
            loops: The loops that apply the assignments.
            states: Their states.
        """
        self.states = states
        self._reader = reader
        self._selection = selection
        self._conflicts = conflicts
        self._content = content
        self._loops = loops
        self._is_up = asyncio.Event()
        self._saving: asyncio.Task[None] | None = None
        self._has_swept = False
        self._limited = LimitedLog(log)

    def open(self) -> None:
        """Read the files of an earlier process. Blocking."""
        cache = self._selection.cache
        cache.open()
        self.states.open()
        self._content.open(map(self._selection.current, cache.known.values()))

    def read_again(self) -> None:
        """Read again, because the assignments in the bucket or the scopes of the node may have changed."""
        self._reader.read_again()

    def decide_again(self) -> None:
        """Decide again, because facts, the policy or the disabled state of the node may have changed."""
        self._reader.wake.set()

    async def once(self) -> list[ConvergenceResult]:
        """Converge on all assignments now, even if they are not due; return their results."""
        await self._is_up.wait()
        return await self._loops.once()

    async def run(self) -> None:
        """Converge until cancelled."""
        self.states.publish()
        async with asyncio.TaskGroup() as group:
            await self._reader.wait_first()
            while True:
                self._reader.wake.clear()
                try:
                    await self._reader.read()
                    await self._decide(group)
                except Exception:  # noqa: BLE001 - one failure must not end all assignments
                    self._limited.exception("assignments could not be checked")
                await self.states.save()
                self._content.is_settled = True
                self._is_up.set()
                self._save_later(group)
                await self._reader.wait(depends_on_facts=self._selection.depends_on_facts)

    def _save_later(self, group: asyncio.TaskGroup) -> None:
        is_idle = self._saving is None or self._saving.done()
        if is_idle and self._content.is_dirty:
            self._saving = group.create_task(self._content.save_later(), name="assignments:save")

    async def _decide(self, group: asyncio.TaskGroup) -> None:
        """Decide which assignments apply, and give each loop its assignment."""
        best = await self._selection.best()
        await self._content.keep_needed(best)
        refused = await self._conflicts.refused(best) | self._content.lost(best)
        self.states.retain(set(best), set(self._selection.cache.known))
        self._loops.end_others(best.keys(), group)
        for name, candidate in best.items():
            if name in refused:
                candidate = MatchingAssignment(known=candidate.known, refusal=refused[name])
            self._loops.assign(name, candidate, group)
        if self._reader.has_read and not self._has_swept:
            self._has_swept = True
            await self._loops.forget_others(best.keys())


class AssignmentReleases:
    """
    Accepts the revisions of assignments that rollouts release to one node.

    Args:
        selection: Selects the assignments that apply.
        conflicts: Finds the assignments that are refused.
        content: Fetches their manifests and data.
        states: Their states.
        records: The records stored for each source.
        decide_again: Called when a revision was released, and when its run has ended; it must not block.
    """

    def __init__(
        self,
        selection: AssignmentSelection,
        conflicts: ConflictingAssignments,
        content: AssignmentContent,
        states: AssignmentStatus,
        records: SourceRecords,
        decide_again: Callable[[], None],
    ) -> None:
        self._selection = selection
        self._conflicts = conflicts
        self._content = content
        self._states = states
        self._records = records
        self._decide_again = decide_again

    async def release(self, stage: AssignmentStage) -> ReleasedRun:
        """
        Accept the next revision of an assignment. The node converges on it from now on; its loop waits until this run has
        ended.

        Raises:
            Refusal: The assignment has no such revision, or would not be applied here.
            BusError: This node does not have the revision yet, and cannot read it now.
        """
        known = await self._selection.find_staged(stage)
        if known is None:
            raise Refusal(
                SUPERSEDED, f"{stage.key}: no such revision to roll out; it was assigned again or removed"
            )
        name, mode = known.assignment.name, known.assignment.mode
        best = await self._selection.best(stage)
        refusal = (
            _outranked(known, best.get(name))
            or (await self._conflicts.refused(best) | self._content.lost(best)).get(name)
            or self._conflicts.rules.policy_refusal(known, mode)
        )
        if refusal is not None:
            raise refusal
        await self._content.save()
        self._states.set_released(stage.key, stage.number)
        await self._states.save()
        # Call this before the fetch, so that data that this revision pins is not removed as old.
        await self._content.keep_needed(best)
        drift = self._records.make_drift(f"{SCOPE}{name}")
        await drift.open()
        run = RolloutRun(known, drift, self._decide_again)
        self._states.rollout_runs[stage.key] = run
        self._decide_again()
        return ReleasedRun(
            fetch=partial(self._content.fetch_released, known),
            data=known.assignment.data,
            pins=known.pins,
            scope=drift.source,
            judge=drift.judge,
            start_with=run.start_with,
            close=run.close,
        )


def _outranked(known: StoredAssignment, best: MatchingAssignment | None) -> Refusal | None:
    """Return why a released revision does not apply here; None if it does."""
    name = known.assignment.name
    if best is None:
        return Refusal("target.mismatch", f"the assignment {name} no longer selects this node")
    if best.known.key != known.key:
        return Refusal(OUTRANKED, f"another assignment named {name} applies here: {best.known.key}")
    return best.refusal
