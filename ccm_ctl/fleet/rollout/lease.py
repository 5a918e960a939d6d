"""
The lease of a rollout's driver: who holds it, whether its holder is still there, and how to wait until it has run out.

A driver renews its lease every few seconds. The times are those of the driver's clock.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import datetime

from ccm_agent.model.errors import RunError
from ccm_agent.model.ids import short_id
from ccm_agent.model.ports import Clock
from ccm_agent.model.records.rollout_records import Lease, RolloutState
from ccm_ctl.fleet.rollout.store import RolloutStore

LEASE_S = 20.0
"""Seconds after which another driver may continue the rollout of a dead driver."""

RENEW_S = 5.0
"""How often a driver writes its lease again."""

MISSED_S = 8.0
"""A driver that has not renewed its lease for so many seconds is probably dead."""

LOOK_S = 0.5
"""How often the lease is read while a command waits until it has run out."""

LONGEST_S = 3 * LEASE_S
"""No command waits longer than this. A lease can be longer if the clocks differ, or if it is forged."""


def held(state: RolloutState, now: datetime) -> Lease | None:
    """The lease that a process holds now; None: no process may start a node."""
    lease = state.lease
    return lease if lease is not None and lease.until > now else None


def silence_s(lease: Lease, now: datetime) -> float:
    """Seconds since the driver renewed its lease, if it should have done so since; 0: it renewed in time."""
    since_s = LEASE_S - (lease.until - now).total_seconds()
    return since_s if since_s >= MISSED_S else 0.0


def check_lease(state: RolloutState, now: datetime) -> None:
    """
    Check that no process drives a rollout now.

    Raises:
        RunError: Another process does.
    """
    lease = held(state, now)
    if lease is None:
        return
    raise RunError(
        f"{short_id(state.run)}: {lease.operator} drives this rollout on {lease.host}; watch it with "
        f"`ccmctl run watch {short_id(state.run)}`, or take over when the lease has run out, in {_left_s(lease, now)} s"
    )


async def wait_out(
    store: RolloutStore, run: str, clock: Clock, tell: Callable[[Lease, int], None], *, is_needed: bool
) -> None:
    """
    Wait until the lease of a dead driver has run out. Returns at once when the driver renews it, or when no process holds it.

    Args:
        store: The rollouts.
        run: The rollout.
        clock: The time.
        tell: Called with the lease and the seconds that are left, each time it was read.
        is_needed: The next order requires that no process drives the rollout. Otherwise a driver that renewed its lease in time
            is taken to be alive, and will obey the order.
    """
    first: Lease | None = None
    while True:
        lease = held((await store.need(run))[0], now := clock.now())
        if lease is None or (first is not None and lease != first):
            return
        if _left_s(lease, now) > LONGEST_S or (not is_needed and not silence_s(lease, now)):
            return
        first = lease
        tell(lease, _left_s(lease, now))
        await asyncio.sleep(LOOK_S)


def _left_s(lease: Lease, now: datetime) -> int:
    return math.ceil((lease.until - now).total_seconds())
