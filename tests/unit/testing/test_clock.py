import asyncio
from datetime import UTC, datetime, timedelta

from ccm_agent.testing.clock import FakeClock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def test_sleepers_wake_in_the_order_of_their_times() -> None:
    clock, woken = FakeClock(NOON), []

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((seconds, clock.monotonic(), clock.now() - NOON))

    async with asyncio.TaskGroup() as group:
        for seconds in (3, 1, 2):
            group.create_task(sleep(seconds))
        await asyncio.sleep(0)
        assert clock.sleepers == 3
        await clock.advance(2.5)
        assert [seconds for seconds, _, _ in woken] == [1, 2]
        await clock.advance(1)

    assert woken == [(n, float(n), timedelta(seconds=n)) for n in (1, 2, 3)]
    assert clock.monotonic() == 3.5


async def test_a_task_that_sleeps_again_within_the_time_wakes_again() -> None:
    clock, times = FakeClock(NOON), []

    async def tick() -> None:
        while len(times) < 3:
            await clock.sleep(1)
            times.append(clock.monotonic())

    async with asyncio.TaskGroup() as group:
        group.create_task(tick())
        await asyncio.sleep(0)
        await clock.advance(10)

    assert times == [1.0, 2.0, 3.0]


async def test_a_jump_of_the_wall_clock_wakes_no_sleeper() -> None:
    clock = FakeClock(NOON)
    task = asyncio.create_task(clock.sleep(1))
    await asyncio.sleep(0)

    clock.jump(3600)

    assert (clock.now() - NOON, clock.monotonic(), clock.sleepers) == (timedelta(hours=1), 0.0, 1)
    task.cancel()
