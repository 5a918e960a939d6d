"""
The agent of one node: it wires the services together, starts them, and stops them in order.

It never waits for the broker: events wait in the spool. What it must know after a kill is on disk before it is published.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ccm_agent.agent.cache.bundle_cache import BundleCache
from ccm_agent.agent.cache.document_cache import CachedBuckets
from ccm_agent.agent.context import AgentPorts
from ccm_agent.agent.desired.assignment_reconciler import AssignmentReconciler
from ccm_agent.agent.desired.assignment_wiring import ReconcilerParts, make_reconciler
from ccm_agent.agent.desired.manifest_reconciler import ManifestReconciler, ManifestReconcilerContext
from ccm_agent.agent.desired.run_once import ConvergenceResult
from ccm_agent.agent.events.publisher import AgentEventPublisher, Author, EventPublisher
from ccm_agent.agent.events.spool import OpenRun, Spool
from ccm_agent.agent.node.facts import AssignedFacts, FactCache, routed_facts
from ccm_agent.agent.node.metrics_server import MetricsServer, add_gauges
from ccm_agent.agent.node.presence import HeartbeatContext, HeartbeatLoop, NodePresence
from ccm_agent.agent.node.status import LocalStatus, NodeStatus, read_status
from ccm_agent.agent.process.config import Settings
from ccm_agent.agent.process.state_folder import StateLock, determine_identity, machine_id
from ccm_agent.agent.requests.authentication import Authenticator, RevisionGuard
from ccm_agent.agent.requests.missed_schedules import MissedSchedules
from ccm_agent.agent.requests.request_handler import RequestContext, RequestHandler
from ccm_agent.agent.requests.request_log import RequestLog, RequestLogEntry
from ccm_agent.agent.requests.subscriptions import RequestQueue, SignersReader, Subscriptions
from ccm_agent.agent.runs.admission import Maintenance, NodePolicy
from ccm_agent.agent.runs.recovery import Checkpoints, Recovery
from ccm_agent.agent.runs.run_executor import ExecutorContext, PendingRefreshes, RunExecutor
from ccm_agent.agent.runs.run_queue import ProgressPublisher, RunLoop, RunParts, RunQueue
from ccm_agent.bus.trust import TRUST_BUCKET
from ccm_agent.metrics.agent import AgentMetrics
from ccm_agent.metrics.registry import MetricsRegistry
from ccm_agent.model.errors import BusError
from ccm_agent.model.outcome import SessionSummary
from ccm_agent.model.wire import Disabled, NodeRecord, Progress, Request

log = logging.getLogger(__name__)

GOODBYE_S = 3.0
"""How long a stopping agent waits for its last events to be taken; what is left is sent after the next start."""


async def cancel_and_wait(tasks: Collection[asyncio.Task[Any]], retry_s: float = 5.0) -> None:
    """
    Cancel tasks until all have ended, again every `retry_s`, which is longer than any of them needs to clean up.

    In Python 3.11 `asyncio.wait_for` loses a cancellation that arrives together with its result; a task that waits in a library
    would then never end, nor would the process.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=retry_s)


async def never() -> bool:
    """No other process follows."""
    return False


class Agent:
    """
    One node's agent.

    Attributes:
        settings: Its configuration; replaced by `reload`.
        node: Its identity.
    """

    def __init__(self, settings: Settings, ports: AgentPorts, *, version: str) -> None:
        """Blocking: reads the identity."""
        self.settings = settings
        state = Path(settings.state_dir)
        self.node = determine_identity(settings.identity, state)
        self._ports = ports
        self._clock = ports.clock
        self.secrets = ports.secrets
        self._version = version
        self._machine = machine_id(state)
        self._started = ports.clock.now()
        self._state_lock = StateLock(state, *([Path(settings.cache_dir)] if settings.cache_dir else []))
        self._maintenance = Maintenance(state, ports.clock)
        self._policy = NodePolicy(ports.resource_types, ports.clock)
        self._authenticator = Authenticator(
            ports.trust, ports.clock, state / "signers.json", settings.trusted_signers
        )
        self._revision_guard = RevisionGuard(state / "documents.json", self._authenticator)
        self._spool = Spool(
            state / "spool",
            limit_bytes=settings.spool_limit_bytes,
            segment_bytes=settings.spool_segment_bytes,
        )
        self._request_log = RequestLog(state / "ledger.log", keep_s=settings.ledger_keep_s, clock=self._clock)
        self._agent_events = AgentEventPublisher(self.node, version, self._machine, self._spool, self._clock)
        self._run_queue = RunQueue(settings.queue_limit)
        nodes, facts_bucket = ports.bucket("CCM_NODES"), ports.bucket("CCM_FACTS")
        self._assigned = AssignedFacts(self.node, facts_bucket, self._revision_guard, state / "assigned.json")
        self._metrics = AgentMetrics(MetricsRegistry()) if settings.monitor_port else None
        self._facts = FactCache(ports.gather_facts, lambda: self._assigned.facts, self._clock, self._metrics)
        record = NodeRecord(node=self.node, machine=self._machine, started=self._started, version=version)
        record.signatures, record.unsigned = self._authenticator.is_demanded, settings.accepted_unsigned
        self._author = Author(ports.node_key, record, self._agent_events, self._clock)
        self._refreshes = PendingRefreshes(ports.refreshes, record, lambda: self._heartbeats.soon())
        self._heartbeat = NodePresence(nodes, record, self._clock, ttl_s=settings.presence_ttl_s)
        self._request_queue = RequestQueue()
        self._subscriptions = Subscriptions(
            self.node,
            ports.requests,
            facts_bucket,
            self._assigned,
            ports.link,
            routed=self._routed,
            on_request=self._request_queue.put,
            on_refused=self._agent_events.refused,
            on_change=self._rerouted,
            on_read=self._read_scopes,
            trust=SignersReader(self._authenticator, ports.bucket(TRUST_BUCKET)),
        )
        put, knows, due = self._request_queue.put, self._request_log.knows, state / "due.json"
        self._catch_up = MissedSchedules(
            self.node, ports.requests, ports.link, due, lambda: self.scopes, put, self._clock, knows
        )
        self._manifests = self._make_manifests()
        self._checkpoints = Checkpoints(state / "continuation.json")
        self._bundles = BundleCache(ports.objects, state / "bundles")
        refused, demands = self._agent_events.refused, settings.stamped_data
        self._data = CachedBuckets(
            ports.bucket, self._revision_guard, state / "data", refused, demand_stamps=demands
        )
        executor = self._executor_context()
        self._executor = RunExecutor(executor, self._spool, self._request_log, self._clock, self._checkpoints)
        sign, retry_s = self._author.sign, settings.retry_s
        self._publisher = EventPublisher(
            self._spool, ports.events, ports.link, retry_s=retry_s, on_lost=self._lost, sign=sign
        )
        self._teller = ProgressPublisher(
            self.node, ports.events, self._executor, self._run_queue, lambda: self.settings.progress_s
        )
        self._heartbeats = self._make_heartbeats()
        self._node_status = self._make_standing()
        self._assignments = self._make_reconciler(executor)
        self._handlers = RequestHandler(
            self._request_context(), self._run_queue, self._request_log, self._executor, self._clock
        )
        self._runs = self._make_run_loop()
        self._maintenance.on_change(self._disabled)

    # -- life

    async def run(
        self,
        stop: asyncio.Event,
        ready: Callable[[], None] = lambda: None,
        leave: Callable[[], None] = lambda: None,
        restarts: Callable[[], Awaitable[bool]] = never,
    ) -> None:
        """
        Serve until `stop` is set, then finish the current resource and publish that the agent stops.

        Args:
            stop: Set by a signal.
            ready: Called when everything that does not need the broker is up.
            leave: Called last while a resource still runs; ends the process. If it returns, the resource's program is killed.
            restarts: Whether another process follows, which then continues the current run.
        """
        left, open_runs = await asyncio.to_thread(self._open)
        recovery = Recovery(self.node, self._spool, self._request_log, self._clock, self._checkpoints)
        await asyncio.to_thread(recovery.recover, left, open_runs, self._run_queue, self._handlers.job_of)
        self._author.begin()
        self._policy.tell(self._heartbeat, self._agent_events.refused)
        await self._subscriptions.begin()
        self._ports.link.on_connect(self._heartbeats.reconnected)
        self._ports.link.on_connect(self._catch_up.expect)
        self._heartbeats.soon()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(job, name=f"agent:{name}") for name, job in self._jobs().items()]
            ready()
            log.info("the agent is up", extra={"node": self.node, "version": self._version})
            await stop.wait()
            is_idle = await self._drain(restarts)
            self.close()
            if not is_idle:
                leave()
            await cancel_and_wait(tasks)
        log.info("the agent has stopped", extra={"node": self.node})

    def _jobs(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The jobs that run concurrently while the agent runs, by name."""
        jobs = {
            "disabling": self._maintenance.run(),
            "catch_up": self._catch_up.run(),
            "delivery": self._publisher.run(),
            "requests": self._request_queue.run(
                self._handlers.handle, self._agent_events.refused, self._catch_up.heard
            ),
            "runs": self._runs.run(),
            "progress": self._teller.run(),
            "routing": self._subscriptions.run(lambda: self.settings.read_interval_s),
            "heartbeat": self._heartbeats.run(),
            "assignments": self._assignments.run(),
        }
        if self._manifests is not None:
            jobs["convergence"] = self._manifests.run()
        if self._metrics is not None:
            jobs["metrics"] = self._make_monitor(self._metrics).run()
        return jobs

    @property
    def is_duplicate(self) -> bool:
        """Another agent uses this node's name."""
        return self._heartbeat.is_duplicate

    @property
    def scopes(self) -> list[str]:
        """What it listens to."""
        return self._subscriptions.scopes

    @property
    def local_status(self) -> LocalStatus:
        """What the control socket and the status file report."""
        return LocalStatus(self._node_status, self._ports.link, self._clock)

    @property
    def is_busy(self) -> bool:
        """A run is under way, or waits."""
        return self._run_queue.current is not None or bool(self._run_queue.waiting)

    def reload(self, settings: Settings) -> None:
        """Take over a configuration, except for settings that need a restart."""
        self.settings = settings
        self._heartbeat.record.unsigned = settings.accepted_unsigned
        self.reload_policy()
        self._subscriptions.look_again()
        self._heartbeats.soon()
        if self._manifests is not None:
            self._manifests.reload()

    def reload_policy(self) -> None:
        """Read the node's policy again, a file of a few kilobytes; what is assigned is judged by it at once."""
        self._policy.load(self.settings.policy_file, is_required=self.settings.is_policy_required)
        self._policy.tell(self._heartbeat, self._agent_events.refused)
        self._assignments.look_again()

    async def look_at_disabling(self) -> None:
        """Read again whether the node is disabled; the state applies when this returns."""
        await self._maintenance.look_now()

    async def wait_connected(self) -> None:
        """Return as soon as the broker is there, however long that takes."""
        await self._ports.link.wait_connected()

    async def converge_once(self) -> list[ConvergenceResult]:
        """
        Converge now on everything that this node converges on; how each of it ended.

        Raises:
            Refusal: The node is disabled, or another agent uses its name.
        """
        if refusal := self._node_status.refusal("apply"):
            raise refusal
        manifests = await self._manifests.once() if self._manifests is not None else []
        return manifests + await self._assignments.once()

    def close(self) -> None:
        """Close the files of the agent's state; nothing is lost by it."""
        self._ports.close()
        self._spool.close()
        self._request_log.close()
        self._state_lock.release()

    def _open(self) -> tuple[list[RequestLogEntry], list[OpenRun]]:
        self._state_lock.take()
        self._policy.load(self.settings.policy_file, is_required=self.settings.is_policy_required)
        self._maintenance.open()
        self._catch_up.open()
        self._authenticator.open()
        self._revision_guard.open()
        self._assigned.open()
        self._heartbeat.recall(read_status(Path(self.settings.state_dir)))
        self._refreshes.open()
        self._assignments.open()
        self._checkpoints.open()
        open_runs = self._spool.open()
        return self._request_log.open(), open_runs

    async def _drain(self, restarts: Callable[[], Awaitable[bool]]) -> bool:
        """Finish the current resource and close the session, in bounded time. False: a resource still runs."""
        self._runs.close()
        self._request_queue.close()
        is_idle = True
        if not self._runs.is_idle.is_set() and await restarts():
            self._executor.pause()
        else:
            self._executor.interrupt()
        try:
            async with asyncio.timeout(self.settings.drain_s):
                await self._runs.is_idle.wait()
        except TimeoutError:
            # what it started, a package manager perhaps that restarts this very agent, is not ours to kill
            is_idle = False
            self._executor.leave()
        self._agent_events.stopped()
        try:
            async with asyncio.timeout(GOODBYE_S):
                if self._ports.link.connected:
                    await self._heartbeat.goodbye()
                    await self._spool.emptied()
        except (TimeoutError, BusError) as err:
            log.info(
                "not everything could be said", extra={"waiting": self._spool.backlog, "reason": str(err)}
            )
        return is_idle

    def _lost(self, events: int) -> None:
        self._agent_events.lost(events)
        if self._metrics is not None:
            self._metrics.lost(events)

    def _note(self, run: str, summary: SessionSummary | None) -> None:
        if summary is None:
            return
        self._heartbeat.ended(run, summary.state)
        log.info("a run has ended", extra={"run": run, "state": summary.state, "reason": summary.reason})

    def _disabled(self, disabled: Disabled | None) -> None:
        self._heartbeat.record.disabled = disabled
        self._agent_events.disabled(disabled, disabled.sentence if disabled else "enabled again")
        self._heartbeats.soon()
        self._assignments.look_again()
        if disabled is None and self._manifests is not None:
            self._manifests.catch_up()

    async def _current_facts(self) -> Mapping[str, Any]:
        return await self._facts.current(self.settings.facts_interval_s)

    async def _routed(self) -> dict[str, Any]:
        paths = self.settings.routed_facts
        return routed_facts(self._assigned.facts, await self._facts.latest() if paths else {}, paths)

    def _progress(self) -> Progress | None:
        report = self._executor.report
        return report.progress_now() if report else None

    def _rerouted(self, facts: dict[str, Any]) -> None:
        self._heartbeat.record.facts = facts
        self._catch_up.expect()
        self._heartbeats.soon()

    def _read_scopes(self) -> None:
        """Which assignments mean this node follows from its scopes, so they are read after those."""
        self._assignments.read_again()
        if self._subscriptions.is_right:
            self._catch_up.settled()

    def _make_heartbeats(self) -> HeartbeatLoop:
        pulse = HeartbeatContext(
            settings=lambda: self.settings,
            run=lambda: self._run_queue.current.run if self._run_queue.current else "",
            facts=self._current_facts,
            routed=self._routed,
            renew_key=self._author.renew,
            can_read_own=self._ports.can_read_own,
        )
        return HeartbeatLoop(
            self._heartbeat,
            pulse,
            self._ports.link,
            self._subscriptions,
            self._agent_events,
            self._request_log,
        )

    def _make_monitor(self, metrics: AgentMetrics) -> MetricsServer:
        add_gauges(metrics.registry, self._node_status, self._ports.link, self._ports.readings)
        return MetricsServer(metrics.registry, self.settings.monitor_address, self.settings.monitor_port)

    def _make_standing(self) -> NodeStatus:
        return NodeStatus(
            version=self._version,
            heartbeat=self._heartbeat,
            run_queue=self._run_queue,
            spool=self._spool,
            delivery=self._publisher,
            subscriptions=self._subscriptions,
            assigned=self._assigned,
            maintenance=self._maintenance,
            facts=self._current_facts,
            assignments=lambda: self._assignments.states.now,
            manifests=lambda: self._manifests.status() if self._manifests else [],
            progress=self._progress,
            waits_for=self._ports.waits_for,
            policy=self._policy.status,
        )

    def _make_reconciler(self, executor: ExecutorContext) -> AssignmentReconciler:
        parts = ReconcilerParts(
            node=self.node,
            settings=lambda: self.settings,
            ports=self._ports,
            revision_guard=self._revision_guard,
            assigned=self._assigned,
            heartbeat=self._heartbeat,
            heartbeats=self._heartbeats,
            agent_events=self._agent_events,
            run_queue=self._run_queue,
            subscriptions=self._subscriptions,
            node_status=self._node_status,
            policy=self._policy,
            executor=executor,
            bundles=self._bundles,
            data=self._data,
        )
        return make_reconciler(parts)

    def _make_manifests(self) -> ManifestReconciler | None:
        sources = self._ports.sources
        if sources is None:
            return None
        if not self.settings.unsigned_objects:
            sources = replace(sources, check_object=self._authenticator.object)
        around = ManifestReconcilerContext(
            node=self.node,
            settings=lambda: self.settings,
            sources=sources,
            bucket=self._ports.bucket,
            link=self._ports.link,
            run_queue=self._run_queue,
            agent_events=self._agent_events,
            is_disabled=self._maintenance.is_disabled,
            assigned=lambda: self._assigned.facts,
            clock=self._clock,
            refreshes=self._refreshes,
            metrics=self._metrics,
            forbids=lambda principal, action: self._policy.refusal(principal, action, action),
        )
        return ManifestReconciler(around)

    def _make_run_loop(self) -> RunLoop:
        parts = RunParts(
            run_queue=self._run_queue,
            handlers=self._handlers,
            worker=self._executor,
            teller=self._teller,
            maintenance=self._maintenance,
            policy=self._policy,
            checkpoints=self._checkpoints,
            keep=self._revision_guard.keep,
            on_end=self._note,
        )
        return RunLoop(parts)

    def _executor_context(self) -> ExecutorContext:
        return ExecutorContext(
            node=self.node,
            version=self._version,
            engine=self._ports.make_engine(self._data.open, self._revision_guard.numbers),
            facts=self._current_facts,
            unpack=self._bundles.unpacked,
            shorten=self._ports.shorten,
            refreshes=self._refreshes,
            external_data=lambda: self.settings.external_data_url,
            metrics=self._metrics,
        )

    def _request_context(self) -> RequestContext:
        async def matches(request: Request) -> bool:
            if not request.targets and not request.where:
                return True
            facts = await self._facts.latest()
            asked = request.targets, request.where
            return await self._ports.matches(*asked, self.node, facts, is_request=True)

        return RequestContext(
            node=self.node,
            machine=self._machine,
            started=self._started,
            events=self._ports.events,
            sign=self._author.sign_answer,
            matches=matches,
            refusal=self._node_status.refusal,
            body=self._node_status.bodies(),
            run_of=self._catch_up.run_of,
            authenticate=self._authenticator.request,
            forbids=self._policy.refusal,
        )
