"""Find the nodes and rollouts that need an operator's attention, and their order."""

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
"""States of rollouts that need an operator: paused, or without a process that drives them."""

ORDER = (
    condition.FAILED, condition.DUPLICATE, condition.CLOCK, condition.REFUSED, condition.PLANS_ONLY, condition.STOPPED,
    condition.DISK, PAUSED, UNDRIVEN, condition.EXPIRED, condition.SILENT, condition.REFRESH_PENDING,
    condition.UNDELIVERED, condition.DRIFTED, condition.OFFLINE,
)  # fmt: skip
"""The states that need attention, worst first."""

USUAL_ABSENCE = timedelta(minutes=10)
"""A node that restarts is usually online again within this time."""

ROLLOUTS_READ = 20
"""The maximum number of open rollouts that are read. Usually there are only a few."""


async def read_open_rollouts(fleet: Fleet) -> list[RolloutState]:
    """Return the rollouts that have not ended, newest first. Unreadable ones are left out."""
    # imported here, so that `top` shows its first screen sooner
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
    """
    Whether a node needs an operator's attention. A node that has been offline for less than USUAL_ABSENCE is probably restarting.
    """
    if found.state == condition.OFFLINE:
        return found.heard is None or now - found.heard > USUAL_ABSENCE
    return found.state in ORDER


def rollout_trouble(state: RolloutState, now: datetime) -> str:
    """Return PAUSED or UNDRIVEN, or "" for a rollout that does not need an operator."""
    if state.phase is Phase.PAUSED:
        return PAUSED
    is_driven = state.lease is not None and state.lease.until > now
    return "" if state.phase.is_over or is_driven or state.is_detached else UNDRIVEN
