"""`ccmctl slots`: show which nodes hold or wait for the slots of the fleet."""

from __future__ import annotations

from datetime import datetime
from shlex import quote

from ccm_agent.clikit.commands import Argument
from ccm_agent.clikit.table import Cell, Column
from ccm_agent.clikit.text import ago, one_line, safe, short_id
from ccm_agent.model.errors import NotFoundError, UsageError
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import group, verb
from ccm_ctl.commands.runs.targets import NOT_AGREED, yes_option
from ccm_ctl.fleet.nodes.slot_holders import SlotPlace, need_slots, read_slots
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.record_types.nodes import SlotLine


@group(
    "slots",
    examples=["ccmctl slots", "ccmctl slots --json | jq .", "ccmctl slots release pg-restart db1"],
    invoke_without_command=True,
)
def slots(application: Application) -> Exit:
    """
    Show which nodes hold the slots of the fleet, and which wait for one.

    Resources with `control: {slots: NAME/COUNT}` take a slot before they change something. An entry that
    its node did not sign is shown last, as "unverified". Nodes ignore it.
    """

    async def work(fleet: Fleet) -> Exit:
        now, rows, places = fleet.clock.now(), [], await read_slots(fleet)
        for place in places:
            application.terminal.record(SlotLine, **place.fields())
            rows.append(_row(place, now))
        columns = [
            Column("SLOT"),
            Column("NODE", fold=True),
            Column("STATE"),
            Column("FOR", fold=True),
            Column("SINCE"),
        ]
        application.terminal.table(columns, rows, "no node holds a slot or waits for one\n")
        for place in places:
            if place.is_holder and place.state.entry.has_failed:
                node = place.state.node
                command = release_command(place.slot, node)
                application.terminal.show(f"  release:  {command}   (when {one_line(node)} is healthy)\n")
        return Exit.OK

    return application.run(work)


@verb(
    "release",
    examples=["ccmctl slots release pg-restart db1"],
    options=[
        Argument(["name"], metavar="SLOT"),
        Argument(["node"], metavar="NODE"),
        yes_option(),
    ],
)
def _release(application: Application, name: str, node: str, yes: bool) -> Exit:
    """
    Free a slot that a node keeps after a failure.

    First make sure that the node is healthy, or that another node may change at the same time. The
    node is not stopped. Requires credentials with `--apply all`.
    """

    async def work(fleet: Fleet) -> Exit:
        bucket = need_slots(fleet)
        places = [one for one in await read_slots(fleet) if (one.slot, one.state.node) == (name, node)]
        if not places or not places[0].state.entry.is_held:
            raise NotFoundError(f"{node} does not hold the slot {name}; `ccmctl slots` lists the holders")
        if not yes and not await application.terminal.ask(
            f"release the slot {name} of {node}?", otherwise="use --yes"
        ):
            return NOT_AGREED
        await bucket.update(f"{name}.{node}", b"", places[0].state.revision)
        application.terminal.show(f"{node} no longer holds the slot {name}\n")
        return Exit.OK

    if "." in name or not name or not node:
        raise UsageError("not valid names; specify a slot and a node, such as pg-restart db1")
    return application.run(work)


def release_command(slot: str, node: str) -> str:
    """Return the command that releases a node's slot. It is quoted, because a node can choose any name."""
    return f"ccmctl slots release {quote(one_line(slot))} {quote(one_line(node))}"


def _row(place: SlotPlace, now: datetime) -> list[str | Cell]:
    state, entry = place.state, place.state.entry
    count = f"/{entry.count}" if entry.count else ""
    run = f" (run {short_id(safe(entry.run))})" if entry.run else ""
    return [
        one_line(f"{place.slot}{count}"),
        one_line(state.node),
        Cell(*_standing(place)),
        one_line(f"{entry.resource}{run}"),
        ago(entry.since, now),
    ]


def _standing(place: SlotPlace) -> tuple[str, str]:
    if place.unverified:
        return f"unverified: {one_line(place.unverified)}", "bad"
    if place.position:
        return f"waits, number {place.position}", "quiet"
    return ("kept after a failure", "bad") if place.state.entry.has_failed else ("held", "change")


slots.add_command(_release)
