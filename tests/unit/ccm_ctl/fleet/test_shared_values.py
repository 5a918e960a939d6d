"""What a run keeps of thousands of nodes needs little memory, and is what they sent."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY, SessionStart, SessionSummary
from ccm_agent.model.records.run_records import RunRecord
from ccm_agent.model.wire import SESSION_ANSWER, Answer
from ccm_ctl.commands.runs.run_view import _took_s
from ccm_ctl.fleet.runs.run import Run
from ccm_ctl.fleet.runs.shared_values import SharedValues

RUN, COUNT = new_id(), 1000
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
STABLE_BYTES = 700
"""Memory for the state of a stable node in a run: its name, its state and its summary."""


def summary(node: str = "web1", **others: Any) -> SessionSummary:
    body = {
        "protocol": SESSION_SUMMARY,
        "event_id": new_id(),
        "timestamp": "2026-11-21T12:00:00.123456Z",
        "start_time": "2026-11-21T12:00:00+05:30",
        "end_time": "2026-11-21T12:00:01Z",
        "total_duration": 1_234_567_890,
        "node": node,
        "run": RUN,
        "number": 2,
        "events_sent": 2,
        "state": "stable",
        "manifest": "site",
        "digest": "d" * 64,
        "stable_resources": 50,
    }
    return msgspec.json.decode(msgspec.json.encode(body | others), type=SessionSummary)


@pytest.mark.parametrize(
    "others",
    [
        pytest.param({}, id="stable"),
        pytest.param({"failed": [{"resource": "file#/a", "error": ["no"]}], "state": "failed"}, id="failed"),
        pytest.param({"end_time": "0001-01-01T00:00:00+23:59"}, id="a time before the first year in UTC"),
        pytest.param({"end_time": None, "total_duration": -(1 << 63)}, id="no end"),
        pytest.param({"data_revisions": {"kv://CCM_DATA/x": 1 << 70}}, id="a number of more than 64 bits"),
    ],
)
def test_a_summary_is_read_as_it_was_sent(others: dict[str, Any]) -> None:
    values, sent = SharedValues(), summary(**others)

    kept = values.keep(sent)
    again = values.keep(summary("web2", **others))

    assert msgspec.json.encode(kept.read()) == msgspec.json.encode(sent)
    assert kept.alike is again.alike
    assert again.read().node == "web2"
    assert values.keep(summary(manifest="other", **others)).alike is not kept.alike


def test_an_event_with_a_number_of_more_than_64_bits_does_not_end_the_controller() -> None:
    run = Run(RUN, ["web1"], [], 0.0, asked=True)
    start = SessionStart(
        protocol=SESSION_START,
        event_id="e",
        timestamp=summary().timestamp,
        number=1,
        data_revisions={"x": 1 << 70},
    )

    run.happened("web1", start, 0.1)
    run.happened("web1", summary(data_revisions={"x": 1 << 70}), 0.1)

    assert run.is_done
    assert run.nodes["web1"].summary == summary(
        event_id=run.nodes["web1"].summary.event_id,  # type: ignore[union-attr]
        data_revisions={"x": 1 << 70},
    )


def test_a_stable_node_needs_little_memory() -> None:
    names = [f"node{number:05}" for number in range(COUNT)]
    bodies = [
        (
            msgspec.json.encode(SessionStart(protocol=SESSION_START, event_id=new_id(), timestamp=one.timestamp, number=1)),
            msgspec.json.encode(one),
        )
        for one in map(summary, names)
    ]  # fmt: skip
    a_node(Run(RUN, names[:1], [], 0.0, asked=True), names[0], *bodies[0])
    tracemalloc.start()

    run = Run(RUN, names, [], 0.0, asked=True)
    for name, (start, end) in zip(names, bodies, strict=True):
        a_node(run, name, start, end)
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert run.is_done
    assert used_bytes / COUNT < STABLE_BYTES


def a_node(run: Run, name: str, start: bytes, end: bytes) -> None:
    """Let a node answer, begin and end."""
    run.answered(name, Answer(protocol=SESSION_ANSWER, state="accepted"), 0.1)
    run.happened(name, msgspec.json.decode(start, type=SessionStart), 0.2)
    run.happened(name, msgspec.json.decode(end, type=SessionSummary), 0.3)
    run.updates()


@pytest.mark.parametrize("end", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_a_time_at_the_end_of_the_calendar_does_not_end_the_controller(end: str) -> None:
    run = Run(RUN, ["web1"], [], 0.0, asked=True)
    sent = summary(number=1, events_sent=1, end_time=end)
    run.happened("web1", sent, 0.1)

    took_s = _took_s(RunRecord(run=RUN, action="apply", name="site", requester="ann", time=NOON), run, NOON)

    assert took_s == sent.total_duration / 1e9
