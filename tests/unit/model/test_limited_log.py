"""What others cause does not fill a log."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ccm_agent.model import limited_log
from ccm_agent.model.limited_log import LINES, LINES_OF_ANY, WINDOW_S, FloodFilter, LimitedLog


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limited(clock: Clock) -> LimitedLog:
    return LimitedLog(logging.getLogger("ccm_agent.tested"), clock)


def written(caplog: pytest.LogCaptureFixture) -> list[tuple[str, object]]:
    return [(record.message, vars(record).get("count")) for record in caplog.records]


def test_ten_lines_a_minute_are_written_and_then_how_many_were_left_out(
    caplog: pytest.LogCaptureFixture, limited: LimitedLog, clock: Clock
) -> None:
    for number in range(1000):
        limited.warning("refused", extra={"subject": str(number)})
    clock.now_s = WINDOW_S
    limited.warning("refused", extra={"subject": "later"})

    expected = [("refused", None)] * LINES
    assert written(caplog) == [
        *expected,
        ("repeated messages were not logged", 1000 - LINES),
        ("refused", None),
    ]
    assert [vars(record)["subject"] for record in caplog.records[:2]] == ["0", "1"]


def test_each_message_has_lines_of_its_own(caplog: pytest.LogCaptureFixture, limited: LimitedLog) -> None:
    for _ in range(LINES + 1):
        limited.warning("refused")
    limited.error("dropped")

    assert written(caplog)[-1] == ("dropped", None)
    assert caplog.records[-1].levelno == logging.ERROR


def test_a_window_without_losses_logs_nothing_at_its_end(
    caplog: pytest.LogCaptureFixture, limited: LimitedLog, clock: Clock
) -> None:
    limited.warning("refused")
    clock.now_s = WINDOW_S
    limited.warning("refused")

    assert written(caplog) == [("refused", None)] * 2


async def test_the_count_is_written_when_the_flood_has_ended(
    caplog: pytest.LogCaptureFixture, limited: LimitedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited_log, "WINDOW_S", 0.01)
    for _ in range(LINES + 3):
        limited.warning("refused")

    async with asyncio.timeout(5):
        while len(caplog.records) == LINES:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)

    assert written(caplog)[-1] == ("repeated messages were not logged", 3)


def test_a_line_names_the_place_that_wrote_it(caplog: pytest.LogCaptureFixture, limited: LimitedLog) -> None:
    limited.warning("refused")

    assert caplog.records[0].funcName == "test_a_line_names_the_place_that_wrote_it"


def test_a_filter_limits_each_message_of_each_logger_and_counts_the_dropped_ones(
    caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    caplog.handler.addFilter(one := FloodFilter(clock))
    try:
        for number in range(LINES_OF_ANY + 5):
            logging.getLogger("ccm_agent.a").warning("refused", extra={"subject": str(number)})
        logging.getLogger("ccm_agent.b").warning("refused")
        clock.now_s = WINDOW_S
        logging.getLogger("ccm_agent.a").warning("refused")
    finally:
        caplog.handler.removeFilter(one)

    expected = [("refused", None)] * (LINES_OF_ANY + 1)
    assert written(caplog) == [*expected, ("repeated messages were not logged", 5), ("refused", None)]


def test_messages_that_are_remembered_are_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_log, "MESSAGES_LIMIT", 3)
    one = FloodFilter(clock)

    for number in range(10):
        one.filter(logging.LogRecord("a", logging.INFO, "", 0, str(number), (), None))

    assert len(one._windows._windows) == 3
