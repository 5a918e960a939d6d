"""`ccmctl enable`: resume changes on nodes."""

from __future__ import annotations

from ccm_agent.clikit.options import takes
from ccm_agent.model.exits import Exit
from ccm_agent.model.wire import NODE_ENABLE
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.nodes.maintenance import MaintenanceOptions, command_nodes, maintenance_options
from ccm_ctl.fleet.ports import Fleet


@verb(
    "enable",
    examples=["ccmctl enable -t node=web1", 'ccmctl enable -t role=db --why "migration is done" --yes'],
    options=maintenance_options(is_why_required=False),
)
@takes(MaintenanceOptions)
def enable(application: Application, given: MaintenanceOptions) -> Exit:
    """
    Let disabled nodes make changes again. They converge within seconds to minutes.

    Offline nodes are not affected. Requires credentials with `--maintain`.

    Exit codes: 0 all nodes are enabled; 2 a node refused; 3 a node was offline or did not answer.
    """

    async def work(fleet: Fleet) -> Exit:
        spec, why, yes = given.nodes.spec(), given.why, given.yes
        return await command_nodes(
            application, fleet, NODE_ENABLE, spec, why, yes=yes, verb="enable", done="enabled"
        )

    return application.run(work)
