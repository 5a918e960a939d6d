"""Lines of events: what they say of refreshes that are pending."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.clikit.table import Style
from ccm_agent.model.outcome import SESSION_SUMMARY, SessionSummary
from ccm_agent.model.wire import REPORTING, SESSION_PROGRESS, Progress
from ccm_agent.testing.clock import NOON
from ccm_ctl.render.event import event_line, format_pending
from tests.support.agent import resource_event

PLAIN = Style()


@pytest.mark.parametrize(
    ("pending", "words"),
    [
        pytest.param([], "", id="nothing"),
        pytest.param(["file#/a"], "; refresh pending: file#/a", id="one"),
        pytest.param(
            ["file#/a", "file#/b", "file#/c"], "; refresh pending: file#/a and 2 more", id="several"
        ),
    ],
)
def test_pending_refreshes_are_named(pending: list[str], words: str) -> None:
    assert format_pending(pending) == words


def test_progress_of_a_run_whose_events_wait_shows_how_long() -> None:
    progress = Progress(protocol=SESSION_PROGRESS, run="r", node="web1", state=REPORTING, run_s=35)

    line = event_line("web1", progress, PLAIN)

    assert line.endswith("web1  reporting: its events have waited for the broker for 35s\n")


def test_resource_and_summary_show_pending_refreshes() -> None:
    fields: dict[str, Any] = {"failed": True, "error": ["no"], "refresh_pending": ["file#/a"]}
    resource = event_line("web1", resource_event("/b", **fields), PLAIN)
    summary = SessionSummary(
        protocol=SESSION_SUMMARY,
        event_id="e",
        timestamp=NOON,
        state="failed",
        refresh_pending=["exec#reload"],
    )

    assert "failed: no; refresh pending: file#/a" in resource
    assert "; refresh pending: exec#reload\n" in event_line("web1", summary, PLAIN)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        pytest.param({"changed": True}, "file#/b changed (", id="apply"),
        pytest.param(
            {"changed": True, "noop": True, "noop_message": "Would have created the file"},
            "file#/b would change: Would have created the file (",
            id="noop",
        ),
        pytest.param(
            {"changed": True, "refreshed": True, "noop": True}, "file#/b would refresh (", id="refresh"
        ),
        pytest.param({"noop": True}, "file#/b stable (", id="stable noop"),
    ],
)
def test_event_of_a_noop_says_what_would_happen(fields: dict[str, Any], words: str) -> None:
    assert f"web1  {words}" in event_line("web1", resource_event("/b", **fields), PLAIN)


@pytest.mark.parametrize(
    ("noop", "state", "words"),
    [
        pytest.param(False, "changed", "ended changed: 1 changed in", id="apply"),
        pytest.param(True, "changed", "ended: 1 would change in", id="plan"),
        pytest.param(True, "failed", "ended failed: 1 would change in", id="plan that failed"),
    ],
)
def test_summary_of_a_plan_says_that_nothing_was_changed(noop: bool, state: str, words: str) -> None:
    summary = SessionSummary(
        protocol=SESSION_SUMMARY, event_id="e", timestamp=NOON, state=state, noop=noop, changed_resources=1
    )

    assert f"web1  {words}" in event_line("web1", summary, PLAIN)
