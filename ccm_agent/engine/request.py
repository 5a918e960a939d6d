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

The event is masked; `content` is still complete (`masking.shorten_for_bus` shortens them). A returned
awaitable is awaited before the run continues; its error ends the run.
"""

OnDiff = Callable[[ResourceDiff, ResourceDiff], None]
"""
Called with the diff of an event, before the event, and with the same diff as this process's user may see it: with the lines of
files that the user can read and others cannot. The second one is for a terminal; it must not be stored or sent.
"""

OnStart = Callable[[SessionStart], Awaitable[None] | None]
"""Called once, after the manifest was loaded and checked and before anything is changed."""

OnNote = Callable[[str, str, Mapping[str, object]], None]
"""Called with notes that are not outcomes: a level ("info", "warning", "error"), a constant phrase and its fields."""

OnResource = Callable[[str, int, int], None]
"""Called when a resource of the outermost manifest begins: `type#name`, its position (from 1) and the number of resources."""


PAUSED = "run.paused"
"""Code of a summary that is not final: the run paused between two resources, and another process will continue it."""


class StopFlag:
    """
    Asks a run to finish the current resource, and to skip the others or leave them to another process.

    Attributes:
        reason: Why the run must stop; "" if it need not.
        code: STOPPED_CODE, or the code of another cause than an operator.
        by: The operator who stopped it; "" for the agent itself.
        is_kill: Programs of the current resource are killed too.
        is_pause: The remaining resources are left to another process and get no outcome here.
        has_taken_effect: The run skipped something because of it. A run that was already at its end ends normally.
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
        """Stop the run. The summary takes reason, code and author of the first call. A later call may add a kill."""
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
        """Pause before the next resource. If the run was also asked to stop, it stops."""
        self.is_pause = True

    @property
    def is_set(self) -> bool:
        """Whether a stop was requested."""
        return bool(self.reason)


class ManifestSource(Struct, frozen=True, kw_only=True):
    """
    Where a manifest comes from.

    Attributes:
        path: Its file, absolute or relative to the process; "" when there is only text.
        text: Its text; None reads the file.
        directory: Where relative sources and children are looked up; "" takes the file's directory.
        name: Its name in log lines and events; "" takes the path.
        digest: SHA-256 (hex) of the manifest or bundle as requested; "" computes that of the text.
        module_path: Where templates of a TinyCM manifest are: an absolute directory or an http(s) URL; "" takes the directory.
        data_revisions: Revision of each hiera document that is part of `ApplyOptions.data`, by URL.
        undo: What undoes a run, instead of a manifest; None: there is a manifest.
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
        noop: Change nothing; report what would change.
        checks_planned: A noop also runs the health checks of resources that it would change, as Choria CCM does. A run that the
            node's policy restricts does not.
        health_check_only: Run the health checks and nothing else.
        hiera: URLs of hiera documents (file, `file://`, `kv://`, `http(s)://`) that override the manifest's own data; later ones
            win.
        keeps_hiera: These documents also override the data of a child manifest whose `apply` resource gives it data, as the data
            of an agent do. Otherwise they do not, as with `ccm apply --data`.
        pins: Buckets whose documents are read as of a revision of the bucket: revisions by bucket name.
        data: Resolved data that override all of these, in every child too.
        facts: All facts of this node; None gathers them on first access.
        more_facts: Merged over the facts: from `--facts` and `--fact`, or from an operator.
        environ: The variables that expressions see as `Environ`; None: none.
        cause, requester, node, run: For the session's events; see `SessionStart`.
        session: Directory of a session store; "" keeps the session in memory.
        on_start, on_event, on_resource, on_note: Called during the run.
        on_secret: Called with the name and the revision of each sealed secret that the run opens, in any thread.
        stop: Set by the caller to stop the run.
        done: The events of an earlier process of this run, in order. These resources are not applied or reported again, but they
            count.
        metrics: Measures health checks and data lookups; None: not measured.
        grant: What the node's policy allows this run; None: not restricted.
        own_hiera: Those of `hiera` that come from the node's own configuration, which the grant does not limit.
        is_literal: The properties of `ensure` are taken as they are: templates in them are not rendered.
        scope: The owner of pending refreshes, such as "assignment web": later runs in the same scope make them. "" takes the
            manifest's name, or its absolute path.
        diff: Events say what changes; see `model.resource_diff`.
        on_diff: Gets the diffs of private files for the terminal of the user who runs this; None: they are not made.
        selection: The resources that the run applies; None: all. The others are skipped.
        undo_log: Keeps what the run changes, so that it can be undone; None: it is not kept.
        lock: Called with the references of a resource: why an operator locked it on this node, "" if it is not locked.
        managed_elsewhere: Returns what the other sources of this node manage, as keys of `Engine.managed`; None: it is not known,
            so nothing is pruned. None instead of a function: there are no others.
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
    Applies manifests and single resources. `engine.run.LocalEngine` is the real one, `app.build_engine()` makes it.

    The caller must not start two runs at a time.
    """

    async def apply(self, source: ManifestSource, options: ApplyOptions) -> SessionSummary:
        """
        Apply a manifest.

        The summary's `state` is "stable", "changed", "failed", or "stopped" if an operator stopped the run before its end. If the
        run was stopped or ended early, `reason` and `code` say why. Resources that were not reached are skipped (stopped) or have
        no event (ended early, or paused: PAUSED). The publisher sets `events_sent` and `number`; here they are 0.

        Raises:
            InputError: The manifest, its data or a template is invalid. Nothing was changed, and there is no event.
        """
        ...

    async def managed(self, source: ManifestSource, options: ApplyOptions) -> dict[str, str]:
        """
        Return `type#name` of each resource that a manifest and its children would manage here. Nothing is read or changed.

        The keys compare the resources of two manifests, also if a secret in a name is masked for one of them only.

        Resources that `control` excludes are left out, and so is a child that does not exist yet.

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
