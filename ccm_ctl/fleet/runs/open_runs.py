"""
Runs with an open record. The results of their nodes are read from the stream.

The controller that starts a run closes its record, unless it is killed or interrupted. Therefore later readers of the record
also read the stream, and close the record when every node has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ccm_agent.bus.subjects import event_subject, parse_event
from ccm_agent.model.errors import BusError, ProtocolError, RunError
from ccm_agent.model.outcome import SESSION_START
from ccm_agent.model.wire import AnswerState, NodeState
from ccm_ctl.fleet.rollout.driver import skip_reason
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.follow import Follower, ignore_news
from ccm_ctl.fleet.runs.history import History, restore_ends, run_on_record
from ccm_ctl.fleet.runs.joining import Joining
from ccm_ctl.fleet.runs.proof import RunProof
from ccm_ctl.fleet.runs.run import LIMIT_S, UNRECEIVED
from ccm_ctl.fleet.trust.authors import read_authors

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ccm_agent.model.records.rollout_records import RolloutState
    from ccm_agent.model.records.run_records import RunRecord
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.runs.gather import Reply
    from ccm_ctl.fleet.runs.history import Recorded
    from ccm_ctl.fleet.runs.run import Run
    from ccm_ctl.fleet.trust.authors import Authors

SETTLED_AFTER_S = 30.0
"""Seconds after the end of a rollout within which its driver records the nodes that did not answer."""

LOOKED_AT = 100
"""The number of newest runs that a server checks in order to close their records."""

OPEN_LOOKED_AT = 20
"""The number of newest runs that are searched for open ones before a change."""

READ_AT_ONCE = 500
"""The number of nodes whose first events are read with one request."""

ABORT_WAIT_S = 10.0
"""
The time limit, in seconds, within which most resources end. If a resource takes longer, the output contains its name and the
command that ends it.
"""

ABORT_LOOK_S = 0.5

STOP_LOOKS = 4
"""The maximum number of times that a stopped run is read until every node has answered."""

UNANSWERED = "no answer when the rollout was aborted"


async def look_at_ends(fleet: Fleet, recorded: Recorded, authors: Authors | None) -> Run:
    """
    Return an open run with the ends of its nodes from their summaries and from the record.

    Args:
        fleet: The bus.
        recorded: The run.
        authors: The keys of the nodes, to check signatures. None: these credentials cannot check them.
    """
    now = asyncio.get_running_loop().time()
    rollout = await _rollout_of(fleet, recorded)
    planned = recorded.nodes[rollout.asked : rollout.plan.total] if rollout else []
    run = run_on_record(recorded, now, planned=planned)
    follower = Follower(
        fleet,
        run,
        ask=None,
        may_join=Joining(fleet, recorded.record.targets, recorded.record.where).may_join,
        on_turn=ignore_news,
        proof=RunProof(authors) if authors is not None else None,
    )
    await follower.look(ends_only=True)
    restore_ends(run, recorded, now)
    if rollout and rollout.phase.is_over:
        run.skip(skip_reason(rollout))
    return run


async def settle_aborted(
    fleet: Fleet, recorded: Recorded, replies: Mapping[str, Reply], silent: Collection[str]
) -> Run:
    """
    Wait until the nodes of an aborted rollout have ended and record their ends. Closes the record when all have ended.

    The function waits at most ABORT_WAIT_S for a node that finishes a resource. A node that does not answer is recorded as
    unreachable, because the driver of the rollout may be dead. If the node reports an end later, that end takes precedence.

    Args:
        fleet: The bus.
        recorded: The run.
        replies: The answers of the nodes to the stop.
        silent: The nodes that did not answer.
    """
    authors = await read_authors(fleet)
    for _ in range(int(ABORT_WAIT_S / ABORT_LOOK_S)):
        run = await _look_at_aborted(fleet, recorded, authors, replies, silent)
        refused = {name for name, reply in replies.items() if reply.answer.state == AnswerState.REFUSED}
        if all(node.state.is_final or name in refused for name, node in run.nodes.items()):
            break
        await fleet.clock.sleep(ABORT_LOOK_S)
    if not await close_ended(fleet, recorded, run):
        await History(fleet).keep_ends(run)
    return run


async def settle_stopped(fleet: Fleet, recorded: Recorded, replies: Mapping[str, Reply]) -> list[str]:
    """
    Record the end of nodes that will never get the request of a stopped run. Its controller may be dead and unable to record
    them.

    Args:
        fleet: The bus.
        recorded: The run.
        replies: The answers of the nodes to the stop.

    Returns:
        These nodes, sorted.
    """
    authors = await read_authors(fleet)
    for look in range(STOP_LOOKS):
        if look:
            await fleet.clock.sleep(ABORT_LOOK_S)  # the last events may still be in transit
        run = await _look_at_aborted(fleet, recorded, authors, replies, ())
        if all(node.reason != UNRECEIVED for node in run.nodes.values()):
            break
    if not await close_ended(fleet, recorded, run):
        await History(fleet).keep_ends(run)
    return sorted(name for name, node in run.nodes.items() if node.reason == UNRECEIVED)


async def _look_at_aborted(
    fleet: Fleet,
    recorded: Recorded,
    authors: Authors | None,
    replies: Mapping[str, Reply],
    silent: Collection[str],
) -> Run:
    """Return the run from the stream and from the answers of the nodes to the stop."""
    run = await look_at_ends(fleet, recorded, authors)
    for name, node in run.nodes.items():
        if node.state is not NodeState.EXPECTED:
            continue
        if name in silent:
            _end(run, name, UNANSWERED)
        elif name in replies and replies[name].answer.outcome:
            # no session: the node had not received the request, and refuses it from now on
            _end(run, name, UNRECEIVED)
    return run


async def close_ended(fleet: Fleet, recorded: Recorded, run: Run) -> bool:
    """
    Close the record of a run if all its nodes have ended. Returns whether they have.

    Nodes that have not ended a day after the run's deadline are lost. The result does not depend on whether the record can be
    written: the operator may lack the right, or another program may write it first.
    """
    if recorded.state.state == "done":
        return True
    if not recorded.is_on_record:
        return run.is_ended
    rollout = await _rollout_of(fleet, recorded)
    if rollout and _is_settled(rollout, fleet.clock.now()):
        await _settle_unanswered(fleet, run)
    if (rollout and not rollout.phase.is_over) or len(recorded.nodes) < recorded.record.nodes:
        return False  # the rollout is in progress, or its record is just being written
    if _is_overdue(recorded.record, fleet.clock.now()):
        now = asyncio.get_running_loop().time()
        for node in run.expected:
            if not node.state.is_final:
                run.ended(node.node, NodeState.LOST, "its result is unknown", "", now)
    if not run.is_ended:
        return False
    try:
        await History(fleet).finish(run)
    except BusError:
        pass  # another reader can close it later
    return True


async def find_open_runs(fleet: Fleet, nodes: Collection[str]) -> list[tuple[RunRecord, list[str]]]:
    """
    Return the open runs without waves that have not ended on some of these nodes, newest first, with those nodes.

    Only the newest OPEN_LOOKED_AT runs are read.
    """
    found, wanted = [], frozenset(nodes)
    for record, state, *_ in (await History(fleet).newest(OPEN_LOOKED_AT)).runs:
        if state.state == "done":
            continue
        with contextlib.suppress(ProtocolError, RunError):
            recorded = await History(fleet).load(record.run)
            if wanted.isdisjoint(recorded.nodes) or await _rollout_of(fleet, recorded):
                continue
            run = await look_at_ends(fleet, recorded, await read_authors(fleet))
            busy = [one.node for one in run.expected if not one.state.is_final and one.node in wanted]
            if busy:
                found.append((record, sorted(busy)))
    return found


async def close_due(fleet: Fleet) -> None:
    """Close the records of the newest open runs whose nodes have all ended, as `ccmctl run list` does."""
    open_runs = [
        record for record, state, *_ in (await History(fleet).newest(LOOKED_AT)).runs if state.state != "done"
    ]
    authors = await read_authors(fleet) if open_runs else None
    for record in open_runs:
        with contextlib.suppress(ProtocolError, RunError):
            recorded = await History(fleet).load(record.run)
            await close_ended(fleet, recorded, await look_at_ends(fleet, recorded, authors))


def _is_settled(rollout: RolloutState, now: datetime) -> bool:
    """Whether the rollout ended long enough ago that its driver would have recorded the end of each node."""
    ended = rollout.time
    return rollout.phase.is_over and (ended is None or now - ended > timedelta(seconds=SETTLED_AFTER_S))


async def _settle_unanswered(fleet: Fleet, run: Run) -> None:
    """Mark nodes of an ended rollout as unreachable if they neither started nor ended."""
    waiting = [name for name, node in run.nodes.items() if node.state is NodeState.EXPECTED]
    for begin in range(0, len(waiting), READ_AT_ONCE):
        names = waiting[begin : begin + READ_AT_ONCE]
        subjects = [event_subject(SESSION_START, name, run.run) for name in names]
        begun = {parse_event(message.subject).node for message in await fleet.events.newest(subjects)}
        for name in names:
            if name not in begun:
                _end(run, name, UNANSWERED)


def _end(run: Run, name: str, reason: str) -> None:
    run.ended(name, NodeState.UNREACHABLE, reason, "", asyncio.get_running_loop().time())


def _is_overdue(record: RunRecord, now: datetime) -> bool:
    """Whether every controller would have stopped waiting for the nodes of the run."""
    deadline = record.request.get("deadline")
    try:
        begun_by = datetime.fromisoformat(str(deadline)).astimezone(UTC) if deadline else record.time
        return begun_by is not None and now - begun_by > timedelta(seconds=LIMIT_S)
    except (ValueError, OverflowError):
        return False


async def _rollout_of(fleet: Fleet, recorded: Recorded) -> RolloutState | None:
    found = await RolloutStore(fleet).read(recorded.record.run)
    return found[0] if found else None
