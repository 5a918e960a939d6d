"""
Runs with an open record: find out from the stream how their nodes have ended.

The controller that starts a run closes its record. One that was killed or interrupted does not, so those who read the record
later look at the stream, and close the record when every node has ended.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ccm_agent.model.errors import BusError
from ccm_agent.model.wire import NodeState
from ccm_ctl.fleet.follow import Follower, ignore_news
from ccm_ctl.fleet.history import History, restore_ends, run_on_record
from ccm_ctl.fleet.joining import Joining
from ccm_ctl.fleet.proof import RunProof
from ccm_ctl.fleet.rollout.driver import skip_reason
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.run import LIMIT_S

if TYPE_CHECKING:
    from ccm_agent.model.rollout_records import RolloutState
    from ccm_agent.model.run_records import RunRecord
    from ccm_ctl.fleet.authors import Authors
    from ccm_ctl.fleet.history import Recorded
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.run import Run


async def look_at_ends(fleet: Fleet, recorded: Recorded, authors: Authors | None) -> Run:
    """
    The nodes of a run that is open on record, by their summaries and by the record.

    Args:
        fleet: The bus.
        recorded: The run.
        authors: The keys of the nodes, whose signatures are checked; None: these credentials cannot check any.
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


async def close_ended(fleet: Fleet, recorded: Recorded, run: Run) -> bool:
    """
    Close the record of a run whose nodes have all ended; whether they have.

    Nodes that have not ended a day after the run's deadline are lost. An operator who may not write the record, or whose write
    conflicts with another, sees the end anyway.
    """
    if recorded.state.state == "done":
        return True
    if not recorded.is_on_record:
        return all(node.state.is_final for node in run.expected)
    rollout = await _rollout_of(fleet, recorded)
    if (rollout and not rollout.phase.is_over) or len(recorded.nodes) < recorded.record.nodes:
        return False  # a rollout in progress, or a record that is being written
    if _is_overdue(recorded.record, fleet.clock.now()):
        now = asyncio.get_running_loop().time()
        for node in run.expected:
            if not node.state.is_final:
                run.ended(node.node, NodeState.LOST, "no end is known of it", "", now)
    if not all(node.state.is_final for node in run.expected):
        return False
    try:
        await History(fleet).finish(run)
    except BusError:
        pass  # the next reader may close it
    return True


def _is_overdue(record: RunRecord, now: datetime) -> bool:
    """No controller would wait for the nodes of a run any longer."""
    deadline = record.request.get("deadline")
    try:
        begun_by = datetime.fromisoformat(str(deadline)).astimezone(UTC) if deadline else record.time
        return begun_by is not None and now - begun_by > timedelta(seconds=LIMIT_S)
    except (ValueError, OverflowError):
        return False


async def _rollout_of(fleet: Fleet, recorded: Recorded) -> RolloutState | None:
    found = await RolloutStore(fleet).read(recorded.record.run)
    return found[0] if found else None
