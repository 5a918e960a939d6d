"""Runs on record: picking up one that was started before, here or elsewhere, and its outcome in words."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from ccm_agent.model.wire import NodeState
from ccm_ctl.commands.rollout_drive import RolloutWatch
from ccm_ctl.commands.run_view import RunView
from ccm_ctl.fleet.follow import Follower
from ccm_ctl.fleet.history import History, restore_ends
from ccm_ctl.fleet.joining import Joining
from ccm_ctl.fleet.proof import read_proof
from ccm_ctl.fleet.run import LIMIT_S, Run
from ccm_ctl.render.outcome import format_counts

if TYPE_CHECKING:
    from datetime import datetime

    from ccm_agent.model.run_records import RunState
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.history import Recorded
    from ccm_ctl.fleet.node_run import News
    from ccm_ctl.fleet.ports import Fleet


def run_argument() -> click.Argument:
    """RUN: an id, an unambiguous prefix of one, or `last`."""
    return click.Argument(["run"], metavar="RUN")


async def pick_up(
    application: Application, fleet: Fleet, word: str, *, offline_ok: bool, timeout_s: int | None = None
) -> tuple[Recorded, Run, RunView, Follower]:
    """A run that was started before, ready to be looked at or followed."""
    history = History(fleet)
    recorded = await history.load(await history.find(word))
    now = asyncio.get_running_loop().time()
    limit_s = timeout_s or LIMIT_S
    rollout = RolloutWatch(fleet, recorded)
    await rollout.read()
    state = Run(
        recorded.record.run,
        recorded.nodes,
        recorded.offline,
        now,
        asked=False,
        limit_s=limit_s,
        planned=rollout.planned,
    )
    rollout.apply(state)
    proof = await read_proof(fleet)
    watch = RunView(
        application, fleet, recorded.record, state, offline_ok=offline_ok, proof=proof, shows_output=True
    )

    async def on_turn(news: list[News]) -> None:
        await rollout.update(state)
        await watch.on_turn(news)
        if said := rollout.news():
            application.terminal.note(said)

    may_join = Joining(fleet, recorded.record.targets, recorded.record.where).may_join
    follower = Follower(fleet, state, ask=None, may_join=may_join, on_turn=on_turn, proof=proof)
    return recorded, state, watch, follower


async def look(follower: Follower, state: Run, recorded: Recorded) -> None:
    """Take in what the stream holds, then what only the record knows: the stream counts more."""
    await follower.look()
    restore_ends(state, recorded, asyncio.get_running_loop().time())


def format_outcome(action: str, state: RunState, closed_by: str) -> str:
    """How a run ended, as its record says: `2 changed, 1 failed (seen by anna)`; of an open run how far it is."""
    counts = {NodeState(word): count for word, count in state.counts.items() if word in set(NodeState)}
    words = format_counts(counts, plan=action == "plan")
    if state.state != "done":
        word = state.state if state.state == "stopping" else "open"
        ended = {one: count for one, count in counts.items() if one.is_final}
        return f"{word}: {format_counts(ended, plan=action == 'plan')} so far" if ended else word
    notes = [f"stopped by {state.stopped_by}"] if state.stopped_by else []
    notes += [f"seen by {closed_by}"] if closed_by else []
    suffix = f" ({', '.join(notes)})" if notes else ""
    return f"{words or 'nothing was done'}{suffix}"


def format_heading(recorded: Recorded, now: datetime) -> str:
    """Who started a run, when and for which nodes, and who stopped it: lines that end with a newline."""
    from ccm_agent.clikit.text import ago, clock, one_line, plural, short_id

    record, state = recorded.record, recorded.state
    when = f", {clock(record.time)} ({ago(record.time, now)})" if record.time else ""
    lines = [
        f"run {short_id(record.run)}: {record.action} {record.name} by {record.requester or 'unknown'}{when}"
    ]
    targets = " or ".join(record.targets) or "all nodes"
    where = f" where {record.where}" if record.where else ""
    away = f", {record.offline} of them offline then" if record.offline else ""
    lines.append(f"for {targets}{where}: {plural(record.nodes, 'node')}{away}")
    if record.retry_of:
        lines.append(f"sends run {short_id(record.retry_of)} again")
    if state.stopped_by:
        lines.append(f"stopped by {state.stopped_by}")
    return "".join(f"{one_line(line)}\n" for line in lines)
