"""`ccmctl state`: show the states of the resources of one node, now or at a past time."""

from __future__ import annotations

from datetime import datetime

import click

from ccm_agent.bus.subjects import check_node
from ccm_agent.clikit.durations import TimeOption
from ccm_agent.clikit.table import Cell, Column
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.clikit.text import ago, clock, one_line, plural, short_id
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.formats.moments import GivenTime
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.nodes.history import format_session_starter
from ccm_ctl.fleet.nodes.inventory import require_nodes
from ccm_ctl.fleet.nodes.node_past import PastManifest, PastResource, find_states, read_past
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.event import MEANINGS
from ccm_ctl.render.record_types.past import StateLine


@verb(
    "state",
    examples=[
        "ccmctl state web1",
        "ccmctl state web1 --at 2026-12-01T02:00Z",
        "ccmctl state web1 --at 3d --json",
    ],
    options=[
        click.Argument(["node"], metavar="NODE"),
        click.Option(
            ["--at"], type=TimeOption(), help="Show the state at this time, or this long ago. Default: now."
        ),
    ],
)
def state(application: Application, node: str, at: GivenTime | None) -> Exit:
    """
    Show the state of each resource of a node, now or at a past time, and the run that changed it last.

    It is derived from the stream of events, which has an event for each resource that changed, failed, was skipped or refreshed.
    Stable resources without an event are only counted.

    Exit codes: 0 a state is known; 1 the command could not run; 3 no state is known for that time.
    """

    async def work(fleet: Fleet) -> Exit:
        now = fleet.clock.now()
        moment = at.before(now) if at else now
        if moment > now:
            raise UsageError(
                f"--at {clock(moment)}: the time is in the future; the state is known only up to now"
            )
        past = await read_past(fleet, check_node(node), until=moment)
        states = find_states(past)
        terminal = application.terminal
        if not past.entries:
            await require_nodes(fleet, [node])
        for name, manifest in sorted(states.items()):
            _show(terminal, node, name, manifest, now)
        begins = clock(past.begins) if past.begins else ""
        if not states:
            terminal.show(f"no state is known for {node} at {clock(moment)}\n")
        terminal.note(f"events are stored since {begins}" if begins else "no event is stored")
        return Exit.OK if states else Exit.MISSING

    return application.run(work)


def _show(terminal: Terminal, node: str, name: str, manifest: PastManifest, now: datetime) -> None:
    session = manifest.session
    terminal.show(
        f"{one_line(name)}: {session.state} {ago(session.time, now)} (run {short_id(session.run)})\n"
    )
    for resource, past in sorted(manifest.resources.items()):
        _print_record(terminal, node, name, resource, past)
    columns = [Column("RESOURCE", fold=True), Column("STATE"), Column("OUTCOME"), Column("WHEN", spare=1)]
    columns += [Column("CHANGED BY", fold=True)]
    rows = [_row(resource, past, now) for resource, past in sorted(manifest.resources.items())]
    terminal.table(columns, rows)
    if manifest.silent:
        terminal.show(
            f"{plural(manifest.silent, 'resource')} without an event: unchanged since the stream began\n"
        )
    terminal.show("\n")


def _print_record(terminal: Terminal, node: str, manifest: str, resource: str, past: PastResource) -> None:
    terminal.record(
        StateLine,
        node=node,
        manifest=manifest or None,
        resource=resource,
        ensure=past.event.final_ensure or None,
        outcome=str(past.event.outcome),
        time=past.session.time,
        run=past.session.run,
        changed=past.changed.time if past.changed else None,
        changed_run=past.changed.run if past.changed else None,
        status=past.event.status,
    )


def _row(resource: str, past: PastResource, now: datetime) -> list[str | Cell]:
    changed = past.changed
    by = f"{format_session_starter(changed)}, run {short_id(changed.run)}" if changed else ""
    return [
        resource,
        past.event.final_ensure,
        Cell(str(past.event.outcome), MEANINGS.get(past.event.outcome, "")),
        ago(past.session.time, now),
        by,
    ]
