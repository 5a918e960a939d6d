"""`ccmctl top`: show the fleet live on a terminal."""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import TYPE_CHECKING

from ccm_agent.clikit.text import clock, one_line, plural, short_id
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_ctl.commands.command_tree import verb

if TYPE_CHECKING:
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.top.fleet_watch import FleetWatch
    from ccm_ctl.top.screen import TopApp


@verb("top", examples=["ccmctl top", "NO_COLOR=1 ccmctl top"], options=[])
def top(application: Application) -> Exit:
    """
    Show nodes, runs, events and failing resources live on the terminal, until `q`.

    `/` filters by a selector, Enter opens a row, `?` shows all keys. It changes nothing on nodes.
    """
    terminal = application.terminal
    if not (terminal.is_live and terminal.out.isatty() and sys.stdin.isatty()):
        raise UsageError(
            "top requires a terminal; use `ccmctl node list`, `run list` or `events`, also with --json"
        )
    application.goes_on_for_ever = True

    async def work(fleet: Fleet) -> Exit:
        from ccm_ctl.top.first_screen import draw_first_screen, silent_second_screen
        from ccm_ctl.top.fleet_watch import FleetWatch

        await fleet.nodes.revision()  # this fails if the broker has no streams
        watch = FleetWatch(fleet)
        with silent_second_screen(terminal.out, sys.stdin):
            await watch.read_first()
            draw_first_screen(terminal.out, watch, fleet.clock.now(), color=terminal.style.color)
            return await show(fleet, watch)

    async def show(fleet: Fleet, watch: FleetWatch) -> Exit:
        textual = await asyncio.to_thread(importlib.import_module, "ccm_ctl.top.screen")
        view: TopApp = textual.TopApp(
            fleet,
            textual.TopPages(
                lambda node, width: node_page(fleet, node, width),
                lambda run, width: run_page(application, fleet, run, width),
            ),
            watch,
        )
        await view.run_async(mouse=False)  # without the mouse, the terminal can select text to copy
        return Exit.OK if not view.return_code else Exit.COULD_NOT_RUN

    return application.run(work)


async def node_page(fleet: Fleet, name: str, width: int) -> str:
    """Return the output of `ccmctl why` for a node as text without color."""
    from ccm_agent.clikit.table import Style
    from ccm_ctl.commands.nodes.diagnosis import explain
    from ccm_ctl.commands.nodes.why import why_screen
    from ccm_ctl.fleet.nodes.node_diagnostics import read_evidence

    evidence = await read_evidence(fleet, name)
    now = fleet.clock.now()
    return why_screen(evidence, explain(evidence, now), now, Style(width=width))


async def run_page(application: Application, fleet: Fleet, run: str, width: int) -> str:
    """Return the waves and the results of a run as text without color."""
    from ccm_agent.clikit.table import Style
    from ccm_ctl.commands.runs.node_results import build_result
    from ccm_ctl.commands.runs.stored_runs import look, pick_up
    from ccm_ctl.fleet.rollout.store import RolloutStore
    from ccm_ctl.render.outcome import format_counts, run_report
    from ccm_ctl.render.records import title_of
    from ccm_ctl.render.rollout import rollout_line, wave_lines

    recorded, state, _, follower = await pick_up(application, fleet, run, offline_ok=True)
    await look(follower, state, recorded)
    rollout = await RolloutStore(fleet).read(recorded.record.run)
    record, style = recorded.record, Style(width=width, merges=True)
    is_plan = record.action == "plan"
    by = f" by {record.requester}" if record.requester else ""
    why = f"message: {one_line(record.message)}\n" if record.message else ""
    blocks = [
        f"{title_of(record)} on {plural(record.nodes, 'node')}{by}, {clock(record.time)}\n{why}"
        f"{recorded.state.state}: {format_counts(state.counts(), plan=is_plan)}"
    ]
    if rollout is not None:
        blocks.append(f"{rollout_line(rollout[0])}\n{wave_lines(rollout[0].plan, style)}")
    results = [build_result(node) for _, node in sorted(state.nodes.items())]
    blocks.append(run_report(results, style, plan=is_plan).rstrip())
    blocks.append(f"To verify events and see full outputs:\n  ccmctl run show {short_id(record.run)}")
    return "\n\n".join(blocks)
