"""What a session remembers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ccm_agent.model.outcome import SESSION_START, SessionStart, TransactionEvent
from ccm_agent.sessions.memory import MemorySession

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def event(name: str, after_s: float = 0, **fields: Any) -> TransactionEvent:
    values: dict[str, Any] = {
        "protocol": "io.choria.ccm.v1.transaction.event",
        "event_id": f"id-{name}-{after_s}",
        "timestamp": NOON + timedelta(seconds=after_s),
        "type": "file",
        "provider": "posix",
        "name": name,
        "requested_ensure": "present",
        "final_ensure": "present",
        "duration": 2_000_000_000,
        "properties": None,
        "status": None,
        "error": [],
        "changed": False,
        "refreshed": False,
        "failed": False,
        "skipped": False,
        "noop": False,
        "unmet_requirements": [],
    }
    return TransactionEvent(**(values | fields))


async def test_the_last_event_of_a_name_or_alias_is_found() -> None:
    session = MemorySession()
    first, second, other = event("/a", 1, alias="conf"), event("/a", 2), event("/b", 3, alias="conf")

    for one in (first, second, other):
        await session.record(one)

    assert session.last("file", "/a") is second
    assert session.last("file", "conf") is other
    assert session.last("exec", "/a") is None


async def test_every_resource_counts_once_by_its_outcome() -> None:
    session = MemorySession()
    await session.start(SessionStart(protocol=SESSION_START, event_id="s", timestamp=NOON))
    for one in (
        event("/failed", 1, failed=True, changed=True, error=["no"]),
        event("/unmet", 2, skipped=True, unmet_requirements=["file#/failed", "file#/failed"]),
        event("/changed", 3, changed=True, refreshed=True),
        event("/stable", 4),
        event("/stable", 5),
    ):
        await session.record(one)

    summary = session.summary("id", NOON)

    assert (summary.total_resources, summary.unique_resources) == (5, 4)
    assert (summary.failed_resources, summary.total_errors) == (1, 1)
    assert (summary.skipped_resources, summary.requirements_unmet_count) == (1, 2)
    assert (summary.changed_resources, summary.refreshed_count) == (1, 1)
    assert summary.stable_resources == 2
    # the last one began after five seconds and took two
    assert (summary.start_time, summary.end_time) == (NOON, NOON + timedelta(seconds=7))
    assert summary.total_duration == 7_000_000_000


def test_without_a_start_the_durations_of_events_add_up() -> None:
    session = MemorySession()
    session.remember(event("/a"))
    session.remember(event("/b"))

    assert session.summary("id", NOON).total_duration == 4_000_000_000


def test_an_event_of_another_process_is_known_as_such() -> None:
    session = MemorySession()
    own, foreign = event("/a"), event("/b")
    session.remember(own)
    session.remember(foreign, foreign=True)

    assert (session.is_foreign(own), session.is_foreign(foreign)) == (False, True)
