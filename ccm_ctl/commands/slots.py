"""`ccmctl slots`: who holds the slots of the fleet, and who waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccm_agent.clikit.commands import Argument
from ccm_agent.clikit.text import ago, one_line, safe, short_id
from ccm_agent.model.errors import BusSetupError, NotFoundError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.slots import SlotState, decode_entry
from ccm_ctl.commands.command_tree import group, verb
from ccm_ctl.commands.targets import NOT_AGREED, yes_option
from ccm_ctl.render import records

if TYPE_CHECKING:
    from datetime import datetime

    from ccm_agent.clikit.table import Cell
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.ports import Bucket, Fleet


@group(
    "slots",
    examples=["ccmctl slots", "ccmctl slots --json | jq .", "ccmctl slots release pg-restart db1"],
    invoke_without_command=True,
)
def slots(application: Application) -> Exit:
    """
    Show which nodes hold the slots of the fleet, and which wait for one.

    Resources with `control: {slots: NAME/COUNT}` take a slot before they change something.
    """

    async def work(fleet: Fleet) -> Exit:
        from ccm_agent.clikit.table import Column

        now, rows = fleet.clock.now(), []
        for name, states in (await _read(_bucket(fleet))).items():
            queue = sorted((one for one in states if not one.entry.is_held), key=lambda one: one.place)
            holders = sorted((one for one in states if one.entry.is_held), key=lambda one: one.node)
            for state in [*holders, *queue]:
                place = queue.index(state) + 1 if not state.entry.is_held else 0
                application.terminal.record(records.SLOT, **_fields(name, state, place))
                rows.append(_row(name, state, place, now))
        columns = [
            Column("SLOT"),
            Column("NODE", fold=True),
            Column("STATE"),
            Column("FOR", fold=True),
            Column("SINCE"),
        ]
        application.terminal.table(columns, rows, "no node holds a slot or waits for one\n")
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
    node is not stopped. Requires credentials with
    `--apply all`.
    """

    async def work(fleet: Fleet) -> Exit:
        bucket = _bucket(fleet)
        state = next((one for one in (await _read(bucket)).get(name, ()) if one.node == node), None)
        if state is None or not state.entry.is_held:
            raise NotFoundError(f"{node} does not hold the slot {name}; `ccmctl slots` lists the holders")
        if not yes and not await application.terminal.ask(
            f"release the slot {name} of {node}?", otherwise="say --yes"
        ):
            return NOT_AGREED
        await bucket.update(f"{name}.{node}", b"", state.revision)
        application.terminal.show(f"{node} no longer holds the slot {name}\n")
        return Exit.OK

    if "." in name or not name or not node:
        raise UsageError("write the name of a slot and of a node, such as pg-restart db1")
    return application.run(work)


def _bucket(fleet: Fleet) -> Bucket:
    if fleet.slots is None:
        raise BusSetupError("the slots of this broker cannot be read")
    return fleet.slots


async def _read(bucket: Bucket) -> dict[str, list[SlotState]]:
    """The entries of each slot, by its name."""
    found: dict[str, list[SlotState]] = {}
    for one in await bucket.matching([">"]):
        name, _, node = one.key.partition(".")
        state = SlotState(
            node=node, revision=one.revision, written=one.created, entry=decode_entry(one.value)
        )
        found.setdefault(name, []).append(state)
    return dict(sorted(found.items()))


def _row(name: str, state: SlotState, place: int, now: datetime) -> list[str | Cell]:
    from ccm_agent.clikit.table import Cell

    entry = state.entry
    count = f"/{entry.count}" if entry.count else ""
    run = f" (run {short_id(safe(entry.run))})" if entry.run else ""
    return [
        one_line(f"{name}{count}"),
        one_line(state.node),
        Cell(*_standing(state, place)),
        one_line(f"{entry.resource}{run}"),
        ago(entry.since, now),
    ]


def _standing(state: SlotState, place: int) -> tuple[str, str]:
    if not state.entry.is_held:
        return f"waits, number {place}", "quiet"
    return ("kept after a failure", "bad") if state.entry.has_failed else ("held", "change")


def _fields(name: str, state: SlotState, place: int) -> dict[str, Any]:
    entry = state.entry
    return {
        "slot": name,
        "node": state.node,
        "state": "waiting" if not entry.is_held else "failed" if entry.has_failed else "held",
        "position": place or None,
        "count": entry.count or None,
        "since": entry.since,
        "resource": entry.resource or None,
        "run": entry.run or None,
    }


slots.add_command(_release)
