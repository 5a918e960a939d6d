"""
The lease of a rollout's driver. The module returns its holder and whether the holder is still alive, and can wait until the lease
expires.

A driver renews its lease every few seconds. The times are from the driver's clock.
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
"""The interval, in seconds, at which a driver renews its lease."""

MISSED_S = 8.0
"""A driver that has not renewed its lease for this many seconds is probably dead."""

LOOK_S = 0.5
"""The interval, in seconds, at which a waiting command reads the lease."""

LONGEST_S = 3 * LEASE_S
"""The maximum time that a command waits, in seconds. A lease can be longer if clocks differ, or if it is forged."""


def held(state: RolloutState, now: datetime) -> Lease | None:
    """Return the lease that is valid now. None: no process may start a node."""
    lease = state.lease
    return lease if lease is not None and lease.until > now else None


def silence_s(lease: Lease, now: datetime) -> float:
    """Return the seconds since the driver renewed its lease, or 0 if the next renewal is not overdue."""
    since_s = LEASE_S - (lease.until - now).total_seconds()
    return since_s if since_s >= MISSED_S else 0.0


def check_lease(state: RolloutState, now: datetime) -> None:
    """
    Check that no process drives a rollout now.

    Raises:
        RunError: Another process drives it.
    """
    lease = held(state, now)
    if lease is None:
        return
    raise RunError(
        f"{short_id(state.run)}: {lease.operator} drives this rollout on {lease.host}; watch it with "
        f"`ccmctl run watch {short_id(state.run)}`, or take over when the lease expires, in {_left_s(lease, now)} s"
    )


async def wait_out(
    store: RolloutStore, run: str, clock: Clock, tell: Callable[[Lease, int], None], *, is_needed: bool
) -> None:
    """
    Wait until the lease of a dead driver expires. Returns immediately when the driver renews it, or if there is no lease.

    Args:
        store: The rollouts.
        run: The rollout.
        clock: The clock.
        tell: Called with the lease and the remaining seconds after each read.
        is_needed: Whether the next order requires that no process drives the rollout. Otherwise, a driver that renewed its
            lease in time is considered alive, and will apply the order.
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
