"""The engine's interface for its callers, the command line and the agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from ccm_agent.model.outcome import STOPPED_CODE, SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.records.undo import UndoLog, UndoRecord
from ccm_agent.model.resource_diff import ResourceDiff

if TYPE_CHECKING:
    from ccm_agent.metrics.outcomes import OutcomeMetrics
    from ccm_agent.model.selection import ResourceSelection
    from ccm_agent.policy.grant import Grant

OnEvent = Callable[[TransactionEvent], Awaitable[None] | None]
"""
Called with the event of each resource, before the next one begins.

The event is masked, but its `content` is complete; `masking.shorten_for_bus` shortens it. A returned awaitable is awaited
before the run continues. An error in it ends the run.
"""

OnDiff = Callable[[ResourceDiff, ResourceDiff], None]
"""
Called with the diff of an event before OnEvent is called. The second argument is the same diff for the user of this
process. It includes lines of files that only this user can read. It is meant for a terminal and must not be stored
or sent.
"""

OnStart = Callable[[SessionStart], Awaitable[None] | None]
"""Called once, after the manifest was loaded and checked and before anything is changed."""

OnNote = Callable[[str, str, Mapping[str, object]], None]
"""Called with notes that are not outcomes: a level ("info", "warning", "error"), a constant phrase and its fields."""

OnResource = Callable[[str, int, int], None]
"""Called when a resource of the outermost manifest begins: `type#name`, its position (from 1) and the number of resources."""


PAUSED = "run.paused"
"""The code of a summary that is not final: the run paused between two resources, and another process will continue it."""


class StopFlag:
    """
    Requests that a run finish the current resource and then skip the others or leave them to another process.

    Attributes:
        reason: The reason why the run must stop; "" if it need not stop.
        code: STOPPED_CODE if an operator stopped the run, otherwise the code of the cause.
        by: The operator who stopped the run; "" if the agent itself stopped it.
        is_kill: Whether programs of the current resource are also killed.
        is_pause: Whether the remaining resources are left to another process and get no outcome here.
        has_taken_effect: Whether the run skipped something because of the stop. A run that was already at its end ends
            normally.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.code = ""
        self.by = ""
        self.is_kill = False
        self.is_pause = False
        self.has_taken_effect = False
        self._on_kill: list[Callable[[], object]] = []

    def set(
        self, reason: str = "stopped", *, code: str = STOPPED_CODE, by: str = "", is_kill: bool = False
    ) -> None:
        """Stop the run. The summary uses the reason, code and author of the first call. A later call may add a kill."""
        if not self.reason:
            self.reason, self.code, self.by = reason, code, by
        if is_kill and not self.is_kill:
            self.is_kill = True
            for hook in self._on_kill:
                hook()

    def on_kill(self, hook: Callable[[], object]) -> Callable[[], None]:
        """Register a function to call when the run is killed; return a function that removes it."""
        self._on_kill.append(hook)
        return lambda: self._on_kill.remove(hook)

    def record_in(self, summary: SessionSummary) -> None:
        """Write reason and code into a summary, if the stop had an effect."""
        if self.has_taken_effect:
            from ccm_agent.model.wire import NodeState

            summary.reason, summary.code, summary.stopped_by = self.reason, self.code, self.by
            is_by_operator = self.code == STOPPED_CODE
            summary.state = (NodeState.STOPPED if is_by_operator else NodeState.FAILED).value

    def pause(self) -> None:
        """Pause before the next resource. If a stop was also requested, the run stops instead."""
        self.is_pause = True

    @property
    def is_set(self) -> bool:
        """Whether a stop was requested."""
        return bool(self.reason)


class ManifestSource(Struct, frozen=True, kw_only=True):
    """
    The source of a manifest.

    Attributes:
        path: The manifest's file, absolute or relative to the process; "" if there is only text.
        text: The manifest's text. With None, the file is read.
        directory: The base of relative sources and children; "" means the file's directory.
        name: The manifest's name in log lines and events; "" means the path.
        digest: SHA-256 (hex) of the manifest or bundle as requested; "" means the digest of the text.
        module_path: The location of a TinyCM manifest's templates: an absolute directory or an http(s) URL; "" means
            `directory`.
        data_revisions: The revision of each hiera document that is part of `ApplyOptions.data`, by URL.
        undo: The record of an undo, used in place of a manifest; None if there is a manifest.
    """

    path: str = ""
    text: bytes | None = None
    directory: str = ""
    name: str = ""
    digest: str = ""
    module_path: str = ""
    data_revisions: Mapping[str, int] = {}
    undo: UndoRecord | None = None


class ApplyOptions(Struct, frozen=True, kw_only=True):
    """
    Options of one run.

    Attributes:
        noop: Whether to change nothing and report the planned changes.
        checks_planned: Whether a noop also runs the health checks of resources that it would change, as Choria CCM does. A run
            that the node's policy restricts never does.
        health_check_only: Whether to run only the health checks.
        hiera: URLs of hiera documents (file, `file://`, `kv://`, `http(s)://`) that override the manifest's own data. Later
            documents take precedence.
        keeps_hiera: Whether these documents also override the data that an `apply` resource gives to its child manifest. This
            applies to the data of an agent, but not to `ccm apply --data`.
        pins: Revisions by bucket name. Documents of these buckets are read as of that revision.
        data: Resolved data that override all other data, including in every child manifest.
        facts: All facts of this node. With None, they are gathered on first access.
        more_facts: Facts from `--facts` and `--fact` or from an operator, merged over the others.
        environ: The variables that expressions access as `Environ`. None means no variables.
        cause, requester, node, run: Values for the session's events; see `SessionStart`.
        session: The directory of a session store. "" keeps the session in memory.
        on_start, on_event, on_resource, on_note: Called during the run.
        on_secret: Called with the name and revision of each sealed secret that the run opens, possibly in another thread.
        stop: Set by the caller to stop the run.
        done: The events of an earlier process of this run, in order. Their resources are counted, but not applied or reported
            again.
        metrics: Measures health checks and data lookups. With None, they are not measured.
        grant: The permissions of this run under the node's policy. None means unrestricted.
        own_hiera: The documents of `hiera` that come from the node's own configuration. The grant does not limit them.
        is_literal: Whether the properties of `ensure` are used literally. Templates in them are then not rendered.
        scope: The owner of pending refreshes, such as "assignment web". Later runs in the same scope perform these refreshes.
            "" means the manifest's name, or its absolute path.
        diff: Whether events include the changes; see `model.resource_diff`.
        on_diff: Receives the diffs of private files for the user's terminal. With None, these diffs are not made.
        selection: The resources that the run applies; the others are skipped. None selects all.
        undo_log: Stores the run's changes for an undo. With None, they are not stored.
        lock: Called with the references of a resource. Returns the reason why an operator locked the resource on this node;
            "" if it is not locked.
        managed_elsewhere: Returns the resources that the other sources of this node manage, as keys of `Engine.managed`. If it
            returns None, they are unknown and nothing is pruned. With None in place of a function, there are no other sources.
    """

    noop: bool = False
    checks_planned: bool = False
    health_check_only: bool = False
    hiera: tuple[str, ...] = ()
    keeps_hiera: bool = False
    pins: Mapping[str, int] = {}
    data: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] | None = None
    more_facts: Mapping[str, Any] = {}
    environ: Mapping[str, str] | None = None
    cause: str = "local"
    requester: str = ""
    node: str = ""
    run: str = ""
    session: str = ""
    on_start: OnStart | None = None
    on_event: OnEvent | None = None
    on_resource: OnResource | None = None
    on_note: OnNote | None = None
    on_secret: Callable[[str, int], None] | None = None
    stop: StopFlag | None = None
    done: Sequence[TransactionEvent] = ()
    metrics: OutcomeMetrics | None = None
    grant: Grant | None = None
    own_hiera: frozenset[str] = frozenset()
    is_literal: bool = False
    scope: str = ""
    diff: bool = False
    on_diff: OnDiff | None = None
    selection: ResourceSelection | None = None
    undo_log: UndoLog | None = None
    lock: Callable[[Sequence[str]], str] | None = None
    managed_elsewhere: Callable[[], Awaitable[Collection[str] | None]] | None = None


class Engine(Protocol):
    """
    Applies manifests and single resources. `engine.run.LocalEngine` is the real implementation; `app.build_engine()` creates
    it.

    The caller must not start two runs at the same time.
    """

    async def apply(self, source: ManifestSource, options: ApplyOptions) -> SessionSummary:
        """
        Apply a manifest.

        The summary's `state` is "stable", "changed", "failed", or "stopped" if an operator stopped the run before its end. If
        the run was stopped or ended early, `reason` and `code` give the cause. Resources that a stopped run did not reach are
        skipped. If the run ended early or paused (PAUSED), they have no event. The publisher sets `events_sent` and `number`;
        here they are 0.

        Raises:
            InputError: The manifest, its data or a template is invalid. Nothing was changed, and no event was sent.
        """
        ...

    async def managed(self, source: ManifestSource, options: ApplyOptions) -> dict[str, str]:
        """
        Return `type#name` of each resource that a manifest and its children would manage here. No resource is read or changed.

        The keys allow comparing the resources of two manifests, even if a secret in a name is masked in only one of them.

        Resources that `control` excludes are left out. A child manifest that does not exist yet is also left out.

        Raises:
            InputError: The manifest, its data or a template is invalid.
        """
        ...

    async def ensure(
        self, type_name: str, properties: Mapping[str, Any], options: ApplyOptions
    ) -> TransactionEvent:
        """
        Apply one resource. `options.on_event` is called, `on_start` is not.

        Raises:
            InputError: The type is unknown, or the properties are invalid.
            NoProviderError: No provider can manage the type here.
        """
        ...
