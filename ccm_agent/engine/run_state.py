"""
The state that all manifests of one run share: session, facts, masker, the node's policy, and whether the run must stop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ccm_agent.engine.deps import EngineDeps
from ccm_agent.engine.load import MakeExpressions
from ccm_agent.engine.prefetch import HostChanges
from ccm_agent.engine.refreshes import Refreshes
from ccm_agent.engine.request import ApplyOptions, StopFlag
from ccm_agent.engine.secrets import Secrets
from ccm_agent.engine.selection import Exclusions
from ccm_agent.engine.undo import RunUndo
from ccm_agent.manifest.expressions import reads_host
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.resources.contract import ResolvedResource
from ccm_agent.resources.registry import ProviderRegistry
from ccm_agent.sessions.memory import MemorySession
from ccm_agent.sessions.refresh_log import RefreshLog

if TYPE_CHECKING:
    from ccm_agent.engine.diffs import RunDiffs
    from ccm_agent.engine.permission import Permission
    from ccm_agent.model.ports import Runner

POLL_S = 0.5
"""The interval at which a wait checks whether the run ends, in seconds."""


class SharedRunState:
    """The state that all manifests of one run share."""

    def __init__(
        self,
        deps: EngineDeps,
        options: ApplyOptions,
        session: MemorySession,
        facts: Mapping[str, Any],
        *,
        is_single: bool = False,
    ) -> None:
        self.deps = deps
        self.options = options
        self.session = session
        self.facts = facts
        self.runner = _runner(deps, options)
        self.registry = ProviderRegistry(deps.catalog, deps.probe)
        self.changes = HostChanges()
        self.secrets = Secrets(deps.secrets, deps.open_secret, options.on_secret)
        self.secrets.learn_variables(options.environ or {})
        self.masker = self.secrets.masker
        self.outer_data: Mapping[str, Any] = {}
        self.is_paused_midway = False
        """Whether the run was paused before its end. Another process continues it."""
        self._is_resumable = not is_single
        """Whether another process may continue the run after a pause. A run of a single resource always completes here."""
        self._done: dict[tuple[str, str, str], deque[TransactionEvent]] = {}
        for event in options.done:
            self._done.setdefault((event.parent, event.type, event.name), deque()).append(event)
        self._warm: set[int] = set()
        self.permission = _permission(deps, options)
        """The node's policy for this run; None if unrestricted."""
        if self.permission is not None and self.permission.is_restricted:
            # otherwise, an operator who may only plan could write a manifest that reveals a secret character by character
            self.secrets.refuse(self.permission.refuse_secret)
        self.refreshes = self.refreshes_in(None)
        self.undo = RunUndo(deps.files, options, self.masker, self.secrets)
        self.exclusions = Exclusions(options, self.undo, self.masker, self.note)
        confine = self.permission.confine if self.permission else None
        self.expressions = MakeExpressions(
            deps.make_expressions, facts, options.environ or {}, self.secrets, confine
        )

    @cached_property
    def diffs(self) -> RunDiffs:
        """Return the object that creates the run's diffs."""
        from ccm_agent.engine.diffs import run_diffs

        return run_diffs(self.options, self.masker)

    def note(self, level: str, message: str, **fields: object) -> None:
        """Report a note of the run that is not a resource's outcome."""
        if self.options.on_note is not None:
            self.options.on_note(level, self.masker.text(message), self.masker.value(fields))

    def refreshes_in(self, kept: RefreshLog | None, *, is_session: bool = False) -> Refreshes:
        """Return the pending refreshes of this run in a log; see `Refreshes`."""
        return Refreshes(
            kept,
            session=self.session,
            masker=self.masker,
            clock=self.deps.clock,
            note=self.note,
            is_plan=self.options.noop or self.options.health_check_only,
            is_session=is_session,
        )

    def takes_time(self, text: str) -> bool:
        """
        Whether rendering a text may read files or facts of the host, and so must happen in a thread.

        Facts are gathered on first access, so only the first text that uses a fact is slow.
        """
        if reads_host(text):
            return True
        if "acts" not in text or hash(text) in self._warm:
            return False
        self._warm.add(hash(text))
        return True

    def done_before(self, parent: str, declared: ResolvedResource) -> TransactionEvent | None:
        """Return the event of a resource that an earlier process of this run applied. None if that process did not reach it."""
        if not self._done:
            return None
        # events on disk are masked
        name = self.masker.name
        waiting = self._done.get((name(parent), declared.kind.name, name(declared.wanted.name)))
        return waiting.popleft() if waiting else None

    @property
    def is_paused(self) -> bool:
        """Whether the remaining resources are left to another process."""
        stop = self.options.stop
        return stop is not None and stop.is_pause and not stop.reason

    @property
    def stop(self) -> StopFlag | None:
        """The flag that stops the run. None if the run need not stop."""
        stop = self.options.stop
        return stop if stop is not None and stop.is_set else None

    def is_ending(self) -> bool:
        """Whether the run ends before its last resource or is left to another process."""
        return self.stop is not None or self.is_paused

    async def wait(self, seconds: float) -> bool:
        """
        Wait for the next attempt of a resource. Return False as soon as the run is stopped or paused.

        A paused run leaves the resource to the process that continues the run. That process starts with the first attempt.
        """
        clock = self.deps.clock
        end = clock.monotonic() + seconds
        while not self.is_ending():
            left = end - clock.monotonic()
            if left <= 0:
                return True
            await clock.sleep(min(left, POLL_S))
        if self.stop is not None:
            self.stop.has_taken_effect = True
        elif self._is_resumable:
            self.is_paused_midway = True
        return False

    @property
    def is_stopped(self) -> bool:
        """Whether the run was stopped and skipped something because of the stop."""
        return self.stop is not None and self.stop.has_taken_effect


def _runner(deps: EngineDeps, options: ApplyOptions) -> Runner:
    if options.stop is None:
        return deps.runner
    from ccm_agent.engine.stoppable_runner import StoppableRunner

    return StoppableRunner(deps.runner, options.stop)


def _permission(deps: EngineDeps, options: ApplyOptions) -> Permission | None:
    if options.grant is None:
        return None
    from ccm_agent.engine.permission import Permission

    return Permission(options.grant, deps.resolve_path)
