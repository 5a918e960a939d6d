"""
What a node does of itself: it applies the manifests of its configuration on an interval, on a change, and when a check fails.

One worker a source, one ticker for all. Their runs wait for their turn among those that operators ask for: one at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from ccm_agent.agent.desired.drift import Drift
from ccm_agent.agent.desired.external_data import ExternalData, nothing
from ccm_agent.agent.desired.run_once import ConvergenceResult
from ccm_agent.agent.desired.source import SourcePorts, make_source
from ccm_agent.agent.desired.source_loop import (
    CHANGE,
    CHECK,
    INTERVAL,
    POLL,
    SourceContext,
    SourceLoop,
    source_scope,
)
from ccm_agent.agent.desired.ticker import Ticker
from ccm_agent.agent.events.publisher import AgentEventPublisher
from ccm_agent.agent.process.config import Settings
from ccm_agent.agent.runs.run_executor import PendingRefreshes
from ccm_agent.agent.runs.run_queue import RunQueue
from ccm_agent.metrics.agent import AgentMetrics
from ccm_agent.model.errors import BusError, ManifestError, Refusal
from ccm_agent.model.policy import Principal
from ccm_agent.model.ports import BrokerConnection, Clock, KeyValue
from ccm_agent.model.secret import mask_url

log = logging.getLogger(__name__)


class ManifestReconcilerContext(Struct, frozen=True, kw_only=True):
    """
    What convergence asks of the rest of the agent.

    Attributes:
        node: This node.
        settings: The configuration as it is now.
        sources: Where manifests come from.
        bucket: A bucket by name.
        link: The connection.
        run_queue: Where runs wait.
        agent_events: What the agent says about itself.
        is_disabled: The node converges on nothing now.
        assigned: The assigned facts as they are now.
        clock: Time.
        metrics: Counts what the sources' workers do; None: nobody counts.
        forbids: Why the node's policy refuses an action to the configuration now; None when it does not.
        refreshes: What is still to be refreshed here.
    """

    node: str
    settings: Callable[[], Settings]
    sources: SourcePorts
    bucket: Callable[[str], KeyValue]
    link: BrokerConnection
    run_queue: RunQueue
    agent_events: AgentEventPublisher
    is_disabled: Callable[[], bool]
    assigned: Callable[[], Mapping[str, Any]]
    clock: Clock
    refreshes: PendingRefreshes
    metrics: AgentMetrics | None = None
    forbids: Callable[[Principal, str], Refusal | None] = lambda _principal, _action: None


class ManifestReconciler:
    """The continuous convergence of one agent."""

    def __init__(self, around: ManifestReconcilerContext) -> None:
        """Nothing runs yet."""
        self._around = around
        self._ticker = Ticker(around.node, around.clock)
        self._reloaded = asyncio.Event()
        self._is_up = asyncio.Event()
        self._workers: list[SourceLoop] = []
        self._data = self._watch_data("")

    def reload(self) -> None:
        """The configuration is another one: begin anew with its sources."""
        self._reloaded.set()

    def catch_up(self) -> None:
        """The node was disabled and is not any more: converge, at a moment of its own."""
        self._data_changed()

    async def once(self) -> list[ConvergenceResult]:
        """Apply everything now, whatever else; how each ended."""
        await self._is_up.wait()
        return list(await asyncio.gather(*(worker.once() for worker in self._workers)))

    def status(self) -> list[dict[str, Any]]:
        """What is known of each source here and now, and when it is applied next."""
        rests, now = self._ticker.rests(), self._around.clock.now()

        def due(name: str) -> datetime | None:
            rest_s = rests.get(f"{INTERVAL}:{name}")
            return None if rest_s is None else (now + timedelta(seconds=rest_s)).replace(microsecond=0)

        return [{**worker.status, "next": due(worker.source.name)} for worker in self._workers]

    async def run(self) -> None:
        """Converge, for ever."""
        while True:
            self._reloaded.clear()
            async with asyncio.TaskGroup() as group:
                task = group.create_task(self._converge(), name="convergence:sources")
                await self._reloaded.wait()
                task.cancel()

    async def _converge(self) -> None:
        """Converge on the sources of the configuration as it is now, until cancelled."""
        settings = self._around.settings()
        self._data = self._watch_data(settings.external_data_url)
        self._workers = self._make_workers(settings)
        await self._around.refreshes.keep_only(source_scope(""), {one.scope for one in self._workers})
        self._ticker.clear()
        unhook = self._around.link.on_connect(self._connected)
        stop = await self._listen()
        self._is_up.set()
        # whoever waited for this is served by the first turn, which applies
        await asyncio.sleep(0)
        try:
            async with asyncio.TaskGroup() as group:
                for worker in self._workers:
                    group.create_task(worker.run(), name=f"source:{worker.source.name}")
                    self._schedule(worker, settings)
                    # a node that starts converges at once, on what it has if need be
                    worker.trigger(INTERVAL)
                group.create_task(self._data.run(), name="convergence:data")
                group.create_task(self._ticker.run(), name="convergence:ticker")
        finally:
            self._is_up.clear()
            unhook()
            await stop()

    async def _listen(self) -> Callable[[], Awaitable[None]]:
        try:
            return await self._data.listen()
        except BusError as err:
            # without pokes a change of the data waits for the next interval
            log.error("changes of data cannot be listened to", extra={"reason": str(err)})
            return nothing

    def _make_workers(self, settings: Settings) -> list[SourceLoop]:
        around = self._around
        bench = SourceContext(
            settings=around.settings,
            run_queue=around.run_queue,
            clock=around.clock,
            is_disabled=around.is_disabled,
            look_at_data=self._look_at_data,
            on_refused=around.agent_events.refused,
            on_drift=around.agent_events.drifted,
            metrics=around.metrics,
            forbids=around.forbids,
        )
        workers = []
        state = Path(settings.state_dir)
        cache = Path(settings.cache_dir) if settings.cache_dir else state / "sources"
        alike: Counter[str] = Counter()
        for url in dict.fromkeys(settings.manifests):
            place = alike[mask_url(url)]
            alike[mask_url(url)] += 1
            try:
                source = make_source(url, around.sources, cache, place)
            except ManifestError as err:
                log.error("a source is left out", extra={"reason": str(err)})
                around.agent_events.refused("manifests", str(err))
                continue
            drift = Drift(f"{source.name}#{place}", state / "converged", self._context)
            workers.append(SourceLoop(source, drift, bench))
        return workers

    def _schedule(self, worker: SourceLoop, settings: Settings) -> None:
        name = worker.source.name
        for interval_s, why in (
            (settings.interval_s, INTERVAL),
            (settings.watch_interval_s, POLL),
            (settings.health_check_interval_s, CHECK),
        ):
            self._ticker.every(interval_s, f"{why}:{name}", partial(worker.trigger, why))

    def _watch_data(self, url: str) -> ExternalData:
        return ExternalData(url, self._around.sources, self._around.bucket, self._data_changed)

    async def _look_at_data(self) -> None:
        # a key is poked, and its revision stands in each run's start
        if not self._data.is_key:
            await self._data.look()

    def _data_changed(self) -> None:
        for worker in self._workers:
            worker.trigger(CHANGE)

    def _connected(self) -> None:
        """Whatever was missed while the broker was away is caught up with."""
        self._data.look_again()
        for worker in self._workers:
            worker.trigger(POLL)

    def _context(self) -> object:
        return [self._around.assigned(), self._data.digest]
