"""`ccmctl undo`: undo the changes of a run."""

from __future__ import annotations

from typing import Any

import click

from ccm_agent.clikit.options import Options, takes
from ccm_agent.clikit.text import short_id
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.assignments.conflicts import warn_of_resources
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.runs.open_rollouts import warn_of_open
from ccm_ctl.commands.runs.run_view import start_and_watch
from ccm_ctl.commands.runs.stored_runs import format_heading, run_argument
from ccm_ctl.commands.runs.targets import (
    NOT_AGREED,
    RunOptions,
    confirm,
    diff_option,
    parse_deadline,
    run_options,
)
from ccm_ctl.fleet.nodes.nodes import TargetSet
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.history import Recorded
from ccm_ctl.fleet.runs.node_run import NodeRun
from ccm_ctl.fleet.runs.proof import RunProof
from ccm_ctl.fleet.runs.run import Run
from ccm_ctl.fleet.runs.run_request import Launch
from ccm_ctl.fleet.runs.undo import (
    find_undoable,
    nodes_to_apply_again,
    prepare_undo,
    resolve_undo,
    would_undo,
)
from ccm_ctl.render.reapplied import format_starter


class UndoOptions(Options, frozen=True, kw_only=True):
    """The options of `ccmctl undo`."""

    run: str
    start: RunOptions
    timeout: int | None
    redo: bool
    noop: bool
    diff: bool


@verb(
    "undo",
    examples=[
        "ccmctl undo last                  # shows a plan, then asks",
        "ccmctl undo 3HAAgFJs -t node=web1",
        "ccmctl undo last --noop           # only shows the plan",
        'ccmctl undo last --yes --diff -m "breaks logins"',
    ],
    options=[
        run_argument(),
        *[option for option in run_options() if option.name not in ("all", "limit")],
        click.Option(["--redo"], is_flag=True, help="Undo an undo: apply the undone changes again."),
        click.Option(["--noop"], is_flag=True, help="Change nothing; show what would change."),
        diff_option(),
    ],
)
@takes(UndoOptions)
def undo(application: Application, given: UndoOptions) -> Exit:
    """
    Undo what a run changed: content, mode and owner of files, and versions of packages.

    RUN is the ID of a run of an operator, a schedule or an assignment, or a prefix of it. `last` is your own newest run that
    was not a plan. Each node restores its own backups, which it keeps for a week by default.

    Without --yes, a plan with diffs is shown first. A resource that has changed since the run is not touched. Changes that cannot
    be undone, such as commands, are listed. The undo is a run: it can be watched, stopped and retried. --redo undoes it.

    Exit codes are those of `ccmctl apply`.
    """

    async def work(fleet: Fleet) -> Exit:
        return await _undo(application, fleet, given)

    return application.run(work)


async def _undo(application: Application, fleet: Fleet, given: UndoOptions) -> Exit:
    start = given.start
    recorded = await find_undoable(fleet, given.run, redo=given.redo)
    if not start.yes and not given.noop and not application.terminal.can_ask:
        raise UsageError("cannot ask for confirmation without a terminal; use --yes, or --noop for the plan")
    application.terminal.note(format_heading(recorded, fleet.clock.now()).partition("\n")[0])
    targets = await resolve_undo(fleet, recorded, start.spec)
    resolved = targets.nodes
    if again := nodes_to_apply_again(recorded, targets):
        application.terminal.warn(format_starter(recorded.cause, recorded.origin, again))
    else:
        await warn_of_resources(application, fleet, targets.inventory, targets.known, targets.changed)
    if given.noop or not start.yes:
        code, would_change = await _plan(application, fleet, recorded, resolved, given)
        if given.noop:
            return code
        if not would_change:
            found = "there is nothing to undo on these nodes now"
            application.terminal.note(
                found if code is Exit.OK else "the plan did not succeed, so nothing is undone"
            )
            return code
    await warn_of_open(application, fleet, resolved.nodes)
    what = f"undo {short_id(recorded.record.run)} on"
    if not await confirm(application, what, resolved, yes=start.yes):
        return NOT_AGREED
    launch = _launch(fleet, recorded, resolved, given, is_plan=False)
    return await _watch(application, fleet, launch, given)


async def _plan(
    application: Application, fleet: Fleet, recorded: Recorded, resolved: TargetSet, given: UndoOptions
) -> tuple[Exit, bool]:
    """Show the plan of an undo. Return its exit code, and whether any node would change or, because it is offline, may change."""
    nodes: list[NodeRun] = []

    async def note(run: Run, _proof: RunProof | None) -> None:
        nodes.extend(run.nodes.values())

    launch = _launch(fleet, recorded, resolved, given, is_plan=True)
    code = await _watch(application, fleet, launch, given, on_end=note)
    return code, any(map(would_undo, nodes))


def _launch(
    fleet: Fleet, recorded: Recorded, resolved: TargetSet, given: UndoOptions, *, is_plan: bool
) -> Launch:
    deadline = parse_deadline(given.start.deadline, fleet.clock.now())
    return prepare_undo(
        fleet,
        recorded,
        resolved,
        deadline,
        is_plan=is_plan,
        diff=given.diff,
        message=given.start.message,
    )


async def _watch(
    application: Application, fleet: Fleet, launch: Launch, given: UndoOptions, **hooks: Any
) -> Exit:
    offline_ok, timeout_s = given.start.offline_ok, given.timeout
    return await start_and_watch(
        application, fleet, launch, offline_ok=offline_ok, timeout_s=timeout_s, **hooks
    )
