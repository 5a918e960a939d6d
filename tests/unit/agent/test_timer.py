import pytest

from ccm_agent.agent.desired.timer import IntervalTimer, splay
from ccm_agent.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_a_new_timer_has_no_next_time(clock: FakeClock) -> None:
    timer = IntervalTimer("web1", "site", clock)

    assert (timer.remaining_s, timer.next_time) == (None, None)


def test_nodes_that_begin_together_have_their_first_time_spread_over_half_an_interval(
    clock: FakeClock,
) -> None:
    rests = []
    for number in range(200):
        timer = IntervalTimer(f"web{number}", "site", clock)
        timer.start(100)
        rests.append(timer.remaining_s or 0.0)

    assert 50 <= min(rests) < 55
    assert 95 < max(rests) <= 100


async def test_each_time_comes_an_interval_after_the_one_before_however_late_that_was_done(
    clock: FakeClock,
) -> None:
    timer = IntervalTimer("web1", "site", clock)
    timer.retry_in(100)
    await clock.advance(130)

    timer.advance(100)

    assert timer.remaining_s == 70


async def test_missed_intervals_are_not_repeated(clock: FakeClock) -> None:
    timer = IntervalTimer("web1", "site", clock)
    timer.retry_in(100)
    await clock.advance(450)

    timer.advance(100)

    assert timer.remaining_s == 50


async def test_an_early_run_does_not_replace_the_regular_one(clock: FakeClock) -> None:
    timer = IntervalTimer("web1", "site", clock)
    timer.retry_in(100)
    await clock.advance(30)

    timer.advance(100)

    assert timer.remaining_s == 70


async def times(timer: IntervalTimer, clock: FakeClock, interval_s: float, seconds: float) -> list[float]:
    """When a thing is done while time passes in steps of ten seconds."""
    found = []
    for _ in range(int(seconds / 10)):
        await clock.advance(10)
        if timer.remaining_s == 0:
            found.append(clock.monotonic())
            timer.advance(interval_s)
    return found


async def test_a_thing_is_done_once_each_interval(clock: FakeClock) -> None:
    timer = IntervalTimer("web1", "site", clock)
    timer.start(300, first_share=0)

    found = await times(timer, clock, 300, 1500)

    first = 300 * splay("web1", "site")
    assert found == pytest.approx([first + 300 * n for n in range(5)], abs=10)


async def test_an_interval_missed_during_sleep_runs_once(clock: FakeClock) -> None:
    timer = IntervalTimer("web1", "a", clock)
    timer.start(60, first_share=0)
    assert len(await times(timer, clock, 60, 60)) == 1

    await clock.advance(3590)

    assert len(await times(timer, clock, 60, 10)) == 1


async def test_a_wall_clock_that_is_set_changes_nothing(clock: FakeClock) -> None:
    timer = IntervalTimer("web1", "a", clock)
    timer.start(60, first_share=0)

    clock.jump(-86_400)
    found = await times(timer, clock, 60, 60)
    clock.jump(86_400)
    found += await times(timer, clock, 60, 60)

    assert len(found) == 2


async def test_a_stopped_timer_does_not_run(clock: FakeClock) -> None:
    timer = IntervalTimer("web1", "a", clock)
    timer.start(60)

    timer.stop()

    assert await times(timer, clock, 60, 120) == []


def test_a_fleet_is_spread_over_the_whole_interval() -> None:
    parts = [0] * 10
    for number in range(2000):
        parts[int(splay(f"web{number}.example.net", "site") * 10)] += 1

    assert min(parts) > 150
