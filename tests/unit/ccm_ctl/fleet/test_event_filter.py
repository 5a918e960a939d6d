"""Conditions on events."""

from __future__ import annotations

import pytest

from ccm_agent.model.errors import ExpressionError, UsageError
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import (
    SESSION_START,
    SESSION_SUMMARY,
    TRANSACTION_EVENT,
    SessionStart,
    SessionSummary,
)
from ccm_agent.model.wire import AGENT_STARTUP, AgentEvent
from ccm_ctl.fleet.events.event_filter import EventFilter
from ccm_ctl.fleet.events.messages import AgentMessage
from tests.support.controller import NOW, event

RUN = new_id()
FILE = AgentMessage(
    node="web1",
    run=RUN,
    protocol=TRANSACTION_EVENT,
    said=event("/etc/nginx/nginx.conf", 2, duration=2_000_000_000),
)
START = AgentMessage(
    node="web1",
    run=RUN,
    protocol=SESSION_START,
    said=SessionStart(
        protocol=SESSION_START, event_id="x", timestamp=NOW, cause="schedule", origin="nightly"
    ),
)
SUMMARY = AgentMessage(
    node="web1",
    run=RUN,
    protocol=SESSION_SUMMARY,
    said=SessionSummary(
        protocol=SESSION_SUMMARY, event_id="x", timestamp=NOW, state="failed", failed_resources=2
    ),
)
AGENT = AgentMessage(
    node="web1",
    run="",
    protocol=AGENT_STARTUP,
    said=AgentEvent(
        protocol=AGENT_STARTUP, event_id="x", timestamp=NOW, node="web1", message="agent started"
    ),
)
ALL = {"resource": FILE, "start": START, "summary": SUMMARY, "agent": AGENT}


@pytest.mark.parametrize(
    ("condition", "kinds"),
    [
        ('changed && type == "file"', ["resource"]),
        ('name startsWith "/etc/nginx"', ["resource"]),
        ("seconds > 1", ["resource"]),
        ('origin == "nightly"', ["start"]),
        ('state == "failed" && failed_resources > 1', ["summary"]),
        ('message contains "started"', ["agent"]),
        ('node == "web1"', ["resource", "start", "summary", "agent"]),
        ("failed", []),
        ("len(errors) > 0", []),
    ],
)
def test_condition_is_true_for_the_events_that_it_describes(condition: str, kinds: list[str]) -> None:
    wanted = EventFilter(condition)

    assert [kind for kind, heard in ALL.items() if wanted.fits(heard, kind)] == kinds


@pytest.mark.parametrize("condition", ["changd", "changed &&", "1 + 1", "x" * 5000])
def test_condition_that_cannot_be_one_is_refused(condition: str) -> None:
    with pytest.raises(UsageError):
        EventFilter(condition)


def test_condition_that_does_not_fit_the_values_is_an_error_and_not_false() -> None:
    with pytest.raises(ExpressionError):
        EventFilter("changed > 1").fits(FILE, "resource")


def test_hostile_text_cannot_take_long() -> None:
    hostile = AgentMessage(node="web1", run=RUN, protocol=TRANSACTION_EVENT, said=event("a" * 60_000, 2))

    assert not EventFilter('name matches "^(a+)+$b"').fits(hostile, "resource")
