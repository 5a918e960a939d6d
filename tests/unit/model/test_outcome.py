"""What a run comes to: its numbers, the failures that a summary lists, and its end state."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ccm_agent.model.outcome import (
    FAILED_LIMIT,
    FAILED_OUTPUT_BYTES,
    SESSION_SUMMARY,
    SessionSummary,
    add_outcome,
    end_state,
)
from tests.support.agent import resource_event

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def summary() -> SessionSummary:
    return SessionSummary(protocol=SESSION_SUMMARY, event_id="", timestamp=NOW)


def test_an_outcome_is_counted_and_its_failure_is_listed(summary: SessionSummary) -> None:
    for one in (
        resource_event("a"),
        resource_event("b", changed=True),
        resource_event("c", failed=True, error=["no"], output="all of it"),
    ):
        add_outcome(summary, one)

    assert (summary.total_resources, summary.changed_resources, summary.failed_resources) == (3, 1, 1)
    assert [(one.resource, one.error, one.output) for one in summary.failed] == [
        ("file#c", ["no"], "all of it")
    ]


def test_all_failures_are_counted_and_the_first_ones_listed(summary: SessionSummary) -> None:
    for number in range(FAILED_LIMIT + 5):
        add_outcome(summary, resource_event(f"{number}", failed=True, output="\u00e9" * FAILED_OUTPUT_BYTES))

    assert (summary.failed_resources, len(summary.failed)) == (FAILED_LIMIT + 5, FAILED_LIMIT)
    assert all(len(one.output.encode()) <= FAILED_OUTPUT_BYTES for one in summary.failed)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        pytest.param({}, "stable", id="nothing happened"),
        pytest.param({"changed_resources": 1}, "changed", id="a resource was changed"),
        pytest.param({"changed_resources": 1, "failed_resources": 1}, "failed", id="a failure counts more"),
        pytest.param({"requirements_unmet_count": 1}, "failed", id="a requirement was not met"),
        pytest.param({"reason": "interrupted"}, "failed", id="the run was interrupted"),
    ],
)
def test_the_end_state_follows_from_numbers_and_reason(
    summary: SessionSummary, changes: dict[str, object], state: str
) -> None:
    for field, value in changes.items():
        setattr(summary, field, value)

    assert end_state(summary) == state
