"""`ccmctl studio`: write manifests in a browser."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ccm_agent.model.errors import CcmError
from ccm_agent.model.exits import Exit
from ccm_ctl.commands.command_tree import verb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ccm_ctl.app import Application
    from ccm_ctl.dashboard.access import Access
    from ccm_ctl.dashboard.server import DashboardOptions
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.studio.workspace import Workspace

PORT = 7481


@verb(
    "studio",
    examples=[
        "ccmctl studio                # the YAML files below the working directory",
        "ccmctl studio site.yaml      # one file, which may be new",
        "ccmctl studio site/ --allow-actions",
    ],
    options=[
        click.Argument(["path"], metavar="[FILE|DIR]", type=click.Path(), default="."),
        click.Option(
            ["--port"],
            type=click.IntRange(0, 65535),
            default=PORT,
            show_default=True,
            help="Listen on this port of the loopback address; 0 selects a free one.",
        ),
        click.Option(["--allow-actions"], is_flag=True, help="Let the pages also change the fleet."),
    ],
)
def studio(application: Application, path: str, port: int, allow_actions: bool) -> Exit:
    """
    Write manifests in a browser, with forms, checks and the YAML side by side, until interrupted.

    The printed URL works once, within 15 minutes, on this host only. The browser reads and saves YAML files of DIR,
    or only FILE. The other pages of `ccmctl dashboard` are included. Without a broker, you can only edit, check and save.
    """
    from ccm_ctl.studio.workspace import Workspace

    workspace = Workspace.open(Path(path))
    application.goes_on_for_ever = True

    async def work() -> Exit:
        async with _fleet(application) as (fleet, operator):
            access = await asyncio.to_thread(_access, operator, may_act=allow_actions and fleet is not None)
            options = _options(application, fleet, access, workspace, port)
            await _serve(application, fleet, options)
        return Exit.OK

    return application.run_alone(work)


@contextlib.asynccontextmanager
async def _fleet(application: Application) -> AsyncIterator[tuple[Fleet | None, str]]:
    """Yield the fleet (None without a broker) and the operator's name."""
    async with contextlib.AsyncExitStack() as stack:
        fleet, operator = None, "operator"
        try:
            operator = application.settings().identity
            fleet = (await stack.enter_async_context(application.broker())).fleet
            await fleet.nodes.revision()  # this fails if the broker has no streams
        except CcmError as err:
            fleet = None
            application.terminal.note(f"no connection to the fleet: {err.message}")
            application.terminal.note(
                "manifests can be written, checked and saved; start again to connect to the fleet"
            )
        yield fleet, operator


def _access(operator: str, *, may_act: bool) -> Access:
    from ccm_agent.model.state_directory import state_directory
    from ccm_ctl.dashboard.access import Access, read_or_make_key

    return Access(read_or_make_key(Path(state_directory())), operator, {}, time.time, may_act=may_act)


def _options(
    application: Application, fleet: Fleet | None, access: Access, workspace: Workspace, port: int
) -> DashboardOptions:
    from ccm_ctl.commands.nodes.why import describe
    from ccm_ctl.dashboard.server import DashboardOptions
    from ccm_ctl.fleet.ports import LocalClock
    from ccm_ctl.studio.fleet_pages import StudioFleetPages
    from ccm_ctl.studio.studio_pages import StudioPages

    files = StudioPages(workspace)

    def on_sign_in() -> None:
        application.terminal.note("a browser has signed in")

    return DashboardOptions(
        listen="127.0.0.1",
        port=port,
        access=access,
        explain=lambda evidence: describe(evidence, LocalClock().now()),
        on_sign_in=on_sign_in,
        pages=(files,)
        if fleet is None
        else (files, StudioFleetPages(fleet, application.render_worker(), workspace)),
    )


async def _serve(application: Application, fleet: Fleet | None, options: DashboardOptions) -> None:
    """Serve the pages of the fleet and the studio, or only the studio."""
    from ccm_ctl.dashboard.server import Dashboard, serve_pages

    def add(to: object) -> None:
        for pages in options.pages:
            pages.add_to(to)  # type: ignore[arg-type]

    serving = Dashboard(fleet, options).serving() if fleet else serve_pages(options, add, has_fleet=False)
    terminal = application.terminal
    async with serving as address:
        terminal.secret(f"{address}/studio#token={options.access.new_address_token()}\n")
        terminal.flush()
        if terminal.is_live:
            terminal.note("press Ctrl-C to stop")
        await asyncio.Event().wait()
