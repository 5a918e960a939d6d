"""
The agent of one node: it builds the services, starts them, and stops them in order.

It never waits for the broker: events wait in the spool. What it must know after a kill is on disk before it is published.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from pathlib import Path
from typing import Any

from ccm_agent.agent.desired.loop import ConvergenceResult
from ccm_agent.agent.node.metrics_server import MetricsServer, add_gauges
from ccm_agent.agent.node.status import LocalStatus
from ccm_agent.agent.process.composition import make_services
from ccm_agent.agent.process.context import AgentContext, AgentPorts
from ccm_agent.agent.state.request_log import RequestLogEntry
from ccm_agent.agent.state.settings import Settings
from ccm_agent.agent.state.state_folder import StateLock
from ccm_agent.model.errors import BusError
from ccm_agent.model.wire import Disabled
from ccm_agent.storage.spool import OpenRun

log = logging.getLogger(__name__)

LAST_EVENTS_S = 3.0
"""How long a stopping agent waits until its last events are acknowledged; the rest is sent after the next start."""


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
        node: Its identity.
        secrets: What its runs learned to be secret, for the log.
    """

    def __init__(self, settings: Settings, ports: AgentPorts, *, version: str) -> None:
        """Blocking: reads the identity."""
        context = self._context = AgentContext(settings, ports, version=version)
        self.node, self.secrets = context.node, ports.secrets
        folders = [Path(settings.cache_dir)] if settings.cache_dir else []
        self._state_lock = StateLock(context.state, *folders)
        self._services = make_services(context, self.converge_once)
        self._assignments = self._services.desired.assignments
        self._manifests = self._services.desired.manifests
        context.admission.maintenance.on_change(self._on_maintenance)

    # -- start and stop

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
        context, services = self._context, self._services
        left, open_runs = await asyncio.to_thread(self._open)
        await asyncio.to_thread(services.runs.recovery.recover, left, open_runs, services.handler.build_job)
        context.author.report_start()
        self._report_policy()
        await services.subscriptions.open()
        context.link.on_connect(services.heartbeats.reconnected)
        context.link.on_connect(services.missed.expect)
        context.presence.request_heartbeat()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(one, name=f"agent:{name}") for name, one in self._service_runs().items()
            ]
            ready()
            log.info("the agent has started", extra={"node": self.node, "version": context.version})
            await stop.wait()
            is_idle = await self._drain(restarts)
            self.close()
            if not is_idle:
                leave()
            await cancel_and_wait(tasks)
        log.info("the agent has stopped", extra={"node": self.node})

    def close(self) -> None:
        """Close the files of the agent's state; nothing is lost by it."""
        self._context.ports.close()
        self._context.spool.close()
        self._context.request_log.close()
        self._state_lock.release()

    def _open(self) -> tuple[list[RequestLogEntry], list[OpenRun]]:
        """Read what an earlier process left: its unfinished requests, and runs without an end."""
        self._state_lock.take()
        self._context.open()
        self._services.missed.open()
        self._assignments.open()
        open_runs = self._context.spool.open()
        return self._context.request_log.open(), open_runs

    def _service_runs(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The services that run concurrently while the agent runs, by name."""
        context, services = self._context, self._services
        running = {
            "maintenance": context.admission.maintenance.run(),
            "missed_schedules": services.missed.run(),
            "publisher": services.publisher.run(),
            "requests": services.requests.run(
                services.handler.handle, context.events.refused, services.missed.heard
            ),
            "runs": services.run_loop.run(),
            "progress": services.progress.run(),
            "subscriptions": services.subscriptions.run(),
            "heartbeat": services.heartbeats.run(),
            "assignments": self._assignments.run(),
            "commands": services.commands.run(services.command_handler.close),
            "imports": services.imports.run(),
            "decisions": context.decisions.run(),
        }
        if context.ports.slots is not None:
            running["slots"] = context.ports.slots.run()
        if context.ports.keep_credentials is not None:
            running["credentials"] = context.ports.keep_credentials(services.heartbeats.reconnected)
        if self._manifests is not None:
            running["manifests"] = self._manifests.run()
        if context.metrics is not None:
            registry, settings = context.metrics.registry, context.settings
            add_gauges(
                registry,
                context.spool,
                services.publisher,
                context.run_queue,
                context.presence,
                context.link,
            )
            registry.add(*context.ports.readings)
            running["metrics"] = MetricsServer(
                registry, settings.monitor_address, settings.monitor_port
            ).run()
        return running

    async def _drain(self, restarts: Callable[[], Awaitable[bool]]) -> bool:
        """Finish the current resource and close the session, in bounded time. False: a resource still runs."""
        context, services, is_idle = self._context, self._services, True
        services.run_loop.close()
        services.requests.close()
        if not services.run_loop.is_idle.is_set() and await restarts():
            services.runs.executor.pause()
        else:
            services.runs.executor.interrupt()
        try:
            async with asyncio.timeout(context.settings.drain_s):
                await services.run_loop.is_idle.wait()
        except TimeoutError:
            # its program may be a package manager that restarts this very agent: it is not killed
            is_idle = False
            services.runs.executor.abandon()
        await context.decisions.save()
        context.events.stopped()
        try:
            async with asyncio.timeout(LAST_EVENTS_S):
                if context.link.connected:
                    await context.presence.remove_presence()
                    await context.spool.emptied()
        except (TimeoutError, BusError) as err:
            log.info(
                "some events are sent after the next start",
                extra={"waiting": context.spool.backlog, "reason": str(err)},
            )
        return is_idle

    # -- what the process and the control socket use

    @property
    def settings(self) -> Settings:
        """The configuration as it is now."""
        return self._context.settings

    @property
    def is_duplicate(self) -> bool:
        """Another agent uses this node's name."""
        return self._context.presence.is_duplicate

    @property
    def scopes(self) -> list[str]:
        """The scopes of requests that this node receives."""
        return self._context.presence.scopes

    @property
    def local_status(self) -> LocalStatus:
        """What the control socket and the status file report."""
        return self._services.local_status

    @property
    def is_busy(self) -> bool:
        """A run is under way, or waits."""
        queue = self._context.run_queue
        return queue.current is not None or bool(queue.waiting)

    def reload(self, settings: Settings) -> None:
        """Use another configuration, except for settings that need a restart."""
        self._context.settings = settings
        self._context.record.unsigned = settings.accepted_unsigned
        self.reload_policy()
        self._services.subscriptions.look_again()
        self._context.presence.request_heartbeat()
        if self._manifests is not None:
            self._manifests.reload()

    def reload_policy(self) -> None:
        """Read the node's policy again, a file of a few kilobytes, and judge all assignments by it."""
        self._context.load_policy()
        self._report_policy()
        self._assignments.decide_again()

    async def reload_maintenance(self) -> None:
        """Read again whether the node is disabled; the state applies when this returns."""
        await self._context.admission.maintenance.read_now()

    async def wait_connected(self) -> None:
        """Return when the broker is connected, however long that takes."""
        await self._context.link.wait_connected()

    async def converge_once(self) -> list[ConvergenceResult]:
        """
        Converge now on all manifests and assignments; their results.

        Raises:
            Refusal: The node is disabled, or another agent uses its name.
        """
        if refusal := self._context.admission.refusal("apply"):
            raise refusal
        manifests = await self._manifests.once() if self._manifests is not None else []
        return manifests + await self._assignments.once()

    # -- what one service reports to others

    def _report_policy(self) -> None:
        self._context.admission.policy.report(self._context.presence, self._context.events.refused)

    def _on_maintenance(self, disabled: Disabled | None) -> None:
        self._context.record.disabled = disabled
        maintenance = self._context.admission.maintenance
        self._context.events.maintenance(disabled, maintenance.enabled_by, maintenance.enabled_why)
        self._context.presence.request_heartbeat()
        self._assignments.decide_again()
        if disabled is None and self._manifests is not None:
            self._manifests.converge_soon()
