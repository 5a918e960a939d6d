"""
The manifests of this node's configuration: one convergence loop for each.

They are applied at the start, on an interval, when they or their external data change, and when a health check is critical. A
manifest that cannot be fetched leaves the last good one in force.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ccm_agent.agent.desired.drift import Drift
from ccm_agent.agent.desired.loop import (
    CHANGE,
    CHECK,
    INTERVAL,
    POLL,
    ConvergenceLoop,
    ConvergenceResult,
    NotPlanned,
    PlannedRun,
    Triggers,
    build_result,
    not_started,
    pause,
)
from ccm_agent.agent.desired.origins import ManifestOrigin, SourcePorts, make_origin
from ccm_agent.agent.desired.timer import IntervalTimer
from ccm_agent.agent.desired.watcher import ExternalData, nothing
from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.errors import (
    BusError,
    BusUnavailableError,
    CcmError,
    DownloadError,
    ManifestError,
    Refusal,
)
from ccm_agent.model.outcome import SessionStart, SessionSummary
from ccm_agent.model.records.policy import LOCAL, LOCAL_FROM_BROKER
from ccm_agent.model.secret import mask_url
from ccm_agent.model.wire import NodeState

if TYPE_CHECKING:
    from ccm_agent.agent.process.context import AgentContext

log = logging.getLogger(__name__)


def source_scope(source: str) -> str:
    """Whose pending refreshes those of a source are; see `ApplyOptions.scope`."""
    return f"source {source}"


class ConfiguredManifest:
    """One manifest of the configuration, as a `Source` of a convergence loop."""

    kind = "source"

    def __init__(
        self, origin: ManifestOrigin, drift: Drift, data: ExternalData, context: AgentContext
    ) -> None:
        self.name = origin.name
        self.scope = source_scope(drift.source)
        self.drift = drift
        self._origin = origin
        self._data = data
        self._context = context
        self._principal = LOCAL_FROM_BROKER if origin.name.lower().startswith("obj://") else LOCAL
        self._applied: str | None = None
        self._trouble = ""
        self._refusal: Refusal | None = None
        self._stop_listening: Callable[[], Awaitable[None]] = nothing
        self._timers: list[tuple[str, IntervalTimer, float]] = []
        settings = context.settings
        for reason, interval_s in (
            (INTERVAL, settings.interval_s),
            (POLL, settings.watch_interval_s),
            (CHECK, settings.health_check_interval_s),
        ):
            if interval_s > 0:
                timer = IntervalTimer(context.node, f"{reason}:{self.name}", context.clock)
                timer.start(interval_s, first_share=0)
                self._timers.append((reason, timer, interval_s))

    @property
    def status(self) -> dict[str, Any]:
        """What is known of it now, and when it is applied next."""
        trouble = self._trouble or (str(self._refusal) if self._refusal else "")
        return {"name": self.name, "digest": self._applied or "", "trouble": trouble, "next": self._next()}

    def _next(self) -> datetime | None:
        rests_s = [timer.remaining_s for reason, timer, _ in self._timers if reason == INTERVAL]
        if not rests_s or rests_s[0] is None:
            return None
        return (self._context.clock.now() + timedelta(seconds=rests_s[0])).replace(microsecond=0)

    async def open(self, triggers: Triggers) -> None:
        """Read what an earlier process kept, and poll when the origin notifies of a change."""
        await self._origin.open()
        self._stop_listening = await self._origin.listen(partial(triggers.add, POLL))

    async def close(self) -> None:
        """End the notifications."""
        await self._stop_listening()

    def timers(self) -> Sequence[tuple[str, IntervalTimer, float]]:
        """Timers that trigger it; a reload of the configuration makes other sources."""
        return self._timers

    async def next(self, triggers: Triggers) -> PlannedRun | NotPlanned:
        """Apply it on its interval, and when it or its data have changed."""
        if triggers.pending == {CHECK} or self._context.admission.maintenance.is_disabled():
            triggers.take()
            return NotPlanned()
        if CHANGE in triggers.pending and not triggers.is_requested:
            await pause(self._context)
        # a key notifies of changes, and its revision is in each run's start
        if not self._data.is_key:
            await self._data.look()
        reasons = triggers.take()
        manifest = await self._fetch()
        if manifest is None:
            failed = ConvergenceResult(name=self.name, state=NodeState.FAILED, reason=self._trouble)
            return NotPlanned(result=failed, may_check=False)
        is_new = self._applied is not None and manifest.digest != self._applied
        if is_new and reasons == {POLL}:
            log.info("a manifest has changed", extra={"source": self.name, "digest": manifest.digest})
            await pause(self._context)
        if is_new or reasons & {INTERVAL, CHANGE} or self._applied is None:
            return self._plan(manifest, "apply", INTERVAL if INTERVAL in reasons else CHANGE)
        return NotPlanned()

    async def plan(
        self, action: str, cause: str, checked: ManifestSource | None = None
    ) -> PlannedRun | NotPlanned:
        """A run of the manifest that is here."""
        manifest = checked or self._origin.last_good() or await self._fetch()
        return NotPlanned() if manifest is None else self._plan(manifest, action, cause)

    def is_current(self, planned: PlannedRun) -> bool:
        """What was fetched is applied; a newer manifest follows."""
        return True

    def on_queued(self) -> None:
        """Nothing is published about it."""

    def on_start(self, planned: PlannedRun, start: SessionStart) -> None:
        """Nothing more than `drift` needs to know."""

    async def finish(
        self, planned: PlannedRun, run: str, summary: SessionSummary | None, *, has_started: bool
    ) -> ConvergenceResult | None:
        """The result; an operator learns when it was an older manifest."""
        if summary is None:
            return None
        note = f"the last good manifest was applied: {self._trouble}" if self._trouble else ""
        return build_result(self.name, summary, note)

    async def save(self) -> None:
        """The origin saves what it fetches."""

    def _plan(self, manifest: ManifestSource, action: str, cause: str) -> PlannedRun | NotPlanned:
        if action == "apply":
            self._applied = manifest.digest
        refusal = self._policy_refusal(action)
        if refusal is not None:
            return NotPlanned(result=not_started(self.name, str(refusal), refusal.code), may_check=False)
        return PlannedRun(manifest=manifest, action=action, cause=cause, principal=self._principal)

    def _policy_refusal(self, action: str) -> Refusal | None:
        """Why the node's policy refuses the configuration this action now; a new reason is published."""
        before = self._refusal
        self._refusal = self._context.admission.policy.refusal(self._principal, action, action)
        if self._refusal is not None and (before is None or str(before) != str(self._refusal)):
            reason = str(self._refusal)
            log.warning("a manifest is not applied", extra={"source": self.name, "reason": reason})
            self._context.events.refused(self.name, reason)
        return self._refusal

    async def _fetch(self) -> ManifestSource | None:
        """The manifest as it is now, or the last good one; None when there is neither."""
        metrics = self._context.metrics
        try:
            manifest = await self._origin.current()
        except CcmError as err:
            if metrics is not None:
                metrics.fetched(self.name, failed=True)
            last = self._origin.last_good()
            if self._trouble != str(err):
                self._trouble = str(err)
                log.warning(
                    "a manifest cannot be fetched",
                    extra={"source": self.name, "reason": str(err), "has_last_good": last is not None},
                )
                # that a server is away is for its operators to report, not for each node of a fleet
                if not isinstance(err, (BusUnavailableError, DownloadError)):
                    self._context.events.refused(self.name, str(err))
            return last
        if metrics is not None and manifest.digest != self._applied:
            metrics.fetched(self.name, failed=False)
        if self._trouble:
            self._trouble = ""
            log.info("a manifest can be fetched again", extra={"source": self.name})
        return manifest


class ManifestReconciler:
    """Runs the loops of one agent's configured manifests."""

    def __init__(self, context: AgentContext, sources: SourcePorts) -> None:
        """
        Args:
            context: The agent.
            sources: Where manifests come from.
        """
        self._context = context
        if not context.settings.unsigned_objects:
            sources = replace(sources, check_object=context.authenticator.object)
        self._ports = sources
        self._reloaded = asyncio.Event()
        self._is_up = asyncio.Event()
        self._loops: list[ConvergenceLoop] = []
        self._sources: list[ConfiguredManifest] = []
        self._data = self._watch_data("")

    def reload(self) -> None:
        """The configuration has changed: start again with its sources."""
        self._reloaded.set()

    def converge_soon(self) -> None:
        """Converge after a pause of up to `change_pause`: data has changed, or the node was enabled."""
        self._trigger(CHANGE)

    async def once(self) -> list[ConvergenceResult]:
        """Apply all manifests now, whenever they are due; their results."""
        await self._is_up.wait()
        return list(await asyncio.gather(*(one.triggers.request() for one in self._loops)))

    def status(self) -> list[dict[str, Any]]:
        """What is known of each source now, and when it is applied next."""
        return [one.status for one in self._sources]

    async def run(self) -> None:
        """Converge until cancelled."""
        while True:
            self._reloaded.clear()
            async with asyncio.TaskGroup() as group:
                task = group.create_task(self._converge(), name="convergence:sources")
                await self._reloaded.wait()
                task.cancel()

    async def _converge(self) -> None:
        """Converge on the sources of the configuration as it is now, until cancelled."""
        context = self._context
        self._data = self._watch_data(context.settings.external_data_url)
        self._sources = self._make_sources()
        self._loops = [ConvergenceLoop(one, context) for one in self._sources]
        scopes = {one.scope for one in self._sources}
        await context.refreshes.keep_only(source_scope(""), scopes)
        await context.secret_uses.keep_only(source_scope(""), scopes)
        unhook = context.link.on_connect(self._connected)
        stop = await self._listen()
        self._is_up.set()
        # commands that waited for this are served by the first turn, which applies
        await asyncio.sleep(0)
        try:
            async with asyncio.TaskGroup() as group:
                for one in self._loops:
                    # a node that starts converges at once, on the last good manifest if need be
                    one.triggers.add(INTERVAL)
                    group.create_task(one.run(), name=f"source:{one.source.name}")
                group.create_task(self._data.run(), name="convergence:data")
        finally:
            self._is_up.clear()
            unhook()
            await stop()

    async def _listen(self) -> Callable[[], Awaitable[None]]:
        try:
            return await self._data.listen()
        except BusError as err:
            # without notifications a change of the data waits for the next interval
            log.error("changes of data cannot be watched", extra={"reason": str(err)})
            return nothing

    def _make_sources(self) -> list[ConfiguredManifest]:
        context, settings = self._context, self._context.settings
        cache = Path(settings.cache_dir) if settings.cache_dir else context.state / "sources"
        found = []
        alike: Counter[str] = Counter()
        for url in dict.fromkeys(settings.manifests):
            place = alike[mask_url(url)]
            alike[mask_url(url)] += 1
            try:
                origin = make_origin(url, self._ports, cache, place)
            except ManifestError as err:
                log.error("a source is skipped", extra={"reason": str(err)})
                context.events.refused("manifests", str(err))
                continue
            drift = Drift(f"{origin.name}#{place}", context.state / "converged", self._drift_context)
            found.append(ConfiguredManifest(origin, drift, self._data, context))
        return found

    def _watch_data(self, url: str) -> ExternalData:
        return ExternalData(url, self._ports, self._context.ports.bucket, self.converge_soon)

    def _connected(self) -> None:
        """Find changes that were missed while the broker was away."""
        self._data.recheck()
        self._trigger(POLL)

    def _trigger(self, reason: str) -> None:
        for one in self._loops:
            one.triggers.add(reason)

    def _drift_context(self) -> object:
        return [self._context.assigned.facts, self._data.digest]
