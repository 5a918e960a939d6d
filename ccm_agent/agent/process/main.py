"""
The agent as a process: signals, the service manager, and the exit.

systemd is notified as described in sd_notify(3): one datagram to the socket named in the environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

from msgspec.structs import replace

from ccm_agent.agent.desired.loop import ConvergenceResult
from ccm_agent.agent.process.agent import Agent
from ccm_agent.agent.process.control_socket import ControlSocket
from ccm_agent.agent.process.log_setup import set_up_logging
from ccm_agent.agent.state.settings import Settings, read_config
from ccm_agent.model.errors import CcmError, HostError

log = logging.getLogger(__name__)


class SystemdNotifier:
    """
    Sends notifications to the service manager, if there is one.

    Attributes:
        watchdog_s: The watchdog interval of the service manager; 0: no watchdog.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        wanted = environ.get("WATCHDOG_USEC", "")
        is_for_us = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s = int(wanted) / 1e6 if wanted.isdecimal() and is_for_us else 0.0

    def ready(self, status: str) -> None:
        """Notify that the service is up."""
        self._send(f"READY=1\nSTATUS={status}")

    def status(self, status: str) -> None:
        """Send the line that `systemctl status` shows."""
        self._send(f"STATUS={status}")

    def reloading(self) -> None:
        """Notify that the configuration is being reloaded; call `ready` when that is done."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Notify that the service is stopping."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Send a keep-alive to the watchdog."""
        self._send("WATCHDOG=1")

    def _send(self, state: str) -> None:
        if not self._address:
            return
        # A leading @ is systemd's notation for an abstract socket.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(state.encode(), address)
        except OSError as err:
            log.debug("the service manager does not accept notifications", extra={"reason": str(err)})


BuildAgent = Callable[[Settings], AbstractAsyncContextManager[Agent]]
"""Builds an agent on real adapters, which exist while the context is open."""

NEEDS_RESTART = {
    "identity": "identity",
    "state_dir": "state_dir",
    "broker": "nats",
    "monitor_port": "monitor_port",
    "monitor_address": "monitor_address",
    "registration": "registration",
    "registration_stream": "registration_stream",
    "registration_settle_s": "registration_settle",
    "spool_limit_bytes": "spool_limit_mib",
    "queue_limit": "queue_limit",
    "facts_file": "facts_file",
    "stamped_data": "stamped_data",
    "heartbeat_s": "heartbeat",
    "presence_ttl_s": "heartbeat",
}
"""Settings that a reload does not change, with their keys in the configuration file."""

CONNECT_S = 3.0
"""How long an agent that converges once waits for the broker. If the broker is unavailable, the agent waits the full time."""


async def serve(
    path: Path,
    settings: Settings,
    build: BuildAgent,
    notifier: SystemdNotifier,
    hand_over: Callable[[], int],
    restarts: Callable[[], Awaitable[bool]],
) -> None:
    """
    Run an agent until SIGTERM or SIGINT; SIGHUP reads its configuration again.

    Args:
        path: The configuration file.
        settings: The configuration at startup.
        build: Builds the agent.
        notifier: The service manager.
        hand_over: Hands the output of programs that outlive the agent to another process.
        restarts: Returns whether the process that is stopping will be followed by another one.
    """
    stop = asyncio.Event()
    with _one_reason():
        async with (
            build(settings) as agent,
            _signals(path, agent, stop, notifier),
            asyncio.TaskGroup() as group,
        ):
            beside = [group.create_task(_stay_alive(notifier), name="service:watchdog")]

            def ready() -> None:
                notifier.ready(f"node {agent.node}")
                local = ControlSocket(agent, Path(settings.state_dir))
                beside.append(group.create_task(local.run(), name="service:local"))

            try:
                await agent.run(stop, ready, lambda: _leave(hand_over), restarts)
            finally:
                for task in beside:
                    task.cancel()


async def serve_once(
    path: Path, settings: Settings, build: BuildAgent, hand_over: Callable[[], int], limit_s: float
) -> list[ConvergenceResult]:
    """
    Run an agent until it has converged once, if no other agent is running.

    Args:
        path, settings, build, hand_over: See `serve`.
        limit_s: The time limit. Afterwards the agent stops, as with SIGTERM.

    Raises:
        LockError: An agent with this state folder is running.
        Refusal: The node is disabled.
        HostError: The agent was stopped, or the time limit was exceeded.
    """
    stop, up = asyncio.Event(), asyncio.Event()
    with _one_reason():
        async with (
            build(settings) as agent,
            _signals(path, agent, stop, SystemdNotifier(environ={})),
            asyncio.TaskGroup() as group,
        ):
            with contextlib.suppress(TimeoutError):
                # Sources and data may be on the broker; without the broker, the last good versions are applied.
                async with asyncio.timeout(CONNECT_S):
                    await agent.wait_connected()
            life = group.create_task(agent.run(stop, up.set, lambda: _leave(hand_over)), name="service:agent")
            started = group.create_task(up.wait(), name="service:up")
            await asyncio.wait([life, started], return_when=asyncio.FIRST_COMPLETED)
            started.cancel()
            # Not a task of the group: its refusal would cancel the agent, which must finish the current resource.
            once = asyncio.create_task(agent.converge_once(), name="service:once")
            await asyncio.wait([life, once], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            why = f"it did not end within {limit_s:g} s" if not life.done() else "it was stopped"
            stop.set()
            await life
            if once.done():
                return once.result()
            once.cancel()
            raise HostError(f"{why}: the rest was not applied; `ccm agent status` shows the last run")
    raise AssertionError("unreachable: the block returns or raises")


def _leave(hand_over: Callable[[], int]) -> None:
    log.warning("the agent exits while a resource continues to run", extra={"streams": hand_over()})
    logging.shutdown()
    # A normal exit would cancel the task that waits for the resource's program, and end the program with it (ADR 23).
    os._exit(0)


@contextmanager
def _one_reason() -> Iterator[None]:
    try:
        yield
    except ExceptionGroup as errors:
        # If an agent cannot start, show only the one error that explains why.
        reasons, others = errors.split(CcmError)
        if reasons is not None and others is None and len(reasons.exceptions) == 1:
            raise reasons.exceptions[0] from errors
        raise


async def _stay_alive(notifier: SystemdNotifier) -> None:
    """Notify the watchdog that the event loop runs, twice per watchdog interval, as sd_watchdog_enabled(3) recommends."""
    while notifier.watchdog_s:
        notifier.alive()
        await asyncio.sleep(notifier.watchdog_s / 2)


@asynccontextmanager
async def _signals(
    path: Path, agent: Agent, stop: asyncio.Event, notifier: SystemdNotifier
) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()

    def end() -> None:
        log.info("stopping")
        notifier.stopping()
        stop.set()

    def reload() -> None:
        notifier.reloading()
        try:
            # The file has a few kilobytes and an operator requested the reload; a thread would only change the order of
            # events.
            _reload(path, agent)
        except CcmError as err:
            log.error("the configuration was not reloaded", extra={"reason": str(err)})
            agent.reload_policy()  # a tightened policy must not wait until the configuration is fixed
        notifier.ready(f"node {agent.node}")

    handlers = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: reload}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


def merge_reloaded(now: Settings, read: Settings) -> tuple[Settings, list[str]]:
    """Return the configuration with the reloadable changes applied, and the changed keys that need a restart."""
    waiting = [name for name in NEEDS_RESTART if getattr(read, name) != getattr(now, name)]
    kept = replace(read, **{name: getattr(now, name) for name in waiting})
    return kept, list(dict.fromkeys(NEEDS_RESTART[name] for name in waiting))


def _reload(path: Path, agent: Agent) -> None:
    settings, keys = merge_reloaded(agent.settings, read_config(path))
    if keys:
        log.warning("some configuration changes need a restart of the agent", extra={"keys": ", ".join(keys)})
    set_up_logging(settings.log_level, settings.log_format, secrets=agent.secrets)
    agent.reload(settings)
    log.info("the configuration was reloaded")
