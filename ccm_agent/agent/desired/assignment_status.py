"""
How this node stands to each assignment: told when it changes, and on disk, so that a restart does not make a lie of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.agent.cache.state_file import load_state, save_state
from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import Clock
from ccm_agent.model.wire import RIGHT, WAITING, AssignmentState

log = logging.getLogger(__name__)


class _Kept(Struct, kw_only=True):
    node: str
    states: dict[str, AssignmentState] = {}
    begun: dict[str, int] = {}


class AssignmentStatus:
    """
    The states of one node.

    Attributes:
        now: By name, with the last run of each and when it is tried again.
        told: The same for everybody: a run that found what the one before had found is not told, so it costs nothing.
    """

    def __init__(
        self,
        node: str,
        path: Path,
        clock: Clock,
        on_change: Callable[[bool], None],
        pending: Callable[[str], list[str]] = lambda _name: [],
    ) -> None:
        """
        Nothing is read yet.

        Args:
            node: The node.
            path: Where states are kept.
            clock: What time it is.
            on_change: Called when `told` has changed; with whether that should be known soon.
            pending: What is to be refreshed under an assignment, as the last run or an earlier process left it.
        """
        self.now: dict[str, AssignmentState] = {}
        self.told: dict[str, AssignmentState] = {}
        self._begun: dict[str, int] = {}
        self._node = node
        self._path = path
        self._clock = clock
        self._on_change = on_change
        self._pending = pending
        self._is_dirty = False
        self._lock = asyncio.Lock()

    def open(self) -> None:
        """Take what an earlier process knew. Blocking."""
        kept = load_state(self._path, _Kept)
        if kept is not None and kept.node == self._node:
            states = {name: self._with_pending(name, state) for name, state in kept.states.items()}
            self.now, self.told, self._begun = states, dict(states), kept.begun

    def _with_pending(self, name: str, state: AssignmentState) -> AssignmentState:
        """A state as it is now: a process that was killed has not said what it left to be refreshed."""
        found = self._pending(name)
        state = replace(state, refresh_pending=found)
        if not found or state.state not in RIGHT:
            return state
        return replace(state, state=WAITING, reason=f"a refresh is pending: {', '.join(found)}")

    def tell(self) -> None:
        """Say what an earlier process left, if it left anything."""
        if self.told:
            self._on_change(True)

    def has_begun(self, key: str, revision: int) -> bool:
        """A run with this revision has begun here, be it before a restart."""
        return self._begun.get(key) == revision

    def begin(self, key: str, revision: int) -> None:
        """A run with this revision begins."""
        if self._begun.get(key) != revision:
            self._begun[key] = revision
            self._is_dirty = True

    def put(self, name: str, state: AssignmentState, *, soon: bool = True) -> None:
        """
        The node stands so to an assignment; `since` and `refresh_pending` are filled in here.

        Args:
            name: Of the assignment.
            state: How.
            soon: Everybody should know at once; else they do with the next thing that is told.
        """
        was = self.told.get(name)
        is_same = was is not None and (was.key, was.revision, was.state) == (
            state.key,
            state.revision,
            state.state,
        )
        since = was.since if was is not None and is_same else self._clock.now()
        state = replace(state, since=since, refresh_pending=self._pending(name))
        self.now[name] = state
        told = replace(state, next_time=None) if state.state in RIGHT else state
        if was is not None and told.state in RIGHT:
            # a run that found again what was found before is no news
            told = was if replace(told, run=was.run) == was else told
        if told != was:
            self.told[name] = told
            self._is_dirty = True
            self._on_change(soon)

    def keep_only(self, names: set[str], keys: set[str]) -> None:
        """Forget assignments that do not mean this node any more, and what has begun of keys that are gone."""
        gone = [name for name in self.now if name not in names]
        for name in gone:
            del self.now[name]
            self.told.pop(name, None)
        self._begun = {key: number for key, number in self._begun.items() if key in keys}
        if gone:
            self._is_dirty = True
            self._on_change(True)

    async def keep(self) -> None:
        """Write down what has changed."""
        async with self._lock:
            if not self._is_dirty:
                return
            self._is_dirty = False
            kept = _Kept(node=self._node, states=dict(self.told), begun=dict(self._begun))
            try:
                await save_state(self._path, kept)
            except FileError as err:
                log.warning("the states of assignments are not kept on disk", extra={"reason": str(err)})
