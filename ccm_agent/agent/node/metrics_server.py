"""
`/metrics`: this agent's metrics for every client that can connect to its port.

It is off by default, and listens on loopback by default, because the metrics contain names of resources and manifests. If
the port is in use, the agent still converges, and tries to listen again later.
"""

from __future__ import annotations

import asyncio
import logging
from ipaddress import ip_address
from typing import TYPE_CHECKING

from ccm_agent.metrics.registry import CONTENT_TYPE, CallbackMetric, MetricsRegistry

if TYPE_CHECKING:
    from aiohttp import web

    from ccm_agent.agent.events.publisher import EventPublisher
    from ccm_agent.agent.runs.run_queue import RunQueue
    from ccm_agent.agent.state.presence import NodePresence
    from ccm_agent.model.ports import BrokerConnection
    from ccm_agent.storage.spool import Spool

log = logging.getLogger(__name__)

RETRY_S = 30.0
"""Pause before another attempt to listen on a port that is in use."""


CONNECTIONS = 32
"""
The maximum number of connections. Each uses a file descriptor, and a client that keeps connecting must not exhaust them.
"""
CONNECTION_S = 120.0
"""A connection is closed after this time, with or without a request."""


_SERVED = "metrics are served"
_SERVED_HERE = (
    "metrics are served to this host only; set `monitor_address` (0.0.0.0 for every address) to serve others"
)


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


class _Few:
    """Creates a protocol for each connection, and closes connections over the limit."""

    def __init__(self, server: web.Server) -> None:
        self._server = server

    def __call__(self) -> asyncio.BaseProtocol:
        if len(self._server.connections) >= CONNECTIONS:
            return _Refused()
        made = self._server()
        asyncio.get_running_loop().call_later(CONNECTION_S, made.force_close)
        return made


class _Refused(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class MetricsServer:
    """
    The web server of one agent.

    Attributes:
        served: The address and port; set once the server listens.
    """

    def __init__(
        self, registry: MetricsRegistry, address: str, port: int, *, retry_s: float = RETRY_S
    ) -> None:
        """Create the server; it listens after `run` is called. Port 0 means any free port."""
        self.served: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
        self._registry = registry
        self._address = address
        self._port = port
        self._retry_s = retry_s

    async def run(self) -> None:
        """Serve until cancelled."""
        from aiohttp import web

        application = web.Application()
        application.router.add_get("/metrics", self._metrics)
        runner = web.AppRunner(application, access_log=None, handle_signals=False)
        await runner.setup()
        assert runner.server is not None
        listening = None
        try:
            listening = await self._listen(_Few(runner.server))
            self.served.set_result(tuple(listening.sockets[0].getsockname()[:2]))
            await asyncio.Event().wait()
        finally:
            if listening is not None:
                listening.close()
            await runner.cleanup()

    async def _listen(self, connections: _Few) -> asyncio.Server:
        where = {"address": self._address, "port": self._port}
        loop = asyncio.get_running_loop()
        while True:
            try:
                listening = await loop.create_server(connections, self._address, self._port)
            except (OSError, UnicodeError) as err:  # UnicodeError: the name is not a valid host name
                log.error(
                    "metrics are not served: the port may be in use",
                    extra={**where, "reason": getattr(err, "strerror", None) or str(err)},
                )
                await asyncio.sleep(self._retry_s)
            else:
                log.info(_SERVED_HERE if _is_loopback(self._address) else _SERVED, extra=where)
                return listening

    async def _metrics(self, _request: web.Request) -> web.Response:
        from aiohttp import web

        text = await asyncio.to_thread(self._registry.exposition)
        return web.Response(body=text.encode(errors="replace"), headers={"Content-Type": CONTENT_TYPE})


def add_gauges(
    registry: MetricsRegistry,
    spool: Spool,
    publisher: EventPublisher,
    run_queue: RunQueue,
    presence: NodePresence,
    link: BrokerConnection,
) -> None:
    """Add metrics of the agent's components."""
    loop = asyncio.get_running_loop()
    prefix = "choria_ccm_agent"
    registry.add(
        CallbackMetric(f"{prefix}_spool_events", "Events not yet acknowledged", lambda: spool.backlog),
        CallbackMetric(f"{prefix}_spool_bytes", "Size of the spool", lambda: spool.size_bytes),
        CallbackMetric(
            f"{prefix}_events_sent_total", "Events acknowledged", lambda: publisher.sent, kind="counter"
        ),
        CallbackMetric(f"{prefix}_runs_waiting", "Queued runs", lambda: len(run_queue.waiting)),
        CallbackMetric(
            f"{prefix}_running", "Whether a run is in progress", lambda: run_queue.current is not None
        ),
        CallbackMetric(f"{prefix}_connected", "Whether the broker is connected", lambda: link.connected),
        CallbackMetric(
            f"{prefix}_disabled",
            "Whether an operator disabled the agent",
            lambda: presence.record.disabled is not None,
        ),
        CallbackMetric(
            f"{prefix}_duplicate", "Whether another agent uses the identity", lambda: presence.is_duplicate
        ),
        CallbackMetric(f"{prefix}_tasks", "Tasks of the event loop", lambda: len(asyncio.all_tasks(loop))),
    )
