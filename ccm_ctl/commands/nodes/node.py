"""`ccmctl node`: commands for single nodes."""

from __future__ import annotations

import click

from ccm_agent.clikit.text import ago, clock, one_line
from ccm_agent.model.exits import Exit
from ccm_agent.model.ids import short_id
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import group, verb
from ccm_ctl.commands.keys.credentials import add_node, revoke_node
from ccm_ctl.commands.keys.join import accept_node
from ccm_ctl.commands.nodes.node_removal import remove_nodes, reset_nodes
from ccm_ctl.commands.nodes.nodes import as_agents, format_note, is_disputed, list_command, node_fields
from ccm_ctl.commands.nodes.site_lines import format_contact
from ccm_ctl.fleet.nodes.inventory import read_twins, require_nodes
from ccm_ctl.fleet.nodes.overview import read_conditions
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.trust.node_state import mark_unverified
from ccm_ctl.render.record_types.nodes import NodeLine
from ccm_ctl.render.tree import tree


@group(
    "node",
    no_args_is_help=True,
    examples=[
        "ccmctl node list",
        "ccmctl node show web1",
        "ccmctl node add web1 > web1.creds",
        "ccmctl node rm web9",
    ],
)
def node(application: Application) -> None:
    """List, show, add, accept, reset, revoke and remove nodes."""


@verb(
    "show",
    examples=["ccmctl node show web1", "ccmctl node show web1 --json"],
    options=[click.Argument(["name"], metavar="NODE")],
)
def _show(application: Application, name: str) -> Exit:
    """Show a node's presence, versions, assigned and routed facts, and last run."""

    async def work(fleet: Fleet) -> Exit:
        inventory = await require_nodes(fleet, [name])
        found = inventory.need(name)
        await mark_unverified(fleet, [found])
        condition = (await read_conditions(fleet, inventory, [found]))[name]
        now = fleet.clock.now()
        record = found.record
        twins = await read_twins(fleet, name) if is_disputed(found) else []
        site = await fleet.sites.site_of(found.copied_from) if fleet.sites is not None else None
        application.terminal.record(
            NodeLine,
            **node_fields(found, condition, site),
            assigned=found.assigned,
            agents=as_agents(twins) or None,
        )
        seen = f", last heard {ago(condition.heard, now)}" if condition.heard else ""
        late = ", missed its heartbeat" if condition.is_late else ""
        detail = f": {one_line(condition.detail)}" if condition.detail else ""
        told: dict[str, object] = {
            "node": found.name,
            "state": f"{condition.state}{detail}",
            "agent": f"{found.state}{seen}{late}",
            "site": f"{site.site}, {format_contact(site)}" if site is not None else "",
            "note": format_note(found, twins),
        }
        if record:
            started = f", started {clock(record.started)}" if record.started else ""
            told |= {
                "last run": f"{short_id(record.last_run)} {record.last_state} {ago(record.last_time, now)}".strip(),
                "version": f"{record.version}{started}",
                "machine": record.machine,
            }
        told |= {"assigned facts": found.assigned, "routed facts": found.routed}
        known = {key: value for key, value in told.items() if value}
        application.terminal.show(tree(known, application.terminal.style, as_given=True))
        return Exit.OK

    return application.run(work)


for _command in (list_command, _show, add_node, accept_node, revoke_node, remove_nodes, reset_nodes):
    node.add_command(_command)
