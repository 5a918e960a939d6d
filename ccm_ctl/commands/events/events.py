"""`ccmctl events`: show events of agents as they arrive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from ccm_agent.bus.subjects import check_node, run_pattern, stored_patterns
from ccm_agent.clikit.durations import TimeOption
from ccm_agent.model.errors import ExpressionError, NoTargetError, ProtocolError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.records.verdicts import BAD
from ccm_agent.model.wire import SESSION_ANSWER, SESSION_PROGRESS
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.runs.targets import check_selectors, no_fold_option
from ccm_ctl.fleet.events.event_filter import EventFilter
from ccm_ctl.fleet.events.event_search import kind_of, merged, stored_subjects
from ccm_ctl.fleet.events.messages import decode_agent_message
from ccm_ctl.fleet.nodes.discovery import TargetSpec, resolve
from ccm_ctl.fleet.nodes.inventory import require_nodes
from ccm_ctl.fleet.runs.find_run import find_id
from ccm_ctl.fleet.runs.proof import judge_run
from ccm_ctl.fleet.trust.authors import learn_records, read_authors
from ccm_ctl.fleet.trust.verification import find_node, judge_events
from ccm_ctl.render.event import event_line
from ccm_ctl.render.record_types.runs import EventLine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from ccm_agent.model.formats.moments import GivenTime
    from ccm_agent.model.ports import StoredEvent
    from ccm_agent.model.records.verdicts import Verdict
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.events.messages import AgentMessage
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.trust.authors import Authors

    Period = tuple[datetime | None, datetime | None]

TYPES = ("resource", "start", "summary", "answer", "progress", "agent")
REMEMBERED = 100_000
"""The number of recent events that are remembered to recognize duplicates."""


@verb(
    "events",
    examples=[
        "ccmctl events",
        "ccmctl events --node web1 --type resource",
        "ccmctl events --run last --no-follow --json",
        "ccmctl events -t role=web --since 2h --type resource",
        "ccmctl events --since 2h --where 'changed && type == \"file\"'",
        "ccmctl events --since 2026-12-01T02:00Z --until 2026-12-01T03:00Z",
        "ccmctl events --verify                          # authentic and complete?",
        "ccmctl events --verify -t role=web --since 7d",
    ],
    options=[
        click.Option(["--node", "-n"], metavar="NODE", default="", help="Show only events of this node."),
        click.Option(
            ["--run", "-r"],
            metavar="RUN",
            default="",
            help="Show only events of this run, stored ones first.",
        ),
        click.Option(
            ["--type", "kinds"],
            multiple=True,
            type=click.Choice(TYPES),
            help="Show only this type of event. May be repeated.",
        ),
        click.Option(
            ["--follow/--no-follow"],
            default=None,
            help="Keep following new events until interrupted, or exit after the stored ones. [follow, unless --until]",
        ),
        click.Option(
            ["--verify"],
            is_flag=True,
            help="Check the signatures and the order of the stored events, node by node.",
        ),
        click.Option(
            ["--targets", "-t"],
            multiple=True,
            metavar="SELECTOR",
            callback=check_selectors,
            help="Show only events of nodes that match. Repeat to match any of several selectors.",
        ),
        click.Option(
            ["--since"],
            type=TimeOption(),
            help="Show the events stored since this time, oldest first, such as 2h or 2026-12-01T02:00Z.",
        ),
        click.Option(
            ["--until"],
            type=TimeOption(),
            help="Show the events stored until this time, and exit.",
        ),
        click.Option(
            ["--where", "-w"],
            metavar="EXPR",
            default="",
            help="Show only events for which this expression is true, such as 'changed && type == \"file\"'.",
        ),
        no_fold_option(),
    ],
)
def events(
    application: Application,
    node: str,
    run: str,
    kinds: tuple[str, ...],
    follow: bool | None,
    verify: bool,
    targets: tuple[str, ...],
    since: GivenTime | None,
    until: GivenTime | None,
    where: str,
) -> Exit:
    """Show events of agents: changes, failures, skipped resources, progress of runs, and agents that start and stop.

    With --verify: check that the stored events are authentic and complete.

    Exit codes: 0 success; 1 the command could not run; 2 with --verify: an event is missing, changed or forged.
    """
    if node and targets:
        raise UsageError("--node and --targets both select the nodes; use one of them")
    if verify:
        if run or kinds or until or follow or where:
            raise UsageError(
                "--verify can be combined only with --node, --targets and --since; "
                "`ccmctl run show` verifies one run"
            )
        return application.run(lambda fleet: _verify(application, fleet, node, targets, since))
    if follow and until:
        raise UsageError("--follow and --until are mutually exclusive")
    is_followed = follow if follow is not None else until is None
    if not is_followed and not (run or node or since or until):
        raise UsageError("all stored events are too many; use --run, --node or --since")

    condition = _parse_where(where)

    async def work(fleet: Fleet) -> Exit:
        # fail here if the broker has no streams, because agents would not publish and the command would wait forever
        await fleet.nodes.revision()
        wanted_run = await find_id(fleet, run) if run else ""
        authors = await read_authors(fleet)
        now = fleet.clock.now()
        period = (since.before(now) if since else None, until.before(now) if until else None)
        nodes = [check_node(node)] if node else await _resolve(fleet, targets)
        shown = _Shown(
            application, nodes, wanted_run, kinds, authors, condition, is_dated=period != (None, None)
        )
        # live events are collected here until the stored events are shown, which come first
        live: list[StoredEvent] | None = []

        def hear_live(message: StoredEvent) -> None:
            if live is None:
                shown.show(message)
            else:
                live.append(message)

        stops: list[Callable[[], Awaitable[None]]] = []
        try:
            if is_followed:
                application.goes_on_for_ever = True
                for pattern in _patterns(wanted_run):
                    stops.append(await fleet.events.follow(pattern, hear_live))
            count = 0
            if wanted_run or since or not is_followed:
                count = await _show_stored(fleet, shown, authors, wanted_run, node, period)
            waiting, live = live or [], None
            for message in waiting:
                shown.show(message)
            if node and not count:
                await _look_for(application, fleet, node, needed=not is_followed)
            if not application.terminal.json and (is_followed or not shown.count):
                application.terminal.note(
                    _quiet_note(shown.count, is_followed=is_followed, is_dated=bool(since))
                )
            if is_followed:
                await asyncio.Event().wait()
        finally:
            for stop in stops:
                await stop()
        return Exit.OK

    return application.run(work)


def _quiet_note(count: int, *, is_followed: bool, is_dated: bool) -> str:
    """Return the note for an operator if no event, or no further event, is shown."""
    if not is_followed:
        return "no stored events match"
    earlier = "" if count or is_dated else "; `--since 1h` shows earlier ones"
    return f"{'' if count else 'no events yet; '}waiting for new events{earlier}; Ctrl-C ends the command"


def _parse_where(text: str) -> EventFilter | None:
    """Parse the condition for events; None if there is none."""
    return EventFilter(text) if text else None


async def _verify(
    application: Application, fleet: Fleet, node: str, targets: tuple[str, ...], since: GivenTime | None
) -> Exit:
    from ccm_ctl.commands.events.verifying import verify

    return await verify(application, fleet, node, targets, since.before(fleet.clock.now()) if since else None)


async def _resolve(fleet: Fleet, targets: tuple[str, ...]) -> list[str]:
    """Return the nodes that match a selector now; [] if there is no selector."""
    if not targets:
        return []
    _, resolved = await resolve(fleet, TargetSpec(targets=targets))
    return resolved.nodes


async def _show_stored(
    fleet: Fleet, shown: _Shown, authors: Authors | None, run: str, node: str, period: Period
) -> int:
    """
    Show stored events in the order in which the broker stored them.

    Args:
        fleet: The bus.
        shown: Shows the events.
        authors: The keys that may sign; None if nothing is verified.
        run: The run whose events are shown; "" for all runs.
        node: The node whose events are shown; "" for all nodes.
        period: The period in which the events were stored. If it is given, each event is verified only by its own signature,
            because the chain of a node begins before the period.

    Returns:
        The number of events that were read.
    """
    subjects = stored_subjects(run, node)
    if period != (None, None):
        count = 0
        async for message in merged([fleet.events.scan(one, period[0]) for one in subjects]):
            if period[1] is not None and message.time is not None and message.time > period[1]:
                break
            count += 1
            shown.show(message)
        return count
    found = [one for pattern in subjects for one in await fleet.events.read(pattern)]
    found.sort(key=lambda one: one.sequence)
    verdicts = await _judge(fleet, authors, found, node, is_run=bool(run)) if authors is not None else {}
    for message in found:
        shown.show(message, verdicts.get(message.sequence))
    return len(found)


async def _judge(
    fleet: Fleet, authors: Authors, found: list[StoredEvent], node: str, *, is_run: bool
) -> dict[int, Verdict]:
    """Return the verdicts on stored events, by sequence number: on all events of a node, or on those of a run."""
    if is_run:
        return await judge_run(fleet, authors, found)
    await learn_records(fleet, authors, [node])
    return judge_events(node, authors, [one for one in found if find_node(one) == node])


async def _look_for(application: Application, fleet: Fleet, node: str, *, needed: bool) -> None:
    """
    Report a node that has no events and is not present. It may still appear if the command waits for events.

    Raises:
        NoTargetError: The node does not exist although it is `needed`.
    """
    if await fleet.nodes.get(f"node.{node}") is not None:
        return
    try:
        await require_nodes(fleet, [node])
    except NoTargetError as err:
        if needed:
            raise
        application.terminal.note(str(err))


class _Shown:
    """
    Shows the selected events. Each event is shown once.

    Attributes:
        count: The number of events shown.
    """

    def __init__(
        self,
        application: Application,
        nodes: Sequence[str],
        run: str,
        kinds: tuple[str, ...],
        authors: Authors | None,
        condition: EventFilter | None,
        *,
        is_dated: bool,
    ) -> None:
        self.count = 0
        self._terminal = application.terminal
        self._condition = condition
        self._is_condition_trouble_told = False
        self._nodes = frozenset(nodes)
        self._is_dated = is_dated
        self._run = run
        self._kinds = kinds
        self._authors = authors
        self._seen: dict[object, None] = {}

    def show(self, message: StoredEvent, verdict: Verdict | None = None) -> None:
        """Show a message if it is selected and new. If no verdict is given, only the message's own signature is checked."""
        try:
            heard = decode_agent_message(message)
        except ProtocolError:
            return  # a message that violates the protocol has no valid sender
        if (self._nodes and heard.node not in self._nodes) or (self._run and heard.run != self._run):
            return
        if verdict is None and self._authors is not None:
            verdict = self._authors.judge(heard.node, message)
        flag = str(verdict) if verdict in BAD else ""
        kind = kind_of(heard)
        if (self._kinds and kind not in self._kinds) or not self._fits(heard, kind):
            return
        if not (flag or self._is_new(heard)):
            return
        self.count += 1
        self._terminal.record(
            EventLine, node=heard.node, run=heard.run or None, event=heard.said, verdict=verdict
        )
        self._terminal.show(
            event_line(heard.node, heard.said, self._terminal.style, flag, is_dated=self._is_dated)
        )
        self._terminal.flush()

    def _fits(self, heard: AgentMessage, kind: str) -> bool:
        """
        Whether the condition is true for an event. If it cannot be evaluated, the event is omitted, and one note is printed.
        """
        if self._condition is None:
            return True
        try:
            return self._condition.fits(heard, kind)
        except ExpressionError as err:
            if not self._is_condition_trouble_told:
                self._is_condition_trouble_told = True
                self._terminal.note(f"--where cannot be evaluated for some events, which are left out: {err}")
            return False

    def _is_new(self, heard: AgentMessage) -> bool:
        number = getattr(heard.said, "number", 0)
        event_id = getattr(heard.said, "event_id", "")
        if not number and not event_id:
            return True  # answers and progress are not stored, so they have no duplicates
        key = (heard.run, heard.node, number) if number else event_id
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return True


def _patterns(run: str) -> list[str]:
    if run:
        return [run_pattern(run)]
    return [*stored_patterns(), f"{SESSION_ANSWER}.*.>", f"{SESSION_PROGRESS}.*.>"]
