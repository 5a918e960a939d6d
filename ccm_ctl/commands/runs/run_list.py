"""`ccmctl run list`: list the runs of all operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ccm_agent.bus.subjects import check_node
from ccm_agent.clikit.durations import TimeOption
from ccm_agent.clikit.table import Column
from ccm_agent.clikit.text import ago, clock, fold_names, one_line, plural, short_ids
from ccm_agent.model.exits import Exit
from ccm_agent.model.wire import NodeState
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.runs.stored_runs import format_outcome, format_starter, phase_fields
from ccm_ctl.fleet.runs.stream_runs import CAUSES
from ccm_ctl.render import records
from ccm_ctl.render.record_types.runs import RunLine
from ccm_ctl.render.records import run_fields

if TYPE_CHECKING:
    from datetime import datetime

    from ccm_agent.clikit.terminal import Terminal
    from ccm_agent.model.formats.moments import GivenTime
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.runs.run_list import ListedRun, ListedRuns, RunFilter

STATES = (
    "open",
    "paused",
    "stopping",
    "done",
    "aborted",
    *(str(state) for state in NodeState if state.is_final),
)
"""The values of `--state`."""


@verb(
    "list",
    examples=[
        "ccmctl run list",
        "ccmctl run list --node web1 --since 7d",
        "ccmctl run list --state failed --by anna --limit 100 --json",
        "ccmctl run list --schedule nightly --since 7d",
    ],
    options=[
        click.Option(["--node"], metavar="NODE", default="", help="Show only runs for this node."),
        click.Option(
            ["--name"],
            metavar="NAME",
            default="",
            help="Show only runs of this manifest or resource. `*` and `?` are wildcards.",
        ),
        click.Option(
            ["--cause", "causes"],
            multiple=True,
            type=click.Choice(CAUSES),
            help="Show only runs that an operator (`request`), a schedule, an assignment or the node itself started. Repeatable.",
        ),
        click.Option(["--schedule"], metavar="SCHEDULE", default="", help="Show only runs of this schedule."),
        click.Option(
            ["--assignment"], metavar="ASSIGNMENT", default="", help="Show only runs of this assignment."
        ),
        click.Option(["--by"], metavar="OPERATOR", default="", help="Show only runs of this operator."),
        click.Option(
            ["--state"],
            type=click.Choice(STATES),
            default=None,
            metavar="STATE",
            help="Show only open runs (`open`), ended ones (`done`), rollouts that are `paused` or `aborted`, or runs in which a "
            "node has this end state.",
        ),
        click.Option(["--since"], type=TimeOption(), help="Show only runs that began since then."),
        click.Option(["--until"], type=TimeOption(), help="Show only runs that began before then."),
        click.Option(
            ["--limit"],
            type=click.IntRange(1),
            default=20,
            show_default=True,
            metavar="N",
            help="Show at most N runs.",
        ),
        click.Option(
            ["--no-fold"],
            is_flag=True,
            help="Show each run of an assignment in its own row, also on a terminal.",
        ),
    ],
)
def list_command(
    application: Application,
    node: str,
    name: str,
    causes: tuple[str, ...],
    schedule: str,
    assignment: str,
    by: str,
    state: str | None,
    since: GivenTime | None,
    until: GivenTime | None,
    limit: int,
    no_fold: bool,
) -> Exit:
    """
    List runs of operators, schedules and assignments, newest first.

    Runs of one assignment share a row with the newest run of each node. Runs that no operator started are read from the stream
    of events: those of the last day, or since --since. Runs that only one node reports may be invented, so half of the rows are
    reserved for other runs, and these nodes share the rest. A record that its operator did not sign is marked "unverified".
    """

    async def work(fleet: Fleet) -> Exit:
        from ccm_ctl.fleet.runs.run_list import RunFilter, list_runs

        now = fleet.clock.now()
        wanted = RunFilter(
            node=check_node(node) if node else "",
            name=name,
            by=by,
            state=state or "",
            since=since.before(now) if since else None,
            until=until.before(now) if until else None,
            causes=causes,
            schedule=schedule,
            assignment=assignment,
            folds=not (no_fold or assignment or application.terminal.json),
        )
        listed = await list_runs(fleet, wanted, limit)
        is_filtered = wanted != RunFilter(folds=wanted.folds)
        _show(application.terminal, listed, "no runs match\n" if is_filtered else "no runs yet\n", now)
        _tell_limits(application.terminal, listed, wanted)
        return Exit.OK

    return application.run(work)


def _show(terminal: Terminal, listed: ListedRuns, otherwise: str, now: datetime) -> None:
    shorts = short_ids(one.record.run for one in listed.runs)
    has_messages = any(one.record.message for one in listed.runs)
    rows = []
    for one in listed.runs:
        _print_record(terminal, one)
        rows.append(_row(one, shorts[one.record.run], now, has_messages=has_messages))
    columns = [Column("RUN"), Column("WHEN", spare=1), Column("BY", spare=2), Column("WHAT", fold=True)]
    columns += [Column("NODES", right=True), Column("OUTCOME", fold=True)]
    columns += [Column("MESSAGE", fold=True)] if has_messages else []
    terminal.table(columns, rows, otherwise)
    if listed.left_out:
        what = plural(len(listed.left_out), "key")
        terminal.note(f"left out: {what} of CCM_RUNS that cannot be read, such as {listed.left_out[0]}")


def _tell_limits(terminal: Terminal, listed: ListedRuns, wanted: RunFilter) -> None:
    """Print the time from which on the list of runs by schedules and assignments is complete, if it is later than requested."""
    if listed.crowding:
        terminal.note(
            f"left out: runs that only {fold_names(listed.crowding)} reported, to leave room for others; --node lists them"
        )
    if listed.is_cut:
        further = "" if wanted.since else "; --since reads further back"
        terminal.note(
            f"runs of schedules and assignments: complete since {clock(listed.read_since)}, because of many events{further}"
        )
    elif wanted.since and listed.begins and listed.begins > wanted.since:
        terminal.note(
            f"runs of schedules and assignments: the stream of events begins at {clock(listed.begins)}; older events are removed"
        )


def _print_record(terminal: Terminal, one: ListedRun) -> None:
    terminal.record(
        RunLine,
        **run_fields(one.record),
        cause=one.cause,
        origin=one.origin or None,
        reported_by=one.reported_by or None,
        state=one.state.state,
        counts=one.state.counts,
        stopped_by=one.state.stopped_by or None,
        closed_by=one.closed_by or None,
        **phase_fields(one.rollout),
        unverified=one.unverified or None,
    )


def _row(one: ListedRun, run: str, now: datetime, *, has_messages: bool) -> list[str]:
    record = one.record
    unverified = f" (unverified: {one_line(one.unverified)})" if one.unverified else ""
    starter = format_starter(one.cause, one.origin, record.requester)
    return [
        f"{run} +{one.others}" if one.others else run,
        ago(record.time, now),
        starter + (f" (reported by {one.reported_by})" if one.reported_by else ""),
        records.title_of(record),
        str(record.nodes),
        format_outcome(record.action, one.state, one.closed_by, one.rollout) + unverified,
        *([one_line(record.message)] if has_messages else []),
    ]
