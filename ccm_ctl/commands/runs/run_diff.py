"""`ccmctl run diff`: show the nodes and resources with different results in two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ccm_agent.clikit.table import Cell, Column
from ccm_agent.clikit.text import fold_names, plural
from ccm_agent.model.exits import Exit
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.runs.stored_runs import format_heading, look, pick_up
from ccm_ctl.commands.runs.targets import no_fold_option
from ccm_ctl.render.outcome import MEANINGS
from ccm_ctl.render.record_types.past import DifferenceLine, NodeOutcomeFields, ResourceDifferenceFields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ccm_ctl.app import Application
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.runs.history import Recorded
    from ccm_ctl.fleet.runs.run import Run
    from ccm_ctl.fleet.runs.run_diff import NodeDifference

RESOURCES_SHOWN = 6
"""The maximum number of resources named in a row. `--json` contains all of them."""


@verb(
    "diff",
    examples=["ccmctl run diff 3HAAgFJs last", "ccmctl run diff 3HAAgFJs 3HBBx --json"],
    options=[
        click.Argument(["a"], metavar="RUN"),
        click.Argument(["b"], metavar="RUN"),
        no_fold_option(),
    ],
)
def diff_command(application: Application, a: str, b: str) -> Exit:
    """
    Show the nodes and resources with different results in two runs.

    A resource without an event in a run was stable there, or not declared.
    """

    async def work(fleet: Fleet) -> Exit:
        from ccm_ctl.fleet.runs.run_diff import compare_runs

        (recorded_a, run_a), (recorded_b, run_b) = (
            await _look(application, fleet, a),
            await _look(application, fleet, b),
        )
        differences = compare_runs(run_a.nodes, run_b.nodes)
        terminal = application.terminal
        now = fleet.clock.now()
        headings = [format_heading(one, now).splitlines()[0] for one in (recorded_a, recorded_b)]
        terminal.show(f"A: {headings[0]}\nB: {headings[1]}\n\n")
        for one in differences:
            terminal.record(
                DifferenceLine,
                node=one.node,
                a=NodeOutcomeFields(state=one.a.state, reason=one.a.reason),
                b=NodeOutcomeFields(state=one.b.state, reason=one.b.reason),
                resources=[
                    ResourceDifferenceFields(resource=each.resource, a=each.a, b=each.b)
                    for each in one.resources
                ],
                runs=[recorded_a.record.run, recorded_b.record.run],
            )
        _show_table(application, differences)
        same = len({*run_a.nodes, *run_b.nodes}) - len(differences)
        terminal.show(
            f"{plural(len(differences), 'node')} differ{'s' if len(differences) == 1 else ''}, {same} alike\n"
        )
        return Exit.OK

    return application.run(work)


async def _look(application: Application, fleet: Fleet, word: str) -> tuple[Recorded, Run]:
    recorded, state, _, follower = await pick_up(application, fleet, word, offline_ok=True)
    await look(follower, state, recorded)
    return recorded, state


def _show_table(application: Application, differences: Sequence[NodeDifference]) -> None:
    terminal = application.terminal
    groups: dict[tuple[object, ...], list[NodeDifference]] = {}
    for one in differences:
        alone = one.node if terminal.style.merges is False else ""
        key = (one.a, one.b, tuple(one.resources), alone)
        groups.setdefault(key, []).append(one)
    meanings = {str(state): meaning for state, meaning in MEANINGS.items()}
    rows: list[list[str | Cell]] = []
    for group in groups.values():
        first = group[0]
        rows.append(
            [
                fold_names(one.node for one in group),
                Cell(first.a.state, meanings.get(first.a.state, "quiet")),
                Cell(first.b.state, meanings.get(first.b.state, "quiet")),
                _words(first),
            ]
        )
    columns = [Column("NODES", fold=True), Column("A"), Column("B"), Column("WHAT", fold=True)]
    terminal.table(columns, rows)
    if rows:
        terminal.show("\n")


def _words(one: NodeDifference) -> str:
    parts = [f"{each.resource}: {each.a} → {each.b}" for each in one.resources[:RESOURCES_SHOWN]]
    if len(one.resources) > RESOURCES_SHOWN:
        parts.append(f"and {len(one.resources) - RESOURCES_SHOWN} more")
    reasons = [f"{side}: {what.reason}" for side, what in (("A", one.a), ("B", one.b)) if what.reason]
    return ", ".join([*reasons, *parts])
