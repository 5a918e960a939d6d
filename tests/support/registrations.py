"""Services as they register."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ccm_agent.model.records.registration import RegistrationEntry
from ccm_agent.registration.entries import StreamEntry, entry_subject


def an_entry(number: int = 1, **fields: Any) -> RegistrationEntry:
    """A web server of production, and what the fields say otherwise."""
    known: dict[str, Any] = {
        "cluster": "prod",
        "service": "web",
        "protocol": "http",
        "address": f"10.0.0.{number}",
        "port": 8080,
        "priority": 10,
    }
    return RegistrationEntry(**(known | fields))


def a_stored(entry: RegistrationEntry, *, reason: str = "") -> StreamEntry:
    """An entry in the stream, or the mark of one that is gone."""
    return StreamEntry(
        subject=entry_subject(entry),
        sequence=1,
        time=datetime(2026, 11, 21, tzinfo=UTC),
        entry=None if reason else entry,
        reason=reason,
    )
