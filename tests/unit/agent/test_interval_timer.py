import pytest

from ccm_agent.agent.desired.interval_timer import IntervalTimer
from ccm_agent.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_at_first_there_is_no_next_time(clock: FakeClock) -> None:
    timer = IntervalTimer("web1", "site", clock)

    assert (timer.rest_s, timer.next_time) == (None, None)


def test_nodes_that_begin_together_have_their_first_time_spread_over_half_an_interval(
    clock: FakeClock,
) -> None:
    rests = []
    for number in range(200):
        timer = IntervalTimer(f"web{number}", "site", clock)
        timer.begin(100)
        rests.append(timer.rest_s or 0.0)

    assert 50 <= min(rests) < 55
    assert 95 < max(rests) <= 100


async def test_each_time_comes_an_interval_after_the_one_before_however_late_that_was_done(
    clock: FakeClock,
) -> None:
    timer = IntervalTimer("web1", "site", clock)
    timer.try_after(100)
    await clock.advance(130)

    timer.go_on(100)

    assert timer.rest_s == 70


async def test_what_was_missed_is_not_made_up_for(clock: FakeClock) -> None:
    timer = IntervalTimer("web1", "site", clock)
    timer.try_after(100)
    await clock.advance(450)

    timer.go_on(100)

    assert timer.rest_s == 50


async def test_what_is_done_before_its_time_is_done_then_all_the_same(clock: FakeClock) -> None:
    timer = IntervalTimer("web1", "site", clock)
    timer.try_after(100)
    await clock.advance(30)

    timer.go_on(100)

    assert timer.rest_s == 70
