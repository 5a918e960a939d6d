"""What the engine is asked, and what it promises: the words between it and those who call it (command line, agent)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from ccm_agent.model.outcome import SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.wire import STOPPED_CODE, NodeState

if TYPE_CHECKING:
    from ccm_agent.metrics.outcomes import OutcomeMetrics
    from ccm_agent.policy.grant import Grant

OnEvent = Callable[[TransactionEvent], Awaitable[None] | None]
"""
Told of each resource as soon as its outcome stands, before the next one begins.

The event is masked already, `content` and `environment` stand as written: `mask.for_bus` shortens those. An awaitable is awaited
before the run goes on; an error from it breaks the run off.
"""

OnStart = Callable[[SessionStart], Awaitable[None] | None]
"""Told once, when the manifest is loaded and right and nothing has been changed yet."""

OnNote = Callable[[str, str, Mapping[str, object]], None]
"""Told a level ("info", "warning", "error"), a constant phrase and its fields: what is not the outcome of a resource."""

OnResource = Callable[[str, int, int], None]
"""Told `type#name`, its place (from 1) and the number of resources, when a resource of the manifest itself begins."""


PAUSED = "run.paused"
"""Code of a summary that ends nothing: the run was broken off between two resources, for another process to go on with."""


class StopFlag:
    """
    Asks a run to finish the resource in hand, and to skip the rest or to leave it to another process.

    Attributes:
        reason: Why it is to stop; "" while it is not.
        code: STOPPED_CODE, or the code of what ends the run besides an operator.
        by: The operator who stops it; "" for the agent itself.
        is_kill: Programs of the current resource are ended, too.
        is_pause: The rest is left: it gets no outcome here.
        has_taken_effect: The run left something out because of it. A run that had nothing left to do ends as it would have.
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
        """Stop; the first reason, its code and its author become the summary's. A stop may become a kill later."""
        if not self.reason:
            self.reason, self.code, self.by = reason, code, by
        if is_kill and not self.is_kill:
            self.is_kill = True
            for hook in self._on_kill:
                hook()

    def on_kill(self, hook: Callable[[], object]) -> Callable[[], None]:
        """Call a function when the run is killed; what is returned ends that."""
        self._on_kill.append(hook)
        return lambda: self._on_kill.remove(hook)

    def conclude(self, summary: SessionSummary) -> None:
        """Say in a summary that the run was stopped, if that had an effect."""
        if self.has_taken_effect:
            summary.reason, summary.code, summary.stopped_by = self.reason, self.code, self.by
            is_by_operator = self.code == STOPPED_CODE
            summary.state = (NodeState.STOPPED if is_by_operator else NodeState.FAILED).value

    def pause(self) -> None:
        """Break off before the next resource; a run that is asked to stop is stopped all the same."""
        self.is_pause = True

    @property
    def is_set(self) -> bool:
        """Somebody has asked to stop."""
        return bool(self.reason)


class ManifestSource(Struct, frozen=True, kw_only=True):
    """
    A manifest.

    Attributes:
        path: Its file, absolute or relative to the process; "" when there is only text.
        text: Its text; None reads the file.
        directory: Where relative sources and children are looked up; "" takes the file's directory.
        name: What log lines and events call it; "" takes the path.
        digest: SHA-256 (hex) of the manifest or bundle as asked for; "" computes that of the text.
        data_revisions: Revision of each hiera document that stands in `ApplyOptions.data`, by URL.
    """

    path: str = ""
    text: bytes | None = None
    directory: str = ""
    name: str = ""
    digest: str = ""
    data_revisions: Mapping[str, int] = {}


class ApplyOptions(Struct, frozen=True, kw_only=True):
    """
    How to apply.

    Attributes:
        noop: Change nothing, say what would be changed.
        health_check_only: Run the health checks and nothing else.
        hiera: URLs of hiera documents (file, `file://`, `kv://`, `http(s)://`) over the manifest's own data, later ones win.
        keeps_hiera: Those documents lie over a child manifest's data even where its `apply` resource gives it data, as the data
            of an agent does; without it they do not reach such a child, as with `ccm apply --hiera`.
        pins: Buckets whose documents are read as they were when the bucket stood at a revision, by name.
        data: Resolved data over all of those, in every child too.
        facts: All facts of this node; None gathers them when something asks for one.
        more_facts: Merged over the facts: what `--facts` and `--fact`, or an operator, said.
        environ: What expressions see as `Environ`; None: nothing.
        cause, requester, node, run: For the session's events; see `SessionStart`.
        session: Directory of a session store; "" keeps the session in memory.
        on_start, on_event, on_resource, on_note: Told as the run goes.
        stop: Set by others to stop the run.
        done: What an earlier process did of this run, in its order: those resources are not touched or told again, but count.
        metrics: Counts what takes time beside the resources: checks and data. None: nobody counts.
        grant: What the node's policy lets this run touch; None: nothing binds it.
        own_hiera: Those of `hiera` that the node's own configuration names, which the grant says nothing about.
        scope: Whose refreshes are pending, such as "assignment web": later applies in the same scope run them. "" takes the
            manifest's name, or its absolute path.
    """

    noop: bool = False
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
    stop: StopFlag | None = None
    done: Sequence[TransactionEvent] = ()
    metrics: OutcomeMetrics | None = None
    grant: Grant | None = None
    own_hiera: frozenset[str] = frozenset()
    scope: str = ""


class Engine(Protocol):
    """
    Applies manifests and single resources. `engine.run.LocalEngine` is the real one, `app.build_engine()` makes it.

    One run at a time: whoever calls sees to that.
    """

    async def apply(self, source: ManifestSource, options: ApplyOptions) -> SessionSummary:
        """
        Apply a manifest.

        The summary's `state` is "stable", "changed", "failed", or "stopped" if an operator stopped the run before its end. When
        the run was stopped or broke off midway, its `reason` says so, with `code`; resources that were not reached are skipped
        (stopped) or have no event (broke off, or paused: PAUSED).
        `events_sent` is left at 0, `number` too: they belong to whoever publishes.

        Raises:
            InputError: The manifest, its data or a template cannot be used: nothing was changed, no event was made.
        """
        ...

    async def managed(self, source: ManifestSource, options: ApplyOptions) -> set[str]:
        """
        `type#name` of what a manifest would manage here, in its children too; nothing is looked at or changed.

        What its control keeps from being managed is left out, and so is a child that is not there yet.

        Raises:
            InputError: The manifest, its data or a template cannot be used.
        """
        ...

    async def ensure(
        self, type_name: str, properties: Mapping[str, Any], options: ApplyOptions
    ) -> TransactionEvent:
        """
        Apply one resource; `options.on_event` is told too, `on_start` is not.

        Raises:
            InputError: The type is unknown, or the properties cannot be used.
            NoProviderError: Nothing can manage the type here.
        """
        ...
