"""Which nodes and rollouts need an operator's attention, and in which order."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.records.rollout_records import Phase
from ccm_ctl.fleet.nodes import node_condition as condition

if TYPE_CHECKING:
    from ccm_agent.model.records.rollout_records import RolloutState
    from ccm_ctl.fleet.nodes.node_condition import NodeCondition
    from ccm_ctl.fleet.ports import Fleet

PAUSED, UNDRIVEN = "paused", "not driven"
"""States of rollouts that wait for an operator: not resumed by an operator, or not driven by a process."""

ORDER = (
    condition.FAILED, condition.DUPLICATE, condition.CLOCK, condition.REFUSED, condition.PLANS_ONLY, condition.STOPPED,
    condition.DISK, PAUSED, UNDRIVEN, condition.EXPIRED, condition.SILENT, condition.REFRESH_PENDING,
    condition.UNDELIVERED, condition.DRIFTED, condition.OFFLINE,
)  # fmt: skip
"""The states that need attention, the worst first."""

USUAL_ABSENCE = timedelta(minutes=10)
"""A node that restarts is back within this time."""

ROLLOUTS_READ = 20
"""The most open rollouts that are read; an operator has few at a time."""


async def read_open_rollouts(fleet: Fleet) -> list[RolloutState]:
    """The rollouts that are not over, the newest first; those that cannot be read are left out."""
    # imported here: `top` shows its first picture sooner without
    from ccm_ctl.fleet.rollout.store import RolloutStore

    store, found = RolloutStore(fleet), []
    for run in (await store.open_runs())[:ROLLOUTS_READ]:
        try:
            rollout = await store.read(run)
        except ProtocolError:
            continue
        if rollout is not None and not rollout[0].phase.is_over:
            found.append(rollout[0])
    return found


def needs_attention(found: NodeCondition, now: datetime) -> bool:
    """Whether an operator should look at a node; one that is offline for a moment restarts."""
    if found.state == condition.OFFLINE:
        return found.heard is None or now - found.heard > USUAL_ABSENCE
    return found.state in ORDER


def rollout_trouble(state: RolloutState, now: datetime) -> str:
    """PAUSED or UNDRIVEN; "" for a rollout that goes on by itself."""
    if state.phase is Phase.PAUSED:
        return PAUSED
    is_driven = state.lease is not None and state.lease.until > now
    return "" if state.phase.is_over or is_driven or state.is_detached else UNDRIVEN
