"""Taking, keeping and giving back slots, with every order of the steps of several nodes."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm_agent.engine.slots import NodeSlots, SlotClaim
from ccm_agent.model.records.slots import BUCKET, Slot, SlotError, decode_entry
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus


class QuickClock:
    """A clock that advances only while a task sleeps, and lets other tasks run meanwhile."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(1_800_000_000 + self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        await asyncio.sleep(0)


class SlowBucket:
    """A bucket whose operations take their turns in an order that a seed decides."""

    def __init__(self, broker: MemoryBroker, node: str, dice: random.Random) -> None:
        self._bucket = MemoryBus(broker, node).bucket(BUCKET)
        self._dice = dice

    async def _pause(self) -> None:
        for _ in range(self._dice.randrange(4)):
            await asyncio.sleep(0)

    async def matching(self, patterns: list[str], *, deletions: bool = False) -> Any:
        await self._pause()
        found = await self._bucket.matching(patterns, deletions=deletions)
        await self._pause()
        return found

    async def put(self, key: str, value: bytes) -> int:
        await self._pause()
        return await self._bucket.put(key, value)

    async def update(self, key: str, value: bytes, revision: int) -> int:
        await self._pause()
        return await self._bucket.update(key, value, revision)

    async def update_among(self, key: str, value: bytes, pattern: str, revision: int) -> int:
        await self._pause()
        return await self._bucket.update_among(key, value, pattern, revision)


def claim(count: int = 1, wait_s: float = 0, **more: Any) -> SlotClaim:
    return SlotClaim(slot=Slot("pg", count), resource="exec#restart", run="R", wait_s=wait_s, **more)


def keeper(broker: MemoryBroker, node: str, clock: QuickClock | None = None) -> NodeSlots:
    bucket = SlowBucket(broker, node, random.Random(0))
    return NodeSlots(node, bucket, clock or QuickClock(), renew_s=60, hold_s=600)


async def holders(broker: MemoryBroker) -> set[str]:
    found = await MemoryBus(broker, "op").bucket(BUCKET).matching([">"])
    return {one.key.partition(".")[2] for one in found if decode_entry(one.value).is_held}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(2, 6), st.integers(1, 3))
async def test_no_more_nodes_are_inside_than_the_slot_allows_and_all_get_their_turn(
    seed: int, nodes: int, count: int
) -> None:
    dice, broker, clock = random.Random(seed), MemoryBroker(), QuickClock()
    inside: set[str] = set()
    most, turns = 0, 0

    async def work(node: str) -> None:
        nonlocal most, turns
        slots = NodeSlots(node, SlowBucket(broker, node, dice), clock, renew_s=60, hold_s=600)
        for _ in range(3):
            await slots.take(claim(count, wait_s=1e6))
            inside.add(node)
            most, turns = max(most, len(inside)), turns + 1
            for _ in range(dice.randrange(6)):
                await asyncio.sleep(0)
            if dice.random() < 0.3:
                slots.fail("pg")
                await slots.renew()
                await asyncio.sleep(0)
                inside.discard(node)
                await slots.recover("pg")
            else:
                inside.discard(node)
                await slots.leave("pg")

    await asyncio.gather(*(work(f"n{number}") for number in range(nodes)))

    assert most <= count
    assert turns == nodes * 3
    assert await holders(broker) == set()


async def test_slot_that_is_not_free_in_time_names_its_holder_and_leaves_no_trace() -> None:
    broker = MemoryBroker()
    first, second = keeper(broker, "db1"), keeper(broker, "db2")
    await first.take(claim())

    with pytest.raises(SlotError) as refused:
        await second.take(claim(wait_s=30))

    assert str(refused.value) == (
        "the slot pg is held by db1: no slot was free for 30 s, so nothing was changed; see `ccmctl slots`; "
        "if db1 keeps it after a failure: `ccmctl slots release pg db1`"
    )
    assert await holders(broker) == {"db1"}
    await first.leave("pg")
    assert await second.take(claim()) is False


async def test_run_that_is_stopped_waits_no_longer() -> None:
    broker = MemoryBroker()
    await keeper(broker, "db1").take(claim())

    with pytest.raises(SlotError, match="the run was stopped"):
        await keeper(broker, "db2").take(claim(wait_s=1e9, is_stopped=lambda: True))


async def test_slot_of_a_failed_resource_is_kept_until_it_is_well_or_the_time_is_over() -> None:
    broker, clock = MemoryBroker(), QuickClock()
    slots = keeper(broker, "db1", clock)
    await slots.take(claim())
    slots.fail("pg")
    await slots.renew()
    assert await holders(broker) == {"db1"}

    await slots.recover("pg")
    assert await holders(broker) == set()

    await slots.take(claim())
    slots.fail("pg")
    clock.seconds += 601
    await slots.renew()
    assert await holders(broker) == set()


async def test_slot_within_a_slot_of_the_same_name_is_given_back_with_the_outer_one() -> None:
    broker = MemoryBroker()
    slots = keeper(broker, "db1")
    await slots.take(claim())
    await slots.take(claim())

    await slots.leave("pg")
    assert await holders(broker) == {"db1"}
    await slots.leave("pg")
    assert await holders(broker) == set()


async def test_slot_that_was_released_is_not_renewed() -> None:
    broker, clock = MemoryBroker(), QuickClock()
    slots = keeper(broker, "db1", clock)
    await slots.take(claim())
    await MemoryBus(broker, "op").bucket(BUCKET).put("pg.db1", b"")

    clock.seconds += 61
    await slots.renew()

    assert await holders(broker) == set()


async def test_without_the_broker_no_slot_is_taken() -> None:
    broker = MemoryBroker()
    broker.stop()

    with pytest.raises(SlotError, match=r"cannot be taken, so nothing was changed: .*slots need the broker"):
        await keeper(broker, "db1").take(claim(wait_s=60))
