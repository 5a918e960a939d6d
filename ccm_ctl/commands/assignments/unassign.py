"""`ccmctl unassign`: remove an assignment."""

from __future__ import annotations

import click

from ccm_agent.bus.subjects import format_scope
from ccm_agent.clikit.text import fold_names, plural, short_id
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.assignments.assignment_options import (
    assignment_fields,
    build_target_set,
    choose_scope,
    counts_for,
    find_lost,
    read_fleet,
    scope_option,
)
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.runs.run_orders import abort_rollout
from ccm_ctl.commands.runs.targets import NOT_AGREED, confirm, message_option, yes_option
from ccm_ctl.fleet.assignments.assignment_rollouts import read_bringing
from ccm_ctl.fleet.assignments.assignments import Standing, remove_assignment, remove_key
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.render.record_types.assignments import AssignmentLine


@verb(
    "unassign",
    examples=[
        "ccmctl unassign web",
        "ccmctl unassign web --scope node=web1 --message 'back to the role after the test'",
    ],
    options=[
        click.Argument(["name"], metavar="NAME"),
        scope_option(),
        message_option(),
        click.Option(["--abort"], is_flag=True, help="First abort the rollout of its next revision."),
        yes_option(),
    ],
)
def unassign(application: Application, name: str, scope: str, message: str, abort: bool, yes: bool) -> Exit:
    """
    Remove an assignment. Nodes stop converging on it; nothing is undone.

    If another assignment of the same name takes effect on some nodes, you are asked to confirm. `ccmctl rollback NAME` restores
    the removed assignment. During a rollout of its next revision, --abort is required, and aborts the rollout. An assignment
    that is missing on the broker is removed from the nodes that still report it.
    """
    place = choose_scope(scope)

    async def work(fleet: Fleet) -> Exit:
        inventory, known = await read_fleet(fleet)
        is_there = any(place in ("", one.assignment.scope) for one in known.named(name))
        if not is_there and (lost := find_lost(inventory, known, name, place)):
            return await _remove_lost(application, fleet, name, lost, message)
        standing = known.one(name, place)
        if not abort:
            await _refuse_during_rollout(fleet, standing)
        nodes = counts_for(inventory, known, standing)
        after = known.without([standing.key])
        taken = [node for node in nodes if name in after.of_node(inventory.nodes[node])]
        if taken:
            application.terminal.note(f"{fold_names(taken)}: falls back to another assignment `{name}`")
            question = f"unassign {name} for {format_scope(standing.assignment.scope)} and so change"
            if not await confirm(application, question, build_target_set(inventory, taken), yes=yes):
                return NOT_AGREED
        if abort:
            await _abort_rollout(application, fleet, standing)
        await remove_assignment(fleet, standing, message)
        application.terminal.record(
            AssignmentLine, **assignment_fields(standing), nodes=len(nodes), removed=True
        )
        words = format_scope(standing.assignment.scope)
        application.terminal.show(
            f"{name}: unassigned for {words}; {_outcome(name, len(nodes), len(taken))}\n"
            f"  restore:  ccmctl rollback {name} --scope {words}\n"
        )
        return Exit.OK

    return application.run(work)


async def _refuse_during_rollout(fleet: Fleet, standing: Standing) -> None:
    """
    Refuse to remove an assignment during its rollout, because the rollout would then fail on each node.

    Raises:
        UsageError: A rollout is open.
    """
    for one in (await read_bringing(fleet, [standing])).values():
        if one.is_open:
            run = short_id(one.run)
            raise UsageError(
                f"{standing.name}: the rollout {run} is {'paused' if one.is_paused else 'in progress'}; "
                f"use --abort to abort it first"
            )


async def _abort_rollout(application: Application, fleet: Fleet, standing: Standing) -> None:
    """Abort the rollout of the next revision if it is open."""
    for one in (await read_bringing(fleet, [standing])).values():
        if one.is_open:
            recorded = await History(fleet).load(one.run)
            await abort_rollout(application, fleet, recorded, f"{standing.name} was unassigned")


async def _remove_lost(
    application: Application, fleet: Fleet, name: str, lost: dict[str, list[str]], message: str
) -> Exit:
    """Delete the keys of an assignment that is missing in the bucket. Nodes keep the assignment until an operator removes it."""
    for key, nodes in sorted(lost.items()):
        scope = key.rpartition(".")[0]
        await remove_key(fleet, key, message)
        application.terminal.record(AssignmentLine, name=name, scope=scope, nodes=len(nodes), removed=True)
        application.terminal.show(
            f"{name}: unassigned for {format_scope(scope)}; it was missing on the broker, but {fold_names(nodes)} still had it\n"
        )
    return Exit.OK


def _outcome(name: str, nodes: int, taken: int) -> str:
    """Describe the effect on the nodes that used the assignment."""
    left = nodes - taken
    parts = []
    if taken:
        uses = "uses" if taken == 1 else "use"
        parts.append(f"{plural(taken, 'node')} now {uses} another assignment `{name}`")
    if left or not taken:
        stops = "stops" if left == 1 else "stop"
        parts.append(f"{plural(left, 'node')} {stops} converging on it; nothing is undone")
    return ", ".join(parts)
