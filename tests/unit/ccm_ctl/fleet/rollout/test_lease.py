"""The lease of a rollout's driver: whether its holder is there, and the wait until it has run out."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from ccm_agent.model.ids import new_id
from ccm_agent.model.records.rollout_records import Lease, RolloutPlan, RolloutState, Wave
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.rollout.lease import LEASE_S, LOOK_S, silence_s, wait_out
from ccm_ctl.fleet.rollout.store import RolloutStore
from tests.support.controller import NOW, fleet_on
from tests.support.signing import OWN

PLAN = RolloutPlan(waves=(Wave(name="wave 1", nodes=2, slots=1),))


def lease(renewed_s: float) -> Lease:
    """A lease that its driver renewed so many seconds ago."""
    until = NOW + timedelta(seconds=LEASE_S - renewed_s)
    return Lease(operator="ana", host="vm", process="p", until=until)


class StepClock:
    """A clock that goes on by a step each time it is read."""

    def __init__(self, step_s: float) -> None:
        self._now = NOW - timedelta(seconds=step_s)
        self._step = timedelta(seconds=step_s)

    def now(self) -> datetime:
        self._now += self._step
        return self._now

    def monotonic(self) -> float:
        return 0.0


async def stored(held: Lease | None) -> tuple[RolloutStore, RolloutState, int]:
    store = RolloutStore(fleet_on(MemoryBus(MemoryBroker(), "op")))
    state = RolloutState(run=new_id(), plan=PLAN, lease=held)
    return store, state, await store.write(state, 0, base=OWN)


@pytest.mark.parametrize(("renewed_s", "silent_s"), [(0, 0), (5, 0), (12, 12), (20, 20)])
def test_a_driver_that_missed_its_renewal_is_silent(renewed_s: float, silent_s: float) -> None:
    assert silence_s(lease(renewed_s), NOW) == silent_s


async def test_the_lease_of_a_dead_driver_is_waited_out_with_a_countdown() -> None:
    store, state, _ = await stored(lease(LEASE_S - 3 * LOOK_S))
    left: list[int] = []

    await wait_out(store, state.run, StepClock(LOOK_S), lambda _, left_s: left.append(left_s), is_needed=True)

    assert left == [2, 1, 1]


@pytest.mark.timeout(10)
async def test_the_wait_ends_when_the_driver_renews_its_lease() -> None:
    store, state, revision = await stored(lease(0))
    told: list[Lease] = []

    async def renew() -> None:
        await store.write(replace(state, lease=lease(-5)), revision, base=OWN)

    async with asyncio.TaskGroup() as tasks:

        def tell(held: Lease, _left_s: int) -> None:
            if not told:
                tasks.create_task(renew())
            told.append(held)

        await wait_out(store, state.run, StepClock(0.0), tell, is_needed=True)

    assert told == [lease(0)]


@pytest.mark.parametrize(
    ("held", "is_needed"),
    [(None, True), (lease(LEASE_S), True), (lease(3), False), (lease(-86_400), True)],
    ids=["none", "over", "alive", "forged"],
)
async def test_nothing_is_waited_for_that_an_order_does_not_need(held: Lease | None, is_needed: bool) -> None:
    store, state, _ = await stored(held)
    told: list[int] = []

    await wait_out(
        store, state.run, StepClock(0.0), lambda _, left_s: told.append(left_s), is_needed=is_needed
    )

    assert told == []


async def test_the_dead_driver_of_a_paused_rollout_is_waited_out_too() -> None:
    store, state, _ = await stored(lease(19))
    told: list[int] = []

    await wait_out(
        store, state.run, StepClock(LOOK_S), lambda _, left_s: told.append(left_s), is_needed=False
    )

    assert told == [1, 1]
