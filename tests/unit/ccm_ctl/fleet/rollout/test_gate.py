"""Gates: conditions on live results."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from ccm_agent.model.errors import UsageError
from ccm_agent.model.outcome import SESSION_SUMMARY, SessionSummary
from ccm_agent.model.wire import NodeState
from ccm_ctl.fleet.rollout.gate import check_gate, count_health, evaluate_gate, parse_gate

STATES = {NodeState.STABLE: 3, NodeState.CHANGED: 4, NodeState.FAILED: 1, NodeState.RUNNING: 2}


END: Any = {"protocol": SESSION_SUMMARY, "event_id": "1", "timestamp": datetime(2026, 11, 22, tzinfo=UTC)}


def services(*query: Any) -> list[Any]:
    return ["one", "two"] if query == ("prod", "http", "web", "*") else []


@pytest.mark.parametrize(
    ("text", "result", "seen"),
    [
        ("health.ok == 2", True, "health.ok 2"),
        ("failed == 0", False, "failed 1"),
        ("failed <= 1 && changed + stable == 7", True, "stable 3, changed 4, failed 1"),
        ("ended == 8 && total == 10", True, "total 10, ended 8"),
        ("health.critical == 0", False, "health.critical 2"),
        ('len(registrations("prod", "http", "web", "*")) >= 2', True, "see the registered services"),
        ('len(registrations("prod", "http", "db", "*")) >= 1', False, "see the registered services"),
        ("failed / lost > 1", True, "failed 1, lost 0"),
        ("stopped == 0", True, "stopped 0"),
    ],
)
def test_gate_sees_results_so_far(text: str, result: bool, seen: str) -> None:
    health = count_health(
        [
            SessionSummary(health_check_ok_count=1, health_check_critical_count=count, **END)
            for count in (2, 0)
        ]
    )

    check_gate(text)
    assert evaluate_gate(parse_gate(text), STATES, health, services) == (result, seen)


def test_gate_that_cannot_be_evaluated_is_false_with_a_reason() -> None:
    is_true, why = evaluate_gate(parse_gate('registrations("a")[5] == 1'), STATES, {}, services)

    assert not is_true
    assert "out of range" in why


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("failed", "boolean"),
        ("failed == ", "--gate failed == "),
        ("fialed == 0", "fialed"),
        ("false", "uses no result"),
        ("1 < 2 && !(2 < 1)", "uses no result"),
        ("health.critcal == 0", "there is no health.critcal"),
        ("'yes'", "boolean"),
        ("x" * 5000, "5000 characters"),
    ],
)
def test_gate_that_is_not_a_condition_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_gate(text)
