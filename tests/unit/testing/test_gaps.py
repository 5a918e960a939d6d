"""What the tests of faults take for a complete stream."""

from typing import Any

import pytest

from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY, TRANSACTION_EVENT
from tests.support.faults import gaps


def start(number: int = 1) -> dict[str, Any]:
    return {"protocol": SESSION_START, "number": number}


def change(number: int) -> dict[str, Any]:
    return {"protocol": TRANSACTION_EVENT, "number": number}


def end(number: int, events: int) -> dict[str, Any]:
    return {"protocol": SESSION_SUMMARY, "number": number, "events_sent": events}


def test_a_run_from_its_start_to_its_summary_has_no_gap() -> None:
    assert gaps({"r1"}, {"r1": [start(), change(2), end(3, 3)], "r2": [end(1, 1)]}) == {}


@pytest.mark.parametrize(
    ("events", "numbers"),
    [
        pytest.param([start(), change(2)], [1, 2], id="it is not closed"),
        pytest.param([start(), end(3, 3)], [1, 3], id="one is missing"),
        pytest.param([change(2), end(3, 3)], [2, 3], id="the start is missing"),
        pytest.param([start(), change(2), change(2), end(3, 3)], [1, 2, 2, 3], id="one is there twice"),
        pytest.param([start(), change(3), change(2), end(4, 4)], [1, 3, 2, 4], id="they are out of order"),
        pytest.param([start(), end(2, 3)], [1, 2], id="the summary counts more"),
        pytest.param([start(), end(2, 2), end(3, 3)], [1, 2, 3], id="it is closed twice"),
    ],
)
def test_a_run_with_a_gap_or_a_double_is_named_with_its_numbers(
    events: list[dict[str, Any]], numbers: list[int]
) -> None:
    assert gaps(set(), {"r1": events}) == {"r1": numbers}


def test_run_without_any_event_is_named() -> None:
    assert gaps({"r1"}, {}) == {"r1": []}
