"""
Runs a convergence loop for each manifest in this node's configuration.

Manifests are applied at startup, at regular intervals, when they or their external data change, and when a health check is
critical. If a manifest cannot be fetched, the last good one is applied.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from ccm_agent.agent.desired.drift import Drift, SourceRecords
from ccm_agent.agent.desired.loop import (
    CHANGE,
    CHECK,
    INTERVAL,
    POLL,
    ConvergenceLoop,
    ConvergenceResult,
    MakeLoop,
    NotPlanned,
    PlannedRun,
    Triggers,
    build_result,
    not_started,
)
from ccm_agent.agent.desired.origins import ManifestOrigin, SourcePorts, make_origin
from ccm_agent.agent.desired.timer import IntervalTimer, MakeTimer
from ccm_agent.agent.desired.watcher import ExternalData, nothing
from ccm_agent.agent.runs.admission import Admission
from ccm_agent.agent.state.settings import Settings
from ccm_agent.engine.request import ManifestSource
from ccm_agent.metrics.agent import AgentMetrics
from ccm_agent.model.errors import (
    BusError,
    BusUnavailableError,
    CcmError,
    DownloadError,
    ManifestError,
    Refusal,
)
from ccm_agent.model.outcome import SessionStart, SessionSummary
from ccm_agent.model.ports import BrokerConnection
from ccm_agent.model.records.policy import LOCAL, LOCAL_FROM_BROKER, Principal
from ccm_agent.model.secret import mask_url
from ccm_agent.model.wire import NodeState

log = logging.getLogger(__name__)


def source_scope(source: str) -> str:
    """Return the owner of a source's pending refreshes; see `ApplyOptions.scope`."""
    return f"source {source}"


class LastGoodManifest:
    """
    The manifest of one origin: the current one, or the last good one.

    Attributes:
        name: The name of the origin.
        applied: The digest of the last applied manifest; None if no manifest was applied.
        trouble: Why it cannot be read now; "" if it can.
    """

    def __init__(
        self, origin: ManifestOrigin, on_refused: Callable[[str, str], None], metrics: AgentMetrics | None
    ) -> None:
        """
        Args:
            origin: The origin of the manifest.
            on_refused: Called with the name and the reason if the manifest cannot be used.
            metrics: Counts fetches; None if metrics are off.
        """
        self.name = origin.name
        self.applied: str | None = None
        self.trouble = ""
        self._origin = origin
        self._on_refused = on_refused
        self._metrics = metrics

    async def open(self, on_change: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """
        Read the stored manifest of an earlier process, and call a function at each change, until the returned function is
        called.
        """
        await self._origin.open()
        return await self._origin.listen(on_change)

    async def here(self) -> ManifestSource | None:
        """Return the last good manifest; if there is none, fetch it."""
        return self._origin.last_good() or await self.fetch()

    async def fetch(self) -> ManifestSource | None:
        """Return the current manifest, or the last good one; None if there is neither."""
        metrics = self._metrics
        try:
            manifest = await self._origin.current()
        except CcmError as err:
            if metrics is not None:
                metrics.fetched(self.name, failed=True)
            last = self._origin.last_good()
            if self.trouble != str(err):
                self.trouble = str(err)
                log.warning(
                    "a manifest cannot be fetched",
                    extra={"source": self.name, "reason": str(err), "has_last_good": last is not None},
                )
                # An unavailable server is reported by its operators, not by each node of a fleet.
                if not isinstance(err, (BusUnavailableError, DownloadError)):
                    self._on_refused(self.name, str(err))
            return last
        if metrics is not None and manifest.digest != self.applied:
            metrics.fetched(self.name, failed=False)
        if self.trouble:
            self.trouble = ""
            log.info("a manifest can be fetched again", extra={"source": self.name})
        return manifest


class ManifestPermission:
    """Decides whether the node may apply one manifest now."""

    def __init__(self, name: str, admission: Admission, on_refused: Callable[[str, str], None]) -> None:
        """
        Args:
            name: The name of the origin.
            admission: The node's disabled state and its policy.
            on_refused: Called with the name and the reason when the policy begins to refuse it.
        """
        self.principal = LOCAL_FROM_BROKER if name.lower().startswith("obj://") else LOCAL
        self.refusal: Refusal | None = None
        self._name = name
        self._admission = admission
        self._on_refused = on_refused

    @property
    def is_disabled(self) -> bool:
        """Whether the node is disabled."""
        return self._admission.maintenance.is_disabled()

    def check(self, action: str) -> Refusal | None:
        """Return why the node's policy refuses this action to the configuration; a new reason is published."""
        before = self.refusal
        self.refusal = self._admission.policy.refusal(self.principal, action, action)
        if self.refusal is not None and (before is None or str(before) != str(self.refusal)):
            reason = str(self.refusal)
            log.warning("a manifest is not applied", extra={"source": self._name, "reason": reason})
            self._on_refused(self._name, reason)
        return self.refusal


class ConfiguredManifest:
    """One manifest of the configuration, as a `Source` of a convergence loop."""

    kind = "source"

    def __init__(
        self,
        manifest: LastGoodManifest,
        permission: ManifestPermission,
        drift: Drift,
        data: ExternalData,
        timers: Sequence[tuple[str, IntervalTimer, float]],
    ) -> None:
        """
        Args:
            manifest: The manifest.
            permission: Decides whether it may be applied.
            drift: The drift record of its resources.
            data: The external data that it reads.
            timers: See `Source.timers`.
        """
        self.name = manifest.name
        self.scope = source_scope(drift.source)
        self.drift = drift
        self._manifest = manifest
        self._permission = permission
        self._data = data
        self._timers = timers
        self._stop_listening: Callable[[], Awaitable[None]] = nothing

    @property
    def status(self) -> dict[str, Any]:
        """Return its status, and when it is applied next."""
        manifest, refusal = self._manifest, self._permission.refusal
        trouble = manifest.trouble or (str(refusal) if refusal else "")
        return {"name": self.name, "digest": manifest.applied or "", "trouble": trouble, "next": self._next()}

    @property
    def principal(self) -> Principal:
        """The owner of the manifest, for the node's policy."""
        return self._permission.principal

    async def here(self) -> ManifestSource | None:
        """Return the last good manifest; None if there is none."""
        return await self._manifest.here()

    def _next(self) -> datetime | None:
        return next((timer.next_second for reason, timer, _ in self._timers if reason == INTERVAL), None)

    async def open(self, triggers: Triggers) -> None:
        """Read the stored manifest of an earlier process, and poll when the origin notifies of a change."""
        self._stop_listening = await self._manifest.open(partial(triggers.add, POLL))

    async def close(self) -> None:
        """End the notifications."""
        await self._stop_listening()

    def timers(self) -> Sequence[tuple[str, IntervalTimer, float]]:
        """Return the timers that trigger it. A reload of the configuration creates new sources."""
        return self._timers

    async def next(self, triggers: Triggers) -> PlannedRun | NotPlanned:
        """Plan an apply on its interval, and when it or its data has changed."""
        if triggers.pending == {CHECK} or self._permission.is_disabled:
            triggers.take()
            return NotPlanned()
        if CHANGE in triggers.pending and not triggers.is_requested:
            await triggers.pause()
        # Changes of a key are notified, and the start of each run contains its revision.
        if not self._data.is_key:
            await self._data.look()
        reasons = triggers.take()
        manifest = await self._manifest.fetch()
        if manifest is None:
            failed = ConvergenceResult(name=self.name, state=NodeState.FAILED, reason=self._manifest.trouble)
            return NotPlanned(result=failed, may_check=False)
        is_new = self._manifest.applied is not None and manifest.digest != self._manifest.applied
        if is_new and reasons == {POLL}:
            log.info("a manifest has changed", extra={"source": self.name, "digest": manifest.digest})
            await triggers.pause()
        if is_new or reasons & {INTERVAL, CHANGE} or self._manifest.applied is None:
            return self._plan(manifest, "apply", INTERVAL if INTERVAL in reasons else CHANGE)
        return NotPlanned()

    async def plan(
        self, action: str, cause: str, checked: ManifestSource | None = None
    ) -> PlannedRun | NotPlanned:
        """Plan a run of the last good manifest."""
        manifest = checked or await self._manifest.here()
        return NotPlanned() if manifest is None else self._plan(manifest, action, cause)

    def is_current(self, planned: PlannedRun) -> bool:
        """Return True: the fetched manifest is applied, and a newer one is applied after it."""
        return True

    def on_queued(self) -> None:
        """Do nothing, because nothing is published about it."""

    def on_start(self, planned: PlannedRun, start: SessionStart) -> None:
        """Pass the start to `drift`."""

    async def finish(
        self, planned: PlannedRun, run: str, summary: SessionSummary | None, *, has_started: bool
    ) -> ConvergenceResult | None:
        """Record the result, with a note if an older manifest was applied."""
        if summary is None:
            return None
        note = (
            f"the last good manifest was applied: {self._manifest.trouble}" if self._manifest.trouble else ""
        )
        return build_result(self.name, summary, note)

    async def save(self) -> None:
        """Do nothing, because the origin saves its manifests."""

    def _plan(self, manifest: ManifestSource, action: str, cause: str) -> PlannedRun | NotPlanned:
        if action == "apply":
            self._manifest.applied = manifest.digest
        refusal = self._permission.check(action)
        if refusal is not None:
            return NotPlanned(result=not_started(self.name, str(refusal), refusal.code), may_check=False)
        return PlannedRun(manifest=manifest, action=action, cause=cause, principal=self._permission.principal)


class ManifestBuilder:
    """
    Builds the sources of one agent's configuration.

    Args:
        ports: Access to files, the web and object stores.
        make_timer: Creates a timer, given its name.
        admission: The node's disabled state and its policy.
        records: The records stored for each source.
        on_refused: Called with the name of a manifest that is not used, and the reason.
        metrics: Counts fetches; None if metrics are off.
    """

    def __init__(
        self,
        ports: SourcePorts,
        make_timer: MakeTimer,
        admission: Admission,
        records: SourceRecords,
        on_refused: Callable[[str, str], None],
        metrics: AgentMetrics | None,
    ) -> None:
        self._ports = ports
        self._make_timer = make_timer
        self._admission = admission
        self._records = records
        self._on_refused = on_refused
        self._metrics = metrics

    def make(self, settings: Settings, data: ExternalData) -> list[ConfiguredManifest]:
        """Build the configured manifests, which use this external data. An invalid entry is logged and skipped."""
        cache = Path(settings.cache_dir) if settings.cache_dir else Path(settings.state_dir) / "sources"
        found = []
        alike: Counter[str] = Counter()
        for url in dict.fromkeys(settings.manifests):
            place = alike[mask_url(url)]
            alike[mask_url(url)] += 1
            try:
                origin = make_origin(url, self._ports, cache, place)
            except ManifestError as err:
                log.error("a source is skipped", extra={"reason": str(err)})
                self._on_refused("manifests", str(err))
                continue
            drift = self._records.make_drift(f"{origin.name}#{place}", lambda: data.digest)
            manifest = LastGoodManifest(origin, self._on_refused, self._metrics)
            permission = ManifestPermission(origin.name, self._admission, self._on_refused)
            timers = self._make_timers(settings, origin.name)
            found.append(ConfiguredManifest(manifest, permission, drift, data, timers))
        return found

    def _make_timers(self, settings: Settings, name: str) -> list[tuple[str, IntervalTimer, float]]:
        timers = []
        for reason, interval_s in (
            (INTERVAL, settings.interval_s),
            (POLL, settings.watch_interval_s),
            (CHECK, settings.health_check_interval_s),
        ):
            if interval_s > 0:
                timer = self._make_timer(f"{reason}:{name}")
                timer.start(interval_s, first_share=0)
                timers.append((reason, timer, interval_s))
        return timers


class ManifestReconciler:
    """Runs the loops of one agent's configured manifests."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        maker: ManifestBuilder,
        watch_data: Callable[[str, Callable[[], None]], ExternalData],
        make_loop: MakeLoop,
        records: SourceRecords,
        link: BrokerConnection,
    ) -> None:
        """
        Args:
            settings: Returns the current configuration.
            maker: Builds the sources of a configuration.
            watch_data: Watches a document by its URL ("": none), and calls a function when it has changed.
            make_loop: Creates the loop of a source.
            records: The records stored for each source.
            link: The connection.
        """
        self._settings = settings
        self._maker = maker
        self._watch_data = watch_data
        self._make_loop = make_loop
        self._records = records
        self._link = link
        self._reloaded = asyncio.Event()
        self._is_up = asyncio.Event()
        self._loops: list[ConvergenceLoop] = []
        self._sources: list[ConfiguredManifest] = []
        self._data = watch_data("", self.converge_soon)

    def reload(self) -> None:
        """Restart with the sources of the changed configuration."""
        self._reloaded.set()

    def converge_soon(self) -> None:
        """Converge after a pause of up to `change_pause`, because data has changed or the node was enabled."""
        self._trigger(CHANGE)

    async def once(self) -> list[ConvergenceResult]:
        """Apply all manifests now, even if they are not due, and return the results."""
        await self._is_up.wait()
        return list(await asyncio.gather(*(one.triggers.request() for one in self._loops)))

    def status(self) -> list[dict[str, Any]]:
        """Return the status of each source, and when it is applied next."""
        return [one.status for one in self._sources]

    async def manifests_but(self, scope: str) -> list[tuple[ManifestSource, Principal]] | None:
        """Return the manifests of all other sources, each with its principal; None if one of them is not available."""
        found = []
        for one in self._sources:
            if one.scope != scope:
                manifest = await one.here()
                if manifest is None:
                    return None
                found.append((manifest, one.principal))
        return found

    async def run(self) -> None:
        """Converge until cancelled."""
        while True:
            self._reloaded.clear()
            async with asyncio.TaskGroup() as group:
                task = group.create_task(self._converge(), name="convergence:sources")
                await self._reloaded.wait()
                task.cancel()

    async def _converge(self) -> None:
        """Converge on the sources of the current configuration, until cancelled."""
        settings = self._settings()
        self._data = self._watch_data(settings.external_data_url, self.converge_soon)
        self._sources = self._maker.make(settings, self._data)
        self._loops = [self._make_loop(one) for one in self._sources]
        await self._records.keep_only(source_scope(""), [one.scope for one in self._sources])
        unhook = self._link.on_connect(self._connected)
        stop = await self._listen()
        self._is_up.set()
        # Local commands that waited for this are served by the first turn, which applies.
        await asyncio.sleep(0)
        try:
            async with asyncio.TaskGroup() as group:
                for one in self._loops:
                    # A starting node converges immediately, with the last good manifest if necessary.
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
            # Without notifications, a change of the data is found at the next interval.
            log.error("changes of data cannot be watched", extra={"reason": str(err)})
            return nothing

    def _connected(self) -> None:
        """Find changes that were missed while the broker was unavailable."""
        self._data.recheck()
        self._trigger(POLL)

    def _trigger(self, reason: str) -> None:
        for one in self._loops:
            one.triggers.add(reason)
