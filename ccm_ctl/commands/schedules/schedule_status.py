"""`ccmctl schedule status`: show the result of a schedule's last run, and the nodes that did not take part."""

from __future__ import annotations

from datetime import timedelta

import click

from ccm_agent.model.errors import NotFoundError
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.runs.run_view import choose_exit
from ccm_ctl.commands.runs.targets import no_fold_option
from ccm_ctl.commands.schedules.schedule_rollout import show_rollout_status
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.find_run import describe_last, find_run, find_schedule
from ccm_ctl.fleet.runs.history import Recorded
from ccm_ctl.fleet.runs.run_list import RunFilter, list_runs

PAST = timedelta(days=30)
"""The period in which the runs of a removed schedule are searched."""


@verb(
    "status",
    examples=["ccmctl schedule status nightly", "ccmctl schedule status nightly --json"],
    options=[
        click.Argument(["name"], metavar="NAME"),
        click.Option(
            ["--offline"],
            type=click.Choice(["fail", "ok"]),
            default="fail",
            help="With `ok`, nodes without a session do not cause exit code 3.",
        ),
        no_fold_option(),
    ],
)
def status_command(application: Application, name: str, offline: str) -> Exit:
    """
    Show how the last run of a schedule ended, and which nodes did not take part.

    All nodes that match the schedule now are expected. For a removed schedule, the newest run of the last 30 days is shown, with
    the nodes that took part. `ccmctl run list --schedule NAME` lists earlier runs. For a rollout, the last starts are
    shown, including skipped ones.

    Exit codes: 0 all nodes ended well; 1 the command could not run, or the schedule was not due yet; 2 a node failed or refused;
    3 a node did not take part or has not ended, or the last start of a rollout was skipped.
    """

    async def work(fleet: Fleet) -> Exit:
        from ccm_ctl.commands.runs.stored_runs import attend, look, show_stored

        try:
            schedule = await find_schedule(fleet, name)
        except NotFoundError:
            found = await _find_past(fleet, name)
            if found is None:
                raise
            recorded = found
        else:
            if schedule.rollout is not None:
                return await show_rollout_status(application, fleet, schedule, offline=offline)
            recorded = await describe_last(fleet, schedule)
        state, watch, follower = await attend(application, fleet, recorded, offline_ok=offline == "ok")
        await look(follower, state, recorded)
        show_stored(application, fleet, recorded, state, watch, is_ended=state.is_done)
        return choose_exit(state, offline_ok=offline == "ok")

    return application.run(work)


async def _find_past(fleet: Fleet, name: str) -> Recorded | None:
    """Return the newest run of a removed schedule according to the stream of events; None if there is none."""
    runs = (await list_runs(fleet, RunFilter(schedule=name, since=fleet.clock.now() - PAST), 1)).runs
    return await find_run(fleet, runs[0].record.run) if runs else None
