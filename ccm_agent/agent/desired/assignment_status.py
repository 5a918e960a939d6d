"""The states of one node's assignments, the revisions that rollouts released to the node, and the runs of these rollouts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.agent.desired.assignments import CAUSE, StoredAssignment
from ccm_agent.agent.desired.drift import Drift
from ccm_agent.agent.runs.admission import Admission
from ccm_agent.agent.state.presence import NodePresence
from ccm_agent.engine.request import OnStart
from ccm_agent.model.errors import Refusal
from ccm_agent.model.outcome import SessionStart, SessionSummary
from ccm_agent.model.ports import Clock
from ccm_agent.model.wire import COMPLIANT_STATES, WAITING, AssignmentState, NodeState
from ccm_agent.sessions.refresh_store import SCOPE
from ccm_agent.storage.state_file import StateFile


class RolloutRun:
    """
    The run in which a rollout applies a revision of an assignment on this node. The convergence loop continues from its
    result.

    Attributes:
        known: The revision.
        run: The id of the run; "" until it has started.
        drift: The drift that the run found.
        summary: The summary; None until the run has ended, or if it did not complete.
        is_over: Whether the run has ended.
    """

    def __init__(self, known: StoredAssignment, drift: Drift, on_over: Callable[[], None]) -> None:
        self.known = known
        self.run = ""
        self.drift = drift
        self.data_revisions: dict[str, int] = {}
        self.summary: SessionSummary | None = None
        self.is_over = False
        self._on_over = on_over

    def start_with(self, run: str, on_start: OnStart | None) -> OnStart:
        """Return the function to call when the run starts; it also calls `on_start`."""

        def start(session: SessionStart) -> Awaitable[None] | None:
            self.run = run
            self.data_revisions = session.data_revisions
            self.drift.start(session)
            return on_start(session) if on_start is not None else None

        return start

    def close(self, summary: SessionSummary | None) -> None:
        """Record the end of the run. If the run did not complete, the convergence loop applies the revision."""
        is_whole = summary is not None and summary.state in (*COMPLIANT_STATES, NodeState.FAILED)
        self.summary = summary if is_whole else None
        self.is_over = True
        self._on_over()


class _StoredStates(Struct, kw_only=True):
    node: str
    states: dict[str, AssignmentState] = {}
    begun: dict[str, int] = {}
    released: dict[str, int] = {}


class AssignmentStatus:
    """
    The states of one node's assignments.

    Attributes:
        now: The states by name, with the last run of each and the time of the next attempt.
        published: The states for controllers. A run with the same result as the previous one is not published, to save
            messages.
        rollout_runs: By key, the runs of rollouts that apply a revision, until the convergence loop has processed their
            result. They are not kept across a restart: the loop then applies the revision itself.
    """

    def __init__(
        self,
        node: str,
        path: Path,
        clock: Clock,
        on_change: Callable[[Mapping[str, AssignmentState], bool], None],
        pending: Callable[[str], list[str]] = lambda _scope: [],
    ) -> None:
        """
        Args:
            node: The node.
            path: The file of the states.
            clock: Returns the current time.
            on_change: Called when `published` has changed, with its new value and whether the change is urgent.
            pending: Returns the refreshes that the last run, or an earlier process, left pending in a scope.
        """
        self.now: dict[str, AssignmentState] = {}
        self.published: dict[str, AssignmentState] = {}
        self.rollout_runs: dict[str, RolloutRun] = {}
        self._started: dict[str, int] = {}
        self._released: dict[str, int] = {}
        self._node = node
        self._file = StateFile(path, _StoredStates)
        self._clock = clock
        self._on_change = on_change
        self._pending = pending

    def open(self) -> None:
        """Read the states that an earlier process stored. Blocking."""
        kept = self._file.load()
        if kept is not None and kept.node == self._node:
            states = {name: self._with_pending(name, state) for name, state in kept.states.items()}
            self.now, self.published, self._started = states, dict(states), kept.begun
            self._released = kept.released
        self._file.mark_saved(self._stored())

    def _with_pending(self, name: str, state: AssignmentState) -> AssignmentState:
        """Return a state with the current pending refreshes, because a process that was killed has not published them."""
        found = self._pending(f"{SCOPE}{name}")
        state = replace(state, refresh_pending=found)
        if not found or state.state not in COMPLIANT_STATES:
            return state
        return replace(state, state=WAITING, reason=f"a refresh is pending: {', '.join(found)}")

    def publish(self) -> None:
        """Publish the current states immediately."""
        if self.published:
            self._on_change(self.published, True)

    def has_started(self, key: str, revision: int) -> bool:
        """Whether a run with this revision has started on this node, including before a restart."""
        return self._started.get(key) == revision

    def set_started(self, key: str, revision: int) -> None:
        """Record that a run with this revision has started."""
        if self._started.get(key) != revision:
            self._started[key] = revision

    def is_released(self, key: str, revision: int) -> bool:
        """Whether a rollout has released this revision to the node."""
        return self._released.get(key) == revision

    def set_released(self, key: str, revision: int) -> None:
        """Record that a rollout has released this revision to the node."""
        self._released[key] = revision

    def update(self, name: str, state: AssignmentState, *, is_urgent: bool = True) -> None:
        """
        Set the state of an assignment; `since` and `refresh_pending` are filled in here.

        Args:
            name: The name of the assignment.
            state: The state.
            is_urgent: Whether to publish it immediately instead of with the next heartbeat.
        """
        was = self.published.get(name)
        is_same = was is not None and (was.key, was.revision, was.state) == (
            state.key,
            state.revision,
            state.state,
        )
        since = was.since if was is not None and is_same else self._clock.now()
        state = replace(state, since=since, refresh_pending=self._pending(f"{SCOPE}{name}"))
        self.now[name] = state
        published = replace(state, next_time=None) if state.state in COMPLIANT_STATES else state
        if was is not None and published.state in COMPLIANT_STATES:
            # A run with the same result as the previous one is not published.
            published = was if replace(published, run=was.run) == was else published
        if published != was:
            self.published[name] = published
            self._on_change(self.published, is_urgent)

    def retain(self, names: set[str], keys: set[str]) -> None:
        """Forget assignments that no longer apply to this node, and the started revisions of deleted keys."""
        gone = [name for name in self.now if name not in names]
        for name in gone:
            del self.now[name]
            self.published.pop(name, None)
        self._started = {key: number for key, number in self._started.items() if key in keys}
        self._released = {key: number for key, number in self._released.items() if key in keys}
        self.rollout_runs = {key: run for key, run in self.rollout_runs.items() if key in keys}
        if gone:
            self._on_change(self.published, True)

    async def save(self) -> None:
        """Save the changes to disk."""
        await self._file.save(self._stored())

    def _stored(self) -> _StoredStates:
        return _StoredStates(
            node=self._node,
            states=dict(self.published),
            begun=dict(self._started),
            released=dict(self._released),
        )


def publish_states(presence: NodePresence, published: Mapping[str, AssignmentState], is_urgent: bool) -> None:
    """Set the states in a node's record. An urgent change does not wait for the next heartbeat."""
    presence.record.assignments = dict(published)
    if is_urgent:
        presence.request_heartbeat()


LATE = Refusal("run.expired", "its deadline passed before it started here; assign it again to apply it")


class AssignmentRules:
    """
    Decides whether an assignment may be applied on this node now.

    Args:
        admission: The node's disabled state and its policy.
        status: The assignments that have started on this node.
        clock: Returns the current time.
    """

    def __init__(self, admission: Admission, status: AssignmentStatus, clock: Clock) -> None:
        self._admission = admission
        self._status = status
        self._clock = clock

    def refusal(self, known: StoredAssignment, action: str) -> Refusal | None:
        """Return why a run of the assignment cannot start now; None if it can."""
        return self._admission.refusal(action) or self.policy_refusal(known, action)

    def policy_refusal(self, known: StoredAssignment, action: str) -> Refusal | None:
        """Return why the node's policy refuses this action to the assignment; None if it is allowed."""
        return self._admission.policy.refusal(known.asked_by, CAUSE, action)

    def deadline_refusal(self, known: StoredAssignment) -> Refusal | None:
        """Return why the assignment can no longer start here (LATE); None if it can, or if it started in time."""
        deadline = known.assignment.deadline
        if deadline is None or self._clock.now() <= deadline:
            return None
        return None if self._status.has_started(known.key, known.number) else LATE
