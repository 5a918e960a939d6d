"""
`/metrics`: the numbers of this agent for whoever may connect to its port.

Off unless configured, and on loopback unless told otherwise: what stands there are names of resources and manifests. An agent
whose port is taken converges all the same, and tries again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ccm_agent.metrics.registry import CONTENT_TYPE, Registry

if TYPE_CHECKING:
    from aiohttp import web

log = logging.getLogger(__name__)

RETRY_S = 30.0
"""A port that is taken is tried again after this time."""


class Monitor:
    """
    The web server of one agent.

    Attributes:
        served: Address and port, once it listens.
    """

    def __init__(self, registry: Registry, address: str, port: int, *, retry_s: float = RETRY_S) -> None:
        """Nothing listens before `run`; port 0 is any that is free."""
        self.served: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
        self._registry = registry
        self._address = address
        self._port = port
        self._retry_s = retry_s

    async def run(self) -> None:
        """Serve, until cancelled."""
        from aiohttp import web

        application = web.Application()
        application.router.add_get("/metrics", self._metrics)
        runner = web.AppRunner(application, access_log=None, handle_signals=False)
        await runner.setup()
        try:
            await self._listen(runner)
            self.served.set_result(tuple(runner.addresses[0][:2]))
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    async def _listen(self, runner: web.AppRunner) -> None:
        from aiohttp import web

        where = {"address": self._address, "port": self._port}
        while True:
            site = web.TCPSite(runner, self._address, self._port)
            try:
                await site.start()
            except (OSError, UnicodeError) as err:  # the latter of a name that no host can have
                log.error(
                    "metrics are not served: is the port taken?",
                    extra={**where, "reason": getattr(err, "strerror", None) or str(err)},
                )
                await site.stop()
                await asyncio.sleep(self._retry_s)
            else:
                log.info("metrics are served", extra=where)
                return

    async def _metrics(self, _request: web.Request) -> web.Response:
        from aiohttp import web

        text = await asyncio.to_thread(self._registry.exposition)
        return web.Response(body=text.encode(errors="replace"), headers={"Content-Type": CONTENT_TYPE})
