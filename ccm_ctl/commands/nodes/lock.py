"""`ccmctl lock`: pause changes to resources, or to a whole node, for a time."""

from __future__ import annotations

from datetime import timedelta

import click

from ccm_agent.clikit.durations import Duration
from ccm_agent.clikit.options import Options, takes
from ccm_agent.clikit.table import Column, table
from ccm_agent.clikit.text import clock, one_line
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.formats.durations import format_duration
from ccm_agent.model.formats.moments import format_moment
from ccm_agent.model.records.maintenance import LONGEST_LOCK_S, LockChange
from ccm_agent.model.resource import parse_reference
from ccm_agent.model.wire import NODE_DISABLE
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.nodes.maintenance import command_nodes
from ccm_ctl.commands.runs.targets import TargetOptions, require_agents, target_options, yes_option
from ccm_ctl.fleet.nodes.discovery import TargetSpec
from ccm_ctl.fleet.nodes.inventory import read_inventory
from ccm_ctl.fleet.nodes.nodes import Inventory, TargetSet
from ccm_ctl.fleet.nodes.slot_holders import find_locks
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.record_types.nodes import LockLine

LIST = "list"
"""The word that lists the locks if it is given instead of a node."""


class UnlockOptions(Options, frozen=True, kw_only=True):
    """The options of `ccmctl unlock`."""

    node: str
    nodes: TargetOptions
    resource: tuple[str, ...]
    why: str
    yes: bool

    def spec(self) -> TargetSpec:
        """
        Return the selected nodes. Both the name and the selector must match, so that the scopes of the operator's role apply.

        Raises:
            UsageError: No node is selected.
        """
        if self.node and not self.nodes.targets:
            return TargetSpec(targets=(f"node={self.node}",), where=self.nodes.where)
        if self.nodes.spec().is_empty:
            raise UsageError("no nodes selected; name a node, or use --targets")
        return self.nodes.spec(node=self.node)


class LockOptions(UnlockOptions, frozen=True, kw_only=True):
    """The options of `ccmctl lock`."""

    for_s: int | None


@verb(
    "lock",
    examples=[
        'ccmctl lock web1 --for 8h --why "new certificate" --resource service#nginx',
        'ccmctl lock db1 --for 2d --why "new disk"      # the whole node: it is disabled',
        'ccmctl lock -t role=web --for 1h --why "load test" --resource exec#restart',
        "ccmctl lock list",
    ],
    options=[
        click.Argument(["node"], metavar="[NODE|list]", default=""),
        *target_options(everybody=False),
        click.Option(
            ["--resource"],
            multiple=True,
            metavar="TYPE#NAME",
            help="Lock this resource, by name or alias. May be repeated. [the whole node]",
        ),
        click.Option(
            ["--for", "for_s"], type=Duration(), metavar="TIME", help="End of the lock, such as 8h or 2d; at most 30d."
        ),
        click.Option(["--why"], default="", metavar="TEXT", help="The reason, shown to operators and in the nodes' events."),
        yes_option(),
    ],
)  # fmt: skip
@takes(LockOptions)
def lock(application: Application, given: LockOptions) -> Exit:
    """
    Pause changes to resources of a node for a limited time. Runs and assignments skip them; health checks continue.

    Without --resource, the whole node is disabled for that time, as with `ccmctl disable`. A lock expires automatically, by
    the node's clock. Offline nodes are not affected. Requires credentials with `--maintain`.

    Exit codes: 0 locked; 2 the node refused; 3 the node was offline or did not answer.
    """
    if given.node == LIST:
        return application.run(lambda fleet: _list(application, fleet))
    resource, for_s = given.resource, given.for_s
    check_references(resource)
    spec = given.spec()
    if not for_s or not given.why.strip():
        raise UsageError("a lock requires --for (a duration) and --why (a reason)")
    if for_s > LONGEST_LOCK_S:
        raise UsageError(f"--for: a lock can last at most {format_duration(LONGEST_LOCK_S)}")

    async def work(fleet: Fleet) -> Exit:
        until = fleet.clock.now() + timedelta(seconds=for_s)
        change = LockChange(resources=list(resource), why=given.why) if resource else None
        return await command_nodes(
            application,
            fleet,
            NODE_DISABLE,
            spec,
            given.why,
            yes=given.yes,
            verb=f"lock {', '.join(resource) or 'everything'} until {format_moment(until)} on",
            done="locked" if resource else "disabled",
            until=until,
            lock=change,
            check=require_locks if resource else None,
        )

    return application.run(work)


def check_references(resources: tuple[str, ...]) -> None:
    """
    Refuse texts that are not in the form `type#name`.

    Raises:
        UsageError: A text is not a resource. The message contains the first such text.
    """
    for one in resources:
        if parse_reference(one) is None:
            raise UsageError(f"--resource {one}: not a resource; write type#name, such as service#nginx")


def require_locks(inventory: Inventory, resolved: TargetSet) -> None:
    """
    Refuse nodes whose agents do not support locks of resources.

    Raises:
        UsageError: Some agents are too old. The message contains the names of their nodes.
    """
    require_agents(
        inventory,
        resolved,
        lambda record: record.resource_locks,
        "the agent is too old to lock single resources; upgrade it, or lock the whole node",
    )


async def _list(application: Application, fleet: Fleet) -> Exit:
    """List the locks by node."""
    rows = []
    for name, resource, one in find_locks(await read_inventory(fleet), fleet.clock.now()):
        application.terminal.record(
            LockLine, node=name, resource=resource, since=one.since, until=one.until, by=one.by, why=one.why
        )  # fmt: skip
        until = clock(one.until) if one.until else "it is enabled"
        rows.append([name, one_line(resource), until, one_line(one.by), one_line(one.why)])
    columns = [Column("NODE"), Column("RESOURCE"), Column("UNTIL"), Column("BY"), Column("WHY")]
    text = table(columns, rows, application.terminal.style)
    application.terminal.show(text or "nothing is locked\n")
    return Exit.OK
