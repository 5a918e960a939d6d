import asyncio
from collections.abc import AsyncIterator

import pytest

from ccm_agent.agent.desired.ticker import Ticker, splay
from ccm_agent.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def scheduler(clock: FakeClock) -> AsyncIterator[Ticker]:
    one = Ticker("web1", clock)
    task = asyncio.create_task(one.run())
    yield one
    task.cancel()
    await asyncio.wait([task])


async def settle() -> None:
    """Let everything that is ready have its turn."""
    for _ in range(10):
        await asyncio.sleep(0)


async def pass_s(clock: FakeClock, seconds: float, step_s: float) -> None:
    """Let time pass as it does, in small steps."""
    for _ in range(int(seconds / step_s)):
        await clock.advance(step_s)
        await settle()


async def test_a_thing_is_done_once_each_interval(clock: FakeClock, scheduler: Ticker) -> None:
    ticks: list[float] = []
    scheduler.every(300, "site", lambda: ticks.append(clock.monotonic()))
    await settle()

    await pass_s(clock, 1500, 10)

    first = 300 * splay("web1", "site")
    assert len(ticks) == 5
    assert ticks == pytest.approx([first + 300 * n for n in range(5)], abs=10)


async def test_several_things_keep_their_own_intervals(clock: FakeClock, scheduler: Ticker) -> None:
    ticks: list[str] = []
    scheduler.every(60, "a", lambda: ticks.append("a"))
    scheduler.every(300, "b", lambda: ticks.append("b"))
    scheduler.every(0, "never", lambda: ticks.append("never"))
    await settle()

    await pass_s(clock, 600, 10)

    assert (ticks.count("a"), ticks.count("b"), ticks.count("never")) == (10, 2, 0)


async def test_what_was_missed_while_the_machine_slept_is_done_once(
    clock: FakeClock, scheduler: Ticker
) -> None:
    ticks: list[float] = []
    scheduler.every(60, "a", lambda: ticks.append(clock.monotonic()))
    await settle()
    await pass_s(clock, 60, 10)
    assert len(ticks) == 1

    await clock.advance(3600)
    await settle()

    assert len(ticks) == 2


async def test_a_wall_clock_that_is_set_changes_nothing(clock: FakeClock, scheduler: Ticker) -> None:
    ticks: list[float] = []
    scheduler.every(60, "a", lambda: ticks.append(clock.monotonic()))
    await settle()

    clock.jump(-86_400)
    await pass_s(clock, 60, 10)
    clock.jump(86_400)
    await pass_s(clock, 60, 10)

    assert len(ticks) == 2


async def test_what_was_cleared_is_not_done(clock: FakeClock, scheduler: Ticker) -> None:
    ticks: list[int] = []
    scheduler.every(60, "a", lambda: ticks.append(1))
    await settle()

    scheduler.clear()
    await pass_s(clock, 120, 10)

    assert ticks == []


def test_a_fleet_is_spread_over_the_whole_interval() -> None:
    parts = [0] * 10
    for number in range(2000):
        parts[int(splay(f"web{number}.example.net", "site") * 10)] += 1

    assert min(parts) > 150
