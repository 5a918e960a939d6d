"""`ccmctl history`: show the sessions and changes of one node."""

from __future__ import annotations

import click

from ccm_agent.bus.subjects import check_node
from ccm_agent.clikit.durations import TimeOption
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.clikit.text import clock, plural
from ccm_agent.model.exits import Exit
from ccm_agent.model.formats.moments import GivenTime
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.nodes.session_lines import draw_agent_event, draw_session
from ccm_ctl.commands.runs.stored_runs import format_starter
from ccm_ctl.fleet.nodes.inventory import require_nodes
from ccm_ctl.fleet.nodes.node_past import PastAgentEvent, PastSession, read_past
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.stream_runs import ASSIGNMENT, find_cause
from ccm_ctl.render.record_types.past import SessionLine
from ccm_ctl.render.record_types.runs import EventLine


@verb(
    "history",
    examples=[
        "ccmctl history web1",
        "ccmctl history web1 --since 30d --all",
        "ccmctl history web1 --since 2026-12-01T02:00Z --until 2026-12-01T03:00Z --json",
    ],
    options=[
        click.Argument(["node"], metavar="NODE"),
        click.Option(
            ["--since"], type=TimeOption(), default="7d", show_default=True, help="Show newer entries only."
        ),
        click.Option(["--until"], type=TimeOption(), help="Show older entries only."),
        click.Option(["--all", "everything"], is_flag=True, help="Show sessions that changed nothing, too."),
    ],
)
def history(
    application: Application, node: str, since: GivenTime, until: GivenTime | None, everything: bool
) -> Exit:
    """
    Show the history of a node, oldest first: its sessions, their changes, and who or what started them.

    It is read from the stream of events. Sessions that changed nothing are counted, not shown.
    """

    async def work(fleet: Fleet) -> Exit:
        now = fleet.clock.now()
        begin = since.before(now)
        past = await read_past(fleet, check_node(node), begin, until.before(now) if until else None)
        if not past.entries:
            await require_nodes(fleet, [node])
        terminal = application.terminal
        quiet = 0
        for entry in past.entries:
            if isinstance(entry, PastSession) and entry.is_quiet and not everything:
                quiet += 1
            else:
                _show(terminal, node, entry)
        if not past.entries:
            terminal.show("no events in this period\n")
        if quiet:
            terminal.note(f"{plural(quiet, 'session')} changed nothing; --all shows them")
        if past.left_out:
            terminal.note(f"{plural(past.left_out, 'older event')} left out: use --since and --until")
        if past.begins and past.begins > begin:
            terminal.note(f"the stream of events begins at {clock(past.begins)}; older events are removed")
        return Exit.OK

    return application.run(work)


def _show(terminal: Terminal, node: str, entry: PastSession | PastAgentEvent) -> None:
    if isinstance(entry, PastSession):
        _print_session(terminal, node, entry)
        terminal.show(draw_session(entry, format_session_starter(entry), terminal.style))
    else:
        terminal.record(EventLine, node=node, event=entry.event, verdict=entry.verdict)
        terminal.show(draw_agent_event(entry, terminal.style))


def format_session_starter(session: PastSession) -> str:
    """Describe the starter of a session: `anna`, `schedule nightly`, `assignment web (interval)` or `the node`."""
    if session.start is None:
        return "unknown"
    cause = find_cause(session.start)
    if cause != ASSIGNMENT:
        return format_starter(cause, session.start.origin, session.start.requester)
    requester, trigger = session.start.requester, session.start.cause
    details = [f"started by {requester}"] if requester else []
    details += [trigger] if trigger and trigger != ASSIGNMENT else []
    return f"assignment {session.start.origin}" + (f" ({', '.join(details)})" if details else "")


def _print_session(terminal: Terminal, node: str, session: PastSession) -> None:
    start = session.start
    terminal.record(
        SessionLine,
        node=node,
        run=session.run,
        time=session.time,
        cause=find_cause(start) if start else None,
        origin=(start.origin or None) if start else None,
        requester=(start.requester or None) if start else None,
        message=(start.message or None) if start else None,
        manifest=session.manifest or None,
        state=session.state,
        events=session.events,
        summary=session.summary,
        verdict=session.verdict,
    )
