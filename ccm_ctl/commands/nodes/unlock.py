"""`ccmctl unlock`: end locks before they expire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ccm_agent.clikit.options import takes
from ccm_agent.model.exits import Exit
from ccm_agent.model.records.maintenance import LockChange
from ccm_agent.model.wire import NODE_DISABLE, NODE_ENABLE
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.nodes.lock import UnlockOptions, check_references, require_locks
from ccm_ctl.commands.nodes.maintenance import command_nodes
from ccm_ctl.commands.runs.targets import target_options, yes_option
from ccm_ctl.fleet.nodes.discovery import resolve
from ccm_ctl.fleet.ports import Fleet


@verb(
    "unlock",
    examples=["ccmctl unlock web1 --resource service#nginx", 'ccmctl unlock db1 --why "disk replaced"'],
    options=[
        click.Argument(["node"], metavar="[NODE]", default=""),
        *target_options(everybody=False),
        click.Option(
            ["--resource"],
            multiple=True,
            metavar="TYPE#NAME",
            help="Unlock this resource. May be repeated. [all, and the node is enabled]",
        ),
        click.Option(["--why"], default="", metavar="TEXT", help="The reason, shown in the nodes' events."),
        yes_option(),
    ],
)
@takes(UnlockOptions)
def unlock(application: Application, given: UnlockOptions) -> Exit:
    """
    Let nodes change locked resources again. They do so at the next convergence, or now with `ccmctl run-now`.

    Without --resource, all locks end, and disabled nodes are enabled. Requires credentials with `--maintain`.

    Exit codes: 0 the resources are not locked now; 2 a node refused; 3 a node was offline or did not answer.
    """
    resource, why = given.resource, given.why
    check_references(resource)
    spec = given.spec()

    async def work(fleet: Fleet) -> Exit:
        inventory, resolved = await resolve(fleet, spec)
        nodes = [inventory.nodes[name].record for name in resolved.nodes]
        code: Exit | None = None
        if resource or any(record is not None and record.resource_locks for record in nodes):
            code = await command_nodes(
                application,
                fleet,
                NODE_DISABLE,
                spec,
                why,
                yes=given.yes,
                verb=f"unlock {', '.join(resource) or 'everything'} on",
                done="unlocked",
                lock=LockChange(resources=list(resource), why=why, release=True),
                check=require_locks,
                describe=lambda body: _describe(body, resource),
            )
        is_disabled = any(record is None or record.disabled is not None for record in nodes)
        if code is not None and (code or resource or not is_disabled):
            return code
        yes = given.yes or code is not None
        return await command_nodes(
            application, fleet, NODE_ENABLE, spec, why, yes=yes, verb="enable", done="enabled"
        )

    return application.run(work)


def _describe(body: Mapping[str, Any], resources: tuple[str, ...]) -> tuple[str, str]:
    """Return the state of a node after unlocking, and the resources that were not locked. The reply is untrusted."""
    released = body.get("unlocked")
    if not resources or not isinstance(released, list):
        return "unlocked", ""
    others = [one for one in resources if one not in released]
    if not others:
        return "unlocked", ""
    if len(others) == len(resources):
        return "not locked", f"no lock names {' or '.join(others)}; see `ccmctl lock list`"
    return "unlocked", f"not locked: {', '.join(others)}"
