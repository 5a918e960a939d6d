"""The dashboard: an HTTP server for one fleet. It reads the event stream once for all browsers."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Protocol

from aiohttp import web
from msgspec import Struct

from ccm_agent.model.errors import CcmError
from ccm_ctl.dashboard.action_pages import ActionPages
from ccm_ctl.dashboard.feed import EventFeed
from ccm_ctl.dashboard.fleet_pages import FleetPages
from ccm_ctl.dashboard.fleet_state import FleetState
from ccm_ctl.dashboard.middleware import ACCESS, HAS_FLEET, READING, guard_host, require_user
from ccm_ctl.dashboard.node_pages import NodePages
from ccm_ctl.dashboard.node_past_pages import NodePastPages
from ccm_ctl.dashboard.run_pages import RunPages
from ccm_ctl.dashboard.search_pages import SearchPages
from ccm_ctl.dashboard.session_pages import add_session
from ccm_ctl.dashboard.static_files import add_pages, read_static
from ccm_ctl.dashboard.stored_pages import StoredPages
from ccm_ctl.dashboard.stream import EventStreams
from ccm_ctl.dashboard.undo_pages import UndoPages
from ccm_ctl.fleet.events.live_events import LiveEvents
from ccm_ctl.fleet.runs.background_runs import BackgroundRuns

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable

    from ccm_ctl.dashboard.access import Access
    from ccm_ctl.dashboard.node_pages import Explain
    from ccm_ctl.fleet.events.live_events import LiveEvent
    from ccm_ctl.fleet.ports import Fleet

BODY_BYTES = 64 << 10
"""The maximum size, in bytes, of a request's body, such as a token or the reason for an action."""
RUNS_AT_ONCE = 20
"""The maximum number of runs in progress that were started by users of this dashboard."""


class ListenError(CcmError):
    """The dashboard cannot listen on the address."""

    code = "dashboard.listen"


class FurtherPages(Protocol):
    """The API for the pages of another package."""

    def add_to(self, application: web.Application) -> None:
        """Add the routes."""


class DashboardOptions(Struct, frozen=True, kw_only=True):
    """
    The dashboard's address and its access control.

    Attributes:
        listen, port: The address on which to listen. Port 0 means any free port.
        names: Additional host names of the dashboard.
        tls: The TLS context with the certificate. None: plain HTTP on loopback.
        access: Authenticates browsers.
        explain: Returns the output of `ccmctl why --json` for a node.
        on_sign_in: Called when the printed address has been used.
        pages: The APIs for additional pages.
    """

    listen: str
    port: int
    names: tuple[str, ...] = ()
    tls: ssl.SSLContext | None = None
    access: Access
    explain: Explain
    on_sign_in: Callable[[], None] = lambda: None
    pages: tuple[FurtherPages, ...] = ()


class Dashboard:
    """
    The server, with the data that it reads.

    Args:
        fleet: The bus.
        options: The address and the access control.
    """

    def __init__(self, fleet: Fleet, options: DashboardOptions) -> None:
        self._fleet = fleet
        self._options = options
        self.feed = EventFeed(fleet.clock.now)
        self.state = FleetState(fleet, self.feed.wake)
        self._started = BackgroundRuns(fleet, at_once=RUNS_AT_ONCE)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """
        Serve within the block. Yields the address, such as `http://127.0.0.1:7480`.

        Raises:
            ListenError: The port is in use, or the host does not have this address.
        """
        live = LiveEvents(
            self._fleet, on_events=self._take, on_restart=self.feed.restart, on_state=self._connection
        )
        listening = serve_pages(self._options, self._add_pages, has_fleet=True)
        async with listening as address, asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(live.run(), name="dashboard:events")
            silent = tasks.create_task(self.state.silent.run(), name="dashboard:silent-nodes")
            looking = tasks.create_task(self.state.run(lambda: self.feed.readers > 0), name="dashboard:fleet")
            try:
                yield address
            finally:
                reading.cancel()
                looking.cancel()
                silent.cancel()
                await self._started.end()

    def _take(self, events: list[LiveEvent]) -> None:
        self.feed.add(events)
        self.state.look_soon()

    def _connection(self, is_current: bool) -> None:
        self.feed.is_current = is_current
        self.feed.wake()
        self.state.look_soon()

    def _add_pages(self, application: web.Application) -> None:
        application.router.add_get("/api/stream", EventStreams(self.feed, self.state).serve)
        FleetPages(self._fleet, self.feed, self.state).add_to(application)
        NodePages(self._fleet, self.state, self._options.explain).add_to(application)
        NodePastPages(self._fleet, self.state).add_to(application)
        RunPages(self._fleet).add_to(application)
        StoredPages(self._fleet, self.state).add_to(application)
        SearchPages(self._fleet).add_to(application)
        UndoPages(self._fleet, self._started).add_to(
            application
        )  # before the actions, because the routes have the same prefix
        ActionPages(self._fleet, self._started).add_to(application)
        for pages in self._options.pages:
            pages.add_to(application)


@contextlib.asynccontextmanager
async def serve_pages(
    options: DashboardOptions, add: Callable[[web.Application], None], *, has_fleet: bool
) -> AsyncIterator[str]:
    """
    Serve pages within the block. Yields the address.

    Args:
        options: The address and the access control.
        add: Adds the routes of the pages.
        has_fleet: Whether the server is connected to a fleet.

    Raises:
        ListenError: The port is in use, or the host does not have this address.
    """
    hosts = set[str]()
    application = web.Application(middlewares=[guard_host(hosts), require_user], client_max_size=BODY_BYTES)
    application[ACCESS], application[READING], application[HAS_FLEET] = options.access, set(), has_fleet
    add_session(application, options.on_sign_in)
    add(application)
    add_pages(application, read_static())
    runner = web.AppRunner(
        application, access_log=None, handle_signals=False, handler_cancellation=True, shutdown_timeout=1.0
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, options.listen, options.port, ssl_context=options.tls)
        await _start(site, options)
        host, port = runner.addresses[0][:2]
        hosts |= host_headers(host, port, options)
        yield f"{'https' if options.tls else 'http'}://{_bracketed(_shown(options, host))}:{port}"
    finally:
        await runner.cleanup()


async def _start(site: web.TCPSite, options: DashboardOptions) -> None:
    try:
        await site.start()
    except (OSError, UnicodeError) as err:
        reason = getattr(err, "strerror", None) or str(err)
        raise ListenError(
            f"{options.listen}:{options.port}: cannot listen there: {reason}; --port 0 takes a free port"
        ) from err


def host_headers(host: str, port: int, options: DashboardOptions) -> set[str]:
    """Return the accepted values of the Host header."""
    names = {host, options.listen, *options.names}
    if options.tls is None:
        names |= {"localhost"}
    default = 443 if options.tls else 80
    shown = {_bracketed(name.lower()) for name in names if name not in ("", "0.0.0.0", "::")}
    return {f"{name}:{port}" for name in shown} | (shown if port == default else set())


def _shown(options: DashboardOptions, host: str) -> str:
    """Return the host name to print: the first of the additional names, or the address if browsers can open it."""
    if options.names:
        return options.names[0]
    return host if options.tls is None else options.listen


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
