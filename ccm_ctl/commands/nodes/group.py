"""`ccmctl group`: save selectors under a name."""

from __future__ import annotations

import re

import click

from ccm_agent.clikit.commands import Option
from ccm_agent.clikit.table import Column
from ccm_agent.clikit.text import ago, one_line, plural
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import group as command_group
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.data.documents import author_cell
from ccm_ctl.commands.runs.targets import check_selectors, message_option
from ccm_ctl.fleet.nodes.discovery import lacking_facts
from ccm_ctl.fleet.nodes.groups import check_targets, read_groups, remove_group, write_group
from ccm_ctl.fleet.nodes.inventory import read_facts, read_inventory
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.record_types.nodes import GroupLine

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@command_group(
    "group",
    no_args_is_help=True,
    examples=[
        "ccmctl group set canary -t 'node in (web1,db1)'",
        "ccmctl apply site/ -t @canary",
        "ccmctl group list",
    ],
)
def group(application: Application) -> None:
    """
    Save selectors under a name, for --targets @NAME.

    A command replaces a group with its selectors. Assignments and schedules store these selectors, so a later change of the
    group does not affect them.
    """


@verb("list", examples=["ccmctl group list", "ccmctl group list --json"])
def _list(application: Application) -> Exit:
    """List groups and their selectors."""

    async def work(fleet: Fleet) -> Exit:
        now, rows = fleet.clock.now(), []
        for one in await read_groups(fleet):
            application.terminal.record(
                GroupLine,
                name=one.name,
                targets=list(one.targets),
                by=one.written_by,
                time=one.time,
                message=one.message or None,
                unverified=one.unverified or None,
            )
            selectors = one_line(" or ".join(one.targets))
            by = author_cell(one_line(one.written_by), one.unverified)
            rows.append([f"@{one.name}", selectors, by, ago(one.time, now)])
        columns = [
            Column("GROUP"),
            Column("SELECTS", fold=True),
            Column("BY", spare=1),
            Column("WHEN", spare=2),
        ]
        application.terminal.table(
            columns, rows, "no groups yet; `ccmctl group set NAME -t SELECTOR` creates one\n"
        )
        return Exit.OK

    return application.run(work)


@verb(
    "set",
    examples=[
        "ccmctl group set canary -t 'node in (web1,db1)'",
        "ccmctl group set edge -t role=proxy,zone=a -t 'role=cdn*' --message 'as agreed'",
    ],
    options=[
        click.Argument(["name"], metavar="NAME"),
        Option(
            ["--targets", "-t"],
            multiple=True,
            required=True,
            metavar="SELECTOR",
            callback=check_selectors,
            help="A selector of the group. Repeat to match any of several selectors.",
        ),
        message_option(),
    ],
)
def _set(application: Application, name: str, targets: tuple[str, ...], message: str) -> Exit:
    """
    Save a group, and show how many nodes it selects now. Replaces the group of this name.

    Requires credentials with `--admin`, because a group selects the nodes of other operators' commands.
    """
    _check_name(name)

    async def work(fleet: Fleet) -> Exit:
        selectors = check_targets(targets)
        is_new = await write_group(fleet, name, targets, message)
        inventory = await read_inventory(fleet)
        await read_facts(fleet, inventory, lacking_facts(inventory, selectors, ""))
        nodes = [
            node.name
            for node in inventory.nodes.values()
            if any(one.matches(node.name, node.facts) for one in selectors)
        ]
        application.terminal.record(
            GroupLine, name=name, targets=list(targets), by=fleet.operator, message=message or None
        )
        word = "saved" if is_new else "unchanged"
        application.terminal.show(f"@{name}: {word}, {plural(len(nodes), 'node')} now\n")
        return Exit.OK

    return application.run(work)


@verb("rm", examples=["ccmctl group rm canary"], options=[click.Argument(["name"], metavar="NAME")])
def _rm(application: Application, name: str) -> Exit:
    """Remove a group. Assignments and schedules that were made with it do not change."""
    _check_name(name)

    async def work(fleet: Fleet) -> Exit:
        await remove_group(fleet, name)
        application.terminal.show(f"@{name}: removed\n")
        return Exit.OK

    return application.run(work)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r}: not a valid name for a group; use letters, digits, `-` and `_`")


for _command in (_list, _set, _rm):
    group.add_command(_command)
