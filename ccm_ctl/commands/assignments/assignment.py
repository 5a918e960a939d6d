"""`ccmctl assignment`: show the status and the history of one assignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

from ccm_agent.clikit.durations import Duration
from ccm_agent.clikit.table import Amount, Cell, Column, Rows, elapsed
from ccm_agent.clikit.text import clock, natural, one_line, plural, short_id, span
from ccm_agent.model.exits import Exit
from ccm_agent.model.records.rollout_records import RolloutState
from ccm_agent.model.wire import Assignment
from ccm_ctl.app import Application
from ccm_ctl.commands.assignments.assignment_options import (
    assignment_fields,
    bringing_fields,
    choose_scope,
    count_states,
    format_rollout,
    format_title,
    read_marked_fleet,
    scope_option,
)
from ccm_ctl.commands.assignments.assignments import list_command
from ccm_ctl.commands.command_tree import group, verb
from ccm_ctl.commands.data.documents import author_cell
from ccm_ctl.commands.runs.failure_lines import FailureLines
from ccm_ctl.commands.runs.targets import no_fold_option
from ccm_ctl.fleet.assignments.assignment_description import (
    format_commit,
    format_data_revision,
    format_targets,
    short,
)
from ccm_ctl.fleet.assignments.assignment_history import find_past
from ccm_ctl.fleet.assignments.assignment_rollouts import BringingRollout, read_bringing, wait_bringing
from ccm_ctl.fleet.assignments.assignments import Standing, read_assignments
from ccm_ctl.fleet.assignments.convergence import NodeStanding, read_standings, wait_standings
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.trust.node_state import warn_of_length
from ccm_ctl.render.outcome import wait_line
from ccm_ctl.render.record_types.assignments import AssignmentLine, StandingLine
from ccm_ctl.render.rollout import rollout_line


@group(
    "assignment",
    no_args_is_help=True,
    examples=["ccmctl assignment list", "ccmctl assignment status web", "ccmctl assignment history web"],
)
def assignment(application: Application) -> None:
    """List assignments, and show their status and revisions."""


@verb(
    "status",
    short_help="Show each node of an assignment, and why it has not converged.",
    examples=[
        "ccmctl assignment status web",
        "ccmctl assignment status web --lagging",
        "ccmctl assignment status web --wait 5m   # waits for the nodes that can converge",
    ],
    options=[
        click.Argument(["name"], metavar="NAME"),
        click.Option(["--lagging"], is_flag=True, help="Show only nodes that have not converged."),
        click.Option(["--wait"], type=Duration(), help="Wait this long for nodes that can converge."),
        no_fold_option(),
    ],
)
def _status(application: Application, name: str, lagging: bool, wait: int | None) -> Exit:
    """
    Show each node of an assignment, offline nodes included: its applied content, and why it has not converged.

    During a rollout of the assignment, `--wait` also waits for its end, unless the rollout is paused.

    Exit codes: 0 all nodes have converged; 2 a node failed or refused, or a rollout of this assignment is paused; 3 a node is
    offline, disabled, expired or still converging, or a rollout of this assignment is in progress or was aborted.
    """

    async def work(fleet: Fleet) -> Exit:
        inventory, known = await read_marked_fleet(fleet)
        warn_of_length(fleet, len(inventory.nodes))
        bringing = await read_bringing(fleet, known.need(name))
        if wait:
            progress = _WaitProgress(application, name)
            left_s = await wait_bringing(fleet, bringing.values(), float(wait), progress.show_rollout)
            known, found = await wait_standings(fleet, name, left_s, read_marked_fleet, progress.show)
            bringing = await read_bringing(fleet, known.named(name))
            progress.end()
        else:
            found = await read_standings(fleet, inventory, known, name)
        shown = [one for one in found if not (lagging and one.is_converged)]
        _show(application, known.need(name), found, shown, fleet.clock.now(), bringing)
        return _choose_exit(found, bringing)

    return application.run(work)


@verb(
    "history",
    short_help="List the stored revisions.",
    examples=["ccmctl assignment history web"],
    options=[click.Argument(["name"], metavar="NAME"), scope_option()],
)
def _history(application: Application, name: str, scope: str) -> Exit:
    """List the stored revisions, newest first. Restore one with `ccmctl rollback NAME --to REVISION`."""
    place = choose_scope(scope)

    async def work(fleet: Fleet) -> Exit:
        terminal = application.terminal
        past = await find_past(fleet, await read_assignments(fleet), name, place)
        rows: list[list[str | Cell]] = []
        for one in reversed(past.revisions):
            standing = one.standing
            if standing is None:
                terminal.record(
                    AssignmentLine,
                    name=name,
                    removed=True,
                    time=one.time,
                    written_by=one.written_by or None,
                    message=one.message or None,
                )
                when = clock(one.time)
                rows.append(
                    ["", "unassigned", "", "", "", one.written_by, when, "", "", one_line(one.message)]
                )
                continue
            terminal.record(AssignmentLine, **assignment_fields(standing))
            said = standing.assignment
            rows.append(
                [
                    str(standing.revision),
                    short(said.bundle.digest),
                    format_data_revision(said),
                    "plan" if said.mode == "plan" else "",
                    format_commit(said),
                    author_cell(standing.written_by, one.unverified),
                    clock(standing.time),
                    format_targets(said),
                    _format_origin(said),
                    one_line(standing.message),
                ]
            )
        columns = [Column("REV", right=True), Column("DIGEST", spare=1), Column("DATA", right=True)]
        columns += [Column("MODE"), Column("COMMIT", spare=2)]
        columns += [Column("BY"), Column("WHEN"), Column("TARGETS", fold=True), Column("NOTE", fold=True)]
        columns.append(Column("MESSAGE", fold=True))
        terminal.table(columns, [[*row, *[""] * (len(columns) - len(row))] for row in rows])
        return Exit.OK

    return application.run(work)


def _format_origin(assignment: Assignment) -> str:
    """Describe the origin of a revision that a rollout or rollback created; "" for other revisions."""
    if assignment.next is not None:
        return f"starts rollout {short_id(assignment.next.rollout)} of {short(assignment.next.bundle.digest)}"
    if assignment.rolled_back_from:
        return f"restores revision {assignment.rolled_back_from}"
    return f"rollout {short_id(assignment.rollout)}" if assignment.rollout else ""


for _command in (list_command, _status, _history):
    assignment.add_command(_command)


WAIT_LINES_MOST = 100
"""The maximum number of progress lines that are printed without a terminal."""


class _WaitProgress:
    """
    Output of `assignment status --wait` during the wait: a line for each failure, and the number of nodes in each state.

    On a terminal, the numbers are a live line. Elsewhere, a line is printed each time they change.
    """

    def __init__(self, application: Application, name: str) -> None:
        self._terminal = application.terminal
        self._name = name
        self._failures = FailureLines(application.terminal)
        self._counts: dict[str, int] = {}
        self._lines_left = WAIT_LINES_MOST
        self._rollout = ""

    def show(self, found: Sequence[NodeStanding], left_s: float) -> None:
        """Print new failures, and show the number of nodes in each state."""
        for one in sorted(found, key=lambda one: natural(one.node)):
            if one.has_failed:
                self._failures.name(one.node, one.state, one.reason, one.run)
        counts = count_states(found)
        style = self._terminal.live_style
        if self._terminal.is_live:
            self._terminal.live(wait_line(self._name, counts, left_s, style))
        elif counts != self._counts and not self._terminal.json and self._lines_left:
            self._lines_left -= 1
            more = "" if self._lines_left else "; further changes are not shown"
            self._terminal.note(f"{wait_line(self._name, counts, left_s, style)}{more}")
        self._counts = counts

    def show_rollout(self, state: RolloutState) -> None:
        """Print the progress of the rollout that the command waits for, each time it changes."""
        line = rollout_line(state)
        if line != self._rollout and not self._terminal.json and self._lines_left:
            self._rollout = line
            self._lines_left -= 1
            self._terminal.note(line)

    def end(self) -> None:
        """Clear the live line before the table is printed."""
        self._terminal.live("")
        self._failures.close()


def _show(
    application: Application,
    standing: Sequence[Standing],
    found: Sequence[NodeStanding],
    shown: Sequence[NodeStanding],
    now: datetime,
    bringing: Mapping[str, BringingRollout],
) -> None:
    terminal = application.terminal
    for one in standing:
        rollout = bringing.get(one.key)
        terminal.record(AssignmentLine, **assignment_fields(one), **bringing_fields(rollout))
        terminal.show(f"{format_title(one, now)}\n")
        if line := format_rollout(one, found, rollout):
            terminal.show(f"{line}\n")
    ordered = sorted(shown, key=lambda one: (one.has_failed, not one.is_converged))
    for node in ordered if terminal.json else ():
        terminal.record(StandingLine, **standing_fields(node))
    columns = [
        Column("NODE", names=True),
        Column("STATE"),
        Column("DIGEST", spare=2),
        Column("DATA", right=True, spare=1),
    ]
    columns += [Column("SINCE"), Column("WHY", fold=True)]
    terminal.table(
        columns,
        Rows(ordered, lambda node: _row(node, now)),
        unit="nodes",
        narrow="--lagging",
        is_worst_last=True,
    )
    if not found and bringing:
        return  # the line about the rollout already contains the number of nodes
    states = ", ".join(f"{count} {state}" for state, count in count_states(found).items())
    terminal.show(f"{plural(len(found), 'node')}{f': {states}' if states else ''}\n")


def _row(one: NodeStanding, now: datetime) -> list[str | Cell]:
    meaning = "good" if one.is_converged else "bad" if one.has_failed else "quiet" if one.away else "change"
    again = None
    if one.next_time is not None and (seconds := (one.next_time - now).total_seconds()) >= 1:
        again = Amount(f"again in {span(seconds)}", seconds)
    notes = (one.reason, f"unverified {one.unverified}" if one.unverified else "")
    why = one_line("; ".join(note for note in notes if note))
    return [
        one.node,
        Cell(one.state, meaning),
        short(one.digest),
        _format_data(one),
        Cell("", amount=elapsed(one.since, now)),
        Cell(f"{why};" if why and again else why, amount=again),
    ]


def _format_data(one: NodeStanding) -> str:
    """Describe the Hiera data that a node used most recently."""
    if not one.digest:
        return ""
    if one.data_revision:
        return str(one.data_revision)
    return "older" if one.older_data else "newest"


def standing_fields(one: NodeStanding) -> dict[str, Any]:
    """Return the state of a node for an assignment as record fields."""
    fields = msgspec.structs.asdict(one)
    away, wanted = fields.pop("away"), fields.pop("wanted")
    return {
        "name": wanted.name,
        "scope": wanted.assignment.scope,
        "wanted": wanted.revision,
        **{key: value or None for key, value in fields.items()},
        "offline": away is not None or None,
        "offline_since": away.since if away else None,
    }


def _choose_exit(found: Sequence[NodeStanding], bringing: Mapping[str, BringingRollout]) -> Exit:
    if any(one.has_failed for one in found) or any(one.is_paused for one in bringing.values()):
        return Exit.FAILED
    if bringing:
        return Exit.MISSING  # also after an abort, because nodes have different revisions until a rollback
    return Exit.OK if all(one.is_converged for one in found) else Exit.MISSING
