"""`ccmctl assignment list`: list assignments. `ccmctl assignments` is its former name."""

from __future__ import annotations

from datetime import datetime

from ccm_agent.bus.subjects import format_scope
from ccm_agent.clikit.table import Cell, Column
from ccm_agent.clikit.text import ago
from ccm_agent.model.exits import Exit
from ccm_agent.model.formats.durations import format_duration
from ccm_ctl.app import Application
from ccm_ctl.commands.assignments.assignment_options import assignment_fields, count_states, read_fleet
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.data.documents import author_cell
from ccm_ctl.fleet.assignments.assignment_description import format_data_revision, format_targets, short
from ccm_ctl.fleet.assignments.assignments import Standing
from ccm_ctl.fleet.assignments.convergence import NodeStanding, judge_all
from ccm_ctl.fleet.assignments.followed_data import FollowedData, followed_keys
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.record_types.assignments import AssignmentLine


def list_assignments(application: Application) -> Exit:
    """List assignments with their targets, pinned content, and number of converged nodes."""

    async def work(fleet: Fleet) -> Exit:
        terminal = application.terminal
        inventory, known = await read_fleet(fleet)
        now = fleet.clock.now()
        newest = await FollowedData(fleet.data).newest(followed_keys(inventory.nodes.values(), known))
        rows = []
        for standing in known.standing:
            found = judge_all(inventory, known, standing, now, newest)
            terminal.record(
                AssignmentLine,
                **assignment_fields(standing),
                nodes=len(found),
                converged=sum(one.is_converged for one in found),
                states=count_states(found),
            )
            rows.append(_row(standing, found, now))
        columns = [Column("NAME"), Column("REV", right=True), Column("TARGETS", fold=True), Column("SCOPE")]
        columns += [Column("MODE"), Column("DIGEST", spare=3), Column("DATA", right=True, spare=1)]
        columns += [Column("EVERY", right=True), Column("CONVERGED"), Column("BY", spare=4)]
        columns.append(Column("SINCE", spare=2))
        terminal.table(columns, rows, "nothing is assigned yet; `ccmctl assign --help` shows how\n")
        for key in known.unreadable:
            terminal.note(f"{key}: the assignment is damaged or was made for another key; agents refuse it")
        return Exit.OK

    return application.run(work)


_EXAMPLES = ["ccmctl assignment list", "ccmctl assignment list --json"]

list_command = verb("list", examples=_EXAMPLES)(list_assignments)

assignments = verb("assignments", examples=_EXAMPLES)(list_assignments)


def _row(standing: Standing, found: list[NodeStanding], now: datetime) -> list[str | Cell]:
    assignment = standing.assignment
    targets, scope = format_targets(assignment), format_scope(assignment.scope)
    converged = sum(one.is_converged for one in found)
    meaning = (
        "bad" if any(one.has_failed for one in found) else "good" if converged == len(found) else "change"
    )
    return [
        standing.name,
        str(standing.revision),
        targets,
        "" if scope == targets else scope,
        "plan" if assignment.mode == "plan" else "",
        short(assignment.bundle.digest),
        format_data_revision(assignment),
        format_duration(assignment.interval_s) if assignment.interval_s else "",
        Cell(f"{converged} of {len(found)}", meaning if found else "quiet"),
        author_cell(standing.written_by, standing.unverified),
        ago(standing.time, now),
    ]
