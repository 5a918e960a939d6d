"""`ccmctl rollback`: restore an earlier revision of an assignment, with its manifest and data."""

from __future__ import annotations

import click

from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.assignments.assignment_options import (
    build_target_set,
    choose_scope,
    counts_for,
    diff_assignments,
    print_assigned,
    read_fleet,
    scope_option,
)
from ccm_ctl.commands.assignments.conflicts import refuse_overlaps
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.runs.open_rollouts import warn_of_open
from ccm_ctl.commands.runs.targets import NOT_AGREED, confirm, message_option, yes_option
from ccm_ctl.fleet.assignments.assignment_history import check_there, find_past, revived
from ccm_ctl.fleet.assignments.assignments import store_assignment
from ccm_ctl.fleet.assignments.bundles import read_inside
from ccm_ctl.fleet.assignments.staging import check_settled, is_first
from ccm_ctl.fleet.ports import Fleet


@verb(
    "rollback",
    examples=[
        "ccmctl rollback web",
        'ccmctl rollback web --to 3 --yes -m "pool too small"',
        "ccmctl assignment history web",
    ],
    options=[
        click.Argument(["name"], metavar="NAME"),
        click.Option(
            ["--to", "revision"],
            type=click.IntRange(1),
            metavar="REVISION",
            help="Revision to restore. [the previous one]",
        ),
        scope_option(),
        message_option(),
        yes_option(),
    ],
)
def rollback(
    application: Application, name: str, revision: int | None, scope: str, message: str, yes: bool
) -> Exit:
    """
    Restore an earlier revision of an assignment as a new revision: manifest, data, targets, mode and interval.

    Without --to, each rollback goes back one more revision. A rollback also restores an unassigned assignment. After an aborted
    rollout, nodes with the new revision return to the previous one.
    """
    place = choose_scope(scope)

    async def work(fleet: Fleet) -> Exit:
        inventory, known = await read_fleet(fleet)
        past = await find_past(fleet, known, name, place)
        await check_settled(fleet, past.current, may_be_aborted=True)
        if revision is None:
            past.check_whole()
        old = past.newest if revision is None and is_first(past.newest) else past.pick(revision)
        if is_first(old):
            way_out = (
                f"`ccmctl unassign {name}` removes it" if past.current is not None else "assign it again"
            )
            raise UsageError(f"{name}: its rollout was aborted, and there is no previous revision; {way_out}")
        base = old.verified()
        await check_there(fleet, old)
        standing = revived(fleet, old, past.newest)
        after = known.with_one(standing)
        inside = await read_inside(fleet, standing.assignment.bundle)
        await refuse_overlaps(application, fleet, inventory, after, standing, inside)
        if past.current is not None:
            changes = await diff_assignments(application, fleet, past.current, standing.assignment, inside)
            application.terminal.show(changes)
        nodes = counts_for(inventory, after, standing)
        await warn_of_open(application, fleet, nodes)
        is_staged = past.current is not None and past.current is old
        place_words = "the revision before the rollout" if is_staged else f"revision {old.revision}"
        question = f"roll {name} back to {place_words} on"
        if not await confirm(application, question, build_target_set(inventory, nodes), yes=yes):
            return NOT_AGREED
        stored = await store_assignment(fleet, standing.assignment, known, [base], message)
        print_assigned(application, stored, nodes, was=f"rolled back to {place_words}")
        return Exit.OK

    return application.run(work)
