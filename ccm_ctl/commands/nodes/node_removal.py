"""`ccmctl node rm|reset`: remove all stored data of a node, or only the data of its machine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click
from msgspec import Struct

from ccm_agent.bus.layout import FACTS
from ccm_agent.bus.subjects import node_scope
from ccm_agent.clikit.text import ago, plural
from ccm_agent.model.errors import BusDeniedError, UsageError
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.keys.credentials import still_certified
from ccm_ctl.commands.keys.keys_folder import keys_option
from ccm_ctl.commands.runs.targets import yes_option
from ccm_ctl.fleet.assignments.assignments import Standing, read_assignments, remove_assignment
from ccm_ctl.fleet.data.documents import Documents
from ccm_ctl.fleet.keys.leaving import MACHINE_KEYS, remove_data_keys
from ccm_ctl.fleet.nodes.inventory import require_nodes
from ccm_ctl.fleet.nodes.nodes import Node
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.record_types.nodes import NodeLine


class Holding(Struct, frozen=True):
    """A node, and the assignments that target only this node."""

    node: Node
    own: tuple[Standing, ...] = ()


def _options(what: str) -> list[click.Parameter]:
    return [
        click.Argument(["names"], metavar="NODE...", nargs=-1, required=True),
        yes_option(),
        click.Option(["--force"], is_flag=True, help=f"{what} nodes even if their agents are running."),
    ]


@verb(
    "rm",
    examples=["ccmctl node rm web9", "ccmctl node rm web7 web8 --yes"],
    options=[*_options("Remove"), keys_option()],
)
def remove_nodes(application: Application, names: tuple[str, ...], yes: bool, force: bool, keys: str) -> Exit:
    """
    Remove decommissioned nodes: their records, assigned facts, and assignments that target only them.

    A running agent registers its node again, without assignments. Credentials remain valid until
    `ccmctl node revoke`.
    """

    certified = still_certified(application, keys, names)

    async def work(fleet: Fleet) -> Exit:
        held = await _held(fleet, names)
        _refuse_present(held, "removed", force=force)
        if not await _agreed(application, held, fleet.clock.now(), "Remove", yes=yes):
            return Exit.COULD_NOT_RUN
        for one in held:
            # first remove the objects that need more permissions: if that fails, the node stays visible
            for standing in one.own:
                await remove_assignment(fleet, standing)
            if one.node.assigned:
                await Documents(fleet, fleet.facts, FACTS).remove(one.node.name)
            try:
                await remove_data_keys(fleet, one.node.name)
            except BusDeniedError:
                application.terminal.note(
                    f"{one.node.name}: its data keys of secrets remain; "
                    "to remove them, run `ccmctl secret sync` as an operator with --data"
                )
            await _forget_machine(fleet, one.node)
            application.terminal.record(NodeLine, node=one.node.name, state="removed")
            application.terminal.show(f"{one.node.name}: removed{_comes_back(one.node)}\n")
            if site := await fleet.sites.site_of(one.node.copied_from) if fleet.sites is not None else None:
                application.terminal.note(
                    f"{one.node.name}: its record is still at the site {site.site}; "
                    f"run `ccmctl node rm {one.node.name}` there, too"
                )
        for name in certified:
            application.terminal.note(
                f"{name}: its credentials remain valid; revoke them with `ccmctl node revoke {name}`"
            )
        return Exit.OK

    return application.run(work)


@verb(
    "reset",
    examples=["ccmctl node reset web1   # before or after its machine is reinstalled"],
    options=_options("Reset"),
)
def reset_nodes(application: Application, names: tuple[str, ...], yes: bool, force: bool) -> Exit:
    """
    Forget the machine behind a node name: its record, facts, presence and assignment status.

    The name keeps its assignments and credentials, so a reinstalled machine becomes the same node. The state of the old machine
    is no longer shown.
    """

    async def work(fleet: Fleet) -> Exit:
        held = [Holding(one.node) for one in await _held(fleet, names)]
        _refuse_present(held, "reset", force=force)
        if not await _agreed(application, held, fleet.clock.now(), "Forget the machine of", yes=yes):
            return Exit.COULD_NOT_RUN
        for one in held:
            await _forget_machine(fleet, one.node)
            application.terminal.record(NodeLine, node=one.node.name, state="reset")
            application.terminal.show(f"{one.node.name}: reset{_comes_back(one.node)}\n")
        return Exit.OK

    return application.run(work)


async def _held(fleet: Fleet, names: Sequence[str]) -> list[Holding]:
    inventory = await require_nodes(fleet, names)
    nodes = [inventory.need(name) for name in dict.fromkeys(names)]
    standing = (await read_assignments(fleet)).standing
    return [
        Holding(node, tuple(one for one in standing if one.assignment.scope == node_scope(node.name)))
        for node in nodes
    ]


def _refuse_present(held: Sequence[Holding], done: str, *, force: bool) -> None:
    for one in held:
        if not one.node.is_present or force:
            continue
        if one.node.record and one.node.record.conflict:
            way = "stop the wrong agent; the other one then continues"
        else:
            way = "stop its agent first, or pass --force"
        raise UsageError(
            f"{one.node.name}: its agent is running, so the node would return after it is {done}; {way}"
        )


async def _agreed(
    application: Application, held: Sequence[Holding], now: datetime, what: str, *, yes: bool
) -> bool:
    if yes:
        return True

    for one in held:
        application.terminal.note(_format_removal(one, now, whole=what == "Remove"))
    names = held[0].node.name if len(held) == 1 else plural(len(held), "node")
    return await application.terminal.ask(f"{what} {names}?", otherwise="use --yes")


def _format_removal(one: Holding, now: datetime, *, whole: bool) -> str:
    """Describe the data that will be removed."""
    node, record = one.node, one.node.record
    run = f", last run {record.last_state} {ago(record.last_time, now)}" if record and record.last_run else ""
    parts = [f"{node.name}: {node.state}{run}"]
    if whole and node.assigned:
        facts = ", ".join(f"{key}={value}" for key, value in sorted(node.assigned.items()))
        parts.append(f"{plural(len(node.assigned), 'assigned fact')} ({facts})")
    if one.own:
        parts.append(
            f"{plural(len(one.own), 'assignment')} of its own ({', '.join(own.name for own in one.own)})"
        )
    return "; ".join(parts)


def _comes_back(node: Node) -> str:
    return (
        "; its agent is running, and writes the record again with the next heartbeat"
        if node.is_present
        else ""
    )


async def _forget_machine(fleet: Fleet, node: Node) -> None:
    for kind in MACHINE_KEYS:
        await fleet.nodes.delete(f"{kind}.{node.name}")
