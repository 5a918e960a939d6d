"""`ccmctl disable`: pause changes on nodes."""

from __future__ import annotations

from datetime import timedelta

import click

from ccm_agent.clikit.durations import Duration
from ccm_agent.clikit.options import takes
from ccm_agent.clikit.text import clock
from ccm_agent.model.exits import Exit
from ccm_agent.model.wire import NODE_DISABLE
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.nodes.maintenance import MaintenanceOptions, command_nodes, maintenance_options
from ccm_ctl.fleet.ports import Fleet


class DisableOptions(MaintenanceOptions, frozen=True, kw_only=True):
    """The options of `ccmctl disable`."""

    for_s: int | None


@verb(
    "disable",
    examples=[
        'ccmctl disable -t node=web1 --for 8h --why "new disk"',
        'ccmctl disable -t role=db --why "migration, ask Maria" --yes',
    ],
    options=[
        *maintenance_options(is_why_required=True),
        click.Option(
            ["--for", "for_s"],
            type=Duration(),
            help="Enable the nodes again after this time, such as 8h or 2d. [until `ccmctl enable`]",
        ),
    ],
)
@takes(DisableOptions)
def disable(application: Application, given: DisableOptions) -> Exit:
    """
    Pause changes on nodes: they do not converge, and they refuse applies. Health checks continue.

    A run in progress finishes. Offline nodes are not affected. Requires credentials with `--maintain`.

    Exit codes: 0 all nodes are disabled; 2 a node refused; 3 a node was offline or did not answer.
    """

    async def work(fleet: Fleet) -> Exit:
        until = fleet.clock.now() + timedelta(seconds=given.for_s) if given.for_s else None
        words = f"until {clock(until)}, disable" if until else "disable"
        return await command_nodes(
            application,
            fleet,
            NODE_DISABLE,
            given.nodes.spec(),
            given.why,
            yes=given.yes,
            verb=words,
            done="disabled",
            until=until,
        )

    return application.run(work)
