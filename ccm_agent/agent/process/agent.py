"""
The agent of one node. It builds its services, starts them, and stops them in order.

The agent never waits for the broker: events wait in the spool. State that must survive a kill is written to disk before it
is published.
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
"""
How long a stopping agent waits for the acknowledgment of its last events; unacknowledged events are sent after the next
start.
"""


async def cancel_and_wait(tasks: Collection[asyncio.Task[Any]], retry_s: float = 5.0) -> None:
    """
    Cancel tasks, and repeat the cancellation every `retry_s` until all have ended. `retry_s` is longer than any task needs to
    clean up.

    In Python 3.11, `asyncio.wait_for` loses a cancellation that arrives together with its result. A task that waits in a
    library would then never end, and neither would the process.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=retry_s)


async def never() -> bool:
    """Return False: no other process follows."""
    return False


class Agent:
    """
    One node's agent.

    Attributes:
        node: Its identity.
        secrets: The secrets that its runs have found, to mask them in the log.
    """

    def __init__(self, settings: Settings, ports: AgentPorts, *, version: str) -> None:
        """Read the identity and build the services. Blocking."""
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
        Run until `stop` is set, then finish the current resource and publish that the agent stops.

        Args:
            stop: Set by a signal.
            ready: Called when everything that does not need the broker has started.
            leave: Called last if a resource is still running; ends the process. If it returns, the resource's program is
                killed.
            restarts: Returns whether another process follows, which then continues the current run.
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
        """Close the agent's state files. No data is lost."""
        self._context.ports.close()
        self._context.spool.close()
        self._context.request_log.close()
        self._state_lock.release()

    def _open(self) -> tuple[list[RequestLogEntry], list[OpenRun]]:
        """Return the unfinished requests and the runs without an end of an earlier process."""
        self._state_lock.take()
        self._context.open()
        self._services.missed.open()
        self._assignments.open()
        open_runs = self._context.spool.open()
        return self._context.request_log.open(), open_runs

    def _service_runs(self) -> dict[str, Coroutine[Any, Any, None]]:
        """Return the services that run concurrently while the agent runs, by name."""
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
        """
        Finish the current resource and close the session, within a time limit. Returns False if a resource is still running.
        """
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
            # The resource's program may be a package manager that restarts this agent, so do not kill it.
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

    # -- used by the process and the control socket

    @property
    def settings(self) -> Settings:
        """The current configuration."""
        return self._context.settings

    @property
    def is_duplicate(self) -> bool:
        """Whether another agent uses this node's name."""
        return self._context.presence.is_duplicate

    @property
    def scopes(self) -> list[str]:
        """The scopes of requests that this node receives."""
        return self._context.presence.scopes

    @property
    def local_status(self) -> LocalStatus:
        """The status as the control socket and the status file report it."""
        return self._services.local_status

    @property
    def is_busy(self) -> bool:
        """Whether a run is in progress or waiting."""
        queue = self._context.run_queue
        return queue.current is not None or bool(queue.waiting)

    def reload(self, settings: Settings) -> None:
        """Use a new configuration, except for settings that need a restart."""
        self._context.settings = settings
        self._context.record.unsigned = settings.accepted_unsigned
        self.reload_policy()
        self._services.subscriptions.look_again()
        self._context.presence.request_heartbeat()
        if self._manifests is not None:
            self._manifests.reload()

    def reload_policy(self) -> None:
        """Read the node's policy again (a file of a few kilobytes), and check all assignments against it."""
        self._context.load_policy()
        self._report_policy()
        self._assignments.decide_again()

    async def reload_maintenance(self) -> None:
        """Read again whether the node is disabled. The new state is in effect on return."""
        await self._context.admission.maintenance.read_now()

    async def wait_connected(self) -> None:
        """Wait until the broker is connected, without a time limit."""
        await self._context.link.wait_connected()

    async def converge_once(self) -> list[ConvergenceResult]:
        """
        Converge now on all manifests and assignments, and return the results.

        Raises:
            Refusal: The node is disabled, or another agent uses its name.
        """
        if refusal := self._context.admission.refusal("apply"):
            raise refusal
        manifests = await self._manifests.once() if self._manifests is not None else []
        return manifests + await self._assignments.once()

    # -- reports from one service to others

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
