"""`ccmctl run`: the group of commands that list, show and control runs."""

from __future__ import annotations

import click

from ccm_agent.clikit.durations import Duration
from ccm_agent.model.exits import Exit
from ccm_agent.model.records.rollout_records import Phase
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import group, verb
from ccm_ctl.commands.runs.run_diff import diff_command
from ccm_ctl.commands.runs.run_list import list_command
from ccm_ctl.commands.runs.run_orders import abort_run, pause_run, promote_run, resume_run
from ccm_ctl.commands.runs.run_retry import retry
from ccm_ctl.commands.runs.run_stop import stop
from ccm_ctl.commands.runs.stored_runs import look, pick_up, run_argument, show_stored
from ccm_ctl.commands.runs.targets import no_fold_option
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.open_runs import close_ended
from ccm_ctl.render.rollout import rollout_status


@group("run", no_args_is_help=True, examples=["ccmctl run list", "ccmctl run watch last"])
def run(application: Application) -> None:
    """
    List, show, watch and stop runs of all operators.

    RUN is a run ID, an unambiguous prefix of one, or `last`.
    """


@verb(
    "show",
    examples=["ccmctl run show last", "ccmctl run show 2zFX --events", "ccmctl run show last --json | jq ."],
    options=[
        run_argument(),
        click.Option(["--events"], is_flag=True, help="Also show each event."),
        no_fold_option(),
    ],
)
def _show(application: Application, run: str, events: bool) -> Exit:
    """
    Show a run: who started it, when, for which nodes, and the state of each node.

    Exits with 2 if it is a rollout that is paused and waits for an operator, else with 0.
    """

    async def work(fleet: Fleet) -> Exit:
        recorded, state, watch, follower = await pick_up(application, fleet, run, offline_ok=True)
        await look(follower, state, recorded)
        is_ended = await close_ended(fleet, recorded, state)
        found = await RolloutStore(fleet).read(recorded.record.run)
        rollout = found[0] if found else None
        show_stored(
            application, fleet, recorded, state, watch, is_ended=is_ended, events=events, rollout=rollout
        )
        return Exit.FAILED if rollout is not None and rollout.phase is Phase.PAUSED else Exit.OK

    return application.run(work)


@verb(
    "watch",
    examples=["ccmctl run watch last", "ccmctl run watch 2zFX --json"],
    options=[
        run_argument(),
        click.Option(
            ["--offline"],
            type=click.Choice(["fail", "ok"]),
            default="fail",
            help="With `ok`, offline nodes do not cause exit code 3.",
        ),
        click.Option(["--timeout"], type=Duration(), help="Stop waiting after this time. [24h]"),
        no_fold_option(),
    ],
)
def _watch(application: Application, run: str, offline: str, timeout: int | None) -> Exit:
    """
    Watch a run until it ends, or waits for an operator. Earlier events are read from the stream.

    Exits with the same codes as the command that started the run.
    """

    async def work(fleet: Fleet) -> Exit:
        recorded, state, watch, follower = await pick_up(
            application, fleet, run, offline_ok=offline == "ok", timeout_s=timeout
        )
        watch.begin()
        await look(follower, state, recorded)
        await follower.follow()
        code = await watch.finish()
        found = await RolloutStore(fleet).read(recorded.record.run)
        if found is None or found[0].phase is not Phase.PAUSED:
            return code
        application.terminal.note(rollout_status(found[0], fleet.clock.now()))
        return Exit.FAILED

    return application.run(work)


for _command in (
    list_command,
    _show,
    diff_command,
    _watch,
    stop,
    retry,
    pause_run,
    resume_run,
    promote_run,
    abort_run,
):
    run.add_command(_command)
