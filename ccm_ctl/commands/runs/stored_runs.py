"""Find recorded runs and describe their results."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from ccm_agent.clikit.text import ago, clock, fold_names, one_line, plural, short_id
from ccm_agent.model.records.rollout_records import Phase, RolloutState
from ccm_agent.model.records.run_records import RunState
from ccm_agent.model.wire import NodeState
from ccm_ctl.app import Application
from ccm_ctl.commands.rollouts.rollout_drive import RolloutWatch, format_driver
from ccm_ctl.commands.runs.run_view import RunView
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.find_run import find_run
from ccm_ctl.fleet.runs.follow import Follower
from ccm_ctl.fleet.runs.history import Recorded, restore_ends, run_on_record
from ccm_ctl.fleet.runs.joining import Joining
from ccm_ctl.fleet.runs.node_run import News
from ccm_ctl.fleet.runs.proof import read_proof
from ccm_ctl.fleet.runs.run import LIMIT_S, Run
from ccm_ctl.fleet.runs.stream_runs import NODE, REQUEST
from ccm_ctl.render.event import event_line
from ccm_ctl.render.outcome import format_counts
from ccm_ctl.render.record_types.runs import EventLine, ResultLine, RunLine
from ccm_ctl.render.records import run_fields, title_of
from ccm_ctl.render.rollout import order_fields, order_line, rollout_status


def run_argument() -> click.Argument:
    """Return the argument RUN: an ID, an unambiguous prefix of an ID, or `last`."""
    return click.Argument(["run"], metavar="RUN")


async def pick_up(
    application: Application, fleet: Fleet, word: str, *, offline_ok: bool, timeout_s: int | None = None
) -> tuple[Recorded, Run, RunView, Follower]:
    """Find an earlier run, whether or not an operator started it, and yield it ready to be read or followed."""
    recorded = await find_run(fleet, word)
    return recorded, *await attend(application, fleet, recorded, offline_ok=offline_ok, timeout_s=timeout_s)


async def attend(
    application: Application,
    fleet: Fleet,
    recorded: Recorded,
    *,
    offline_ok: bool,
    timeout_s: int | None = None,
) -> tuple[Run, RunView, Follower]:
    """Yield a run that was already found, ready to be read or followed."""
    now = asyncio.get_running_loop().time()
    rollout = RolloutWatch(fleet, recorded)
    await rollout.read()
    state = run_on_record(recorded, now, limit_s=timeout_s or LIMIT_S, planned=rollout.planned)
    rollout.apply(state)
    proof = await read_proof(fleet)
    watch = RunView(
        application,
        fleet,
        recorded.record,
        state,
        offline_ok=offline_ok,
        proof=proof,
        shows_output=True,
        is_on_record=recorded.is_on_record,
    )
    watch.rollout_orders = rollout.orders

    async def on_turn(news: list[News]) -> None:
        await rollout.update(state)
        await watch.on_turn(news)
        for said in rollout.take_updates():
            application.terminal.note(said)

    may_join = Joining(fleet, recorded.record.targets, recorded.record.where).may_join
    follower = Follower(
        fleet,
        state,
        ask=None,
        may_join=may_join,
        on_turn=on_turn,
        proof=proof,
        is_ended=lambda: rollout.is_waiting_for_operator(state),
    )
    return state, watch, follower


async def look(follower: Follower, state: Run, recorded: Recorded) -> None:
    """Read the events of the stream, then the end states that are only in the record. The stream takes precedence."""
    await follower.look()
    restore_ends(state, recorded, asyncio.get_running_loop().time())


def show_stored(
    application: Application,
    fleet: Fleet,
    recorded: Recorded,
    state: Run,
    watch: RunView,
    *,
    is_ended: bool,
    events: bool = False,
    rollout: RolloutState | None = None,
) -> None:
    """Show a run whose events were read: the request, each node's result and, with `events`, each event."""
    terminal = application.terminal
    terminal.record(
        RunLine,
        **run_fields(recorded.record),
        cause=recorded.cause,
        origin=recorded.origin or None,
        state="done" if is_ended else recorded.state.state,
        stopped_by=recorded.state.stopped_by or None,
        closed_by=recorded.closed_by or None,
        **phase_fields(rollout),
        unverified=recorded.unverified or None,
        orders=order_fields(watch.rollout_orders) or None,
    )
    heading = format_heading(recorded, fleet.clock.now(), rollout)
    status = rollout_status(rollout, fleet.clock.now()) if rollout else ""
    said = [*([status] if status else []), *map(order_line, watch.rollout_orders)]
    terminal.show(heading + "".join(f"{line}\n" for line in said) + "\n")
    lines = []
    for _, node in sorted(state.nodes.items()):
        for event in (node.events[number] for number in sorted(node.events)):
            terminal.record(EventLine, event=event, verdict=watch.event_verdict(node.node))
            lines.append(event_line(node.node, event, terminal.style))
        terminal.record(ResultLine, **watch.result_fields(node))
    if events and lines:
        terminal.show("".join([*lines, "\n"]))
    watch.show()
    busy = [node.node for node in state.expected if node.state is NodeState.RUNNING]
    if busy and not is_ended and recorded.state.stopped_by:
        terminal.note(format_busy(busy, recorded.record.run))


def format_busy(nodes: Sequence[str], run: str) -> str:
    """Return a sentence with the nodes that are still running a resource, and the command that stops them."""
    is_are = "is" if len(nodes) == 1 else "are"
    return (
        f"still running: {fold_names(nodes)} {is_are} in a resource, and will end after it\n"
        f"  end its command now:  ccmctl run stop {short_id(run)} --kill"
    )


def phase_fields(rollout: RolloutState | None) -> dict[str, Any]:
    """Return the phase of a run's rollout as record fields; {} if the run is not a rollout."""
    if rollout is None:
        return {}
    return {
        "phase": str(rollout.phase),
        "reason": rollout.reason or None,
        "by": rollout.by or None,
        "driver": format_driver(rollout),
    }


def format_outcome(action: str, state: RunState, closed_by: str, rollout: RolloutState | None = None) -> str:
    """Describe a run from its record: its result, such as `2 changed, 1 failed (seen by anna)`, or its progress."""
    counts = {NodeState(word): count for word, count in state.counts.items() if word in set(NodeState)}
    words = format_counts(counts, plan=action == "plan")
    if state.state != "done":
        word = state.state if state.state == "stopping" else "open"
        if rollout is not None and rollout.phase in (Phase.PAUSED, Phase.ABORTED):
            word = str(rollout.phase)
        ended = {one: count for one, count in counts.items() if one.is_final}
        return f"{word}: {format_counts(ended, plan=action == 'plan')} so far" if ended else word
    is_aborted = rollout is not None and rollout.phase is Phase.ABORTED
    verb, by = ("aborted", rollout.by) if is_aborted and rollout else ("stopped", state.stopped_by)
    notes = [f"{verb} by {by}"] if by else []
    notes += [f"seen by {closed_by}"] if closed_by else []
    suffix = f" ({', '.join(notes)})" if notes else ""
    return f"{words or 'nothing was done'}{suffix}"


def format_heading(recorded: Recorded, now: datetime | None, rollout: RolloutState | None = None) -> str:
    """Describe a run in a few lines: its starter, its time, its nodes, and the operator who stopped it.

    Without `now`, the age of the run is omitted, such as for a file that is read later.
    """
    record, state = recorded.record, recorded.state
    when = f", {clock(record.time)}" if record.time else ""
    if record.time and now:
        when += f" ({ago(record.time, now)})"
    by = format_starter(recorded.cause, recorded.origin, record.requester)
    by += f" for {one_line(record.user)} (dashboard)" if record.user else ""
    lines = [f"run {short_id(record.run)}: {title_of(record)} by {by}{when}"]
    if recorded.unverified:
        lines.append(f"unverified: {recorded.unverified}")
    if record.message:
        lines.append(f"message: {record.message}")
    nodes = plural(record.nodes, "node")
    if recorded.is_on_record or record.targets:
        where = f" where {record.where}" if record.where else ""
        nodes = f"{' or '.join(record.targets) or 'all nodes'}{where}: {nodes}"
    away = f", {record.offline} of them offline then" if record.offline and recorded.is_on_record else ""
    lines.append(f"for {nodes}{away}")
    if recorded.note:
        lines.append(recorded.note)
    if record.retry_of:
        lines.append(f"repeats run {short_id(record.retry_of)}")
    is_aborted = rollout is not None and rollout.phase is Phase.ABORTED
    if state.stopped_by and not is_aborted:
        lines.append(f"stopped by {state.stopped_by}")
    return "".join(f"{one_line(line)}\n" for line in lines)


def format_starter(cause: str, origin: str, requester: str) -> str:
    """
    Describe the starter of a run: `anna`, `schedule nightly`, `assignment web`, or `the node` for a configured manifest.

    If a rollout server started the run for a schedule, it is also named, because its signature is the proof.
    """
    if cause == REQUEST:
        return requester or "unknown"
    if cause == NODE:
        return "the node"
    return f"{cause} {origin}".strip() + (f" (started by {requester})" if requester else "")
