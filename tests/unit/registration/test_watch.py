"""What differs between two looks at the registrations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ccm_agent.model.records.registration import RegistrationChange, RegistrationEntry
from ccm_agent.registration.entries import StreamEntry, entry_subject
from ccm_agent.registration.watch import _changes

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ENTRY = RegistrationEntry(
    cluster="prod", service="web", protocol="http", address="10.0.0.1", port=8080, priority=10
)


def seen(sequence: int, **fields: Any) -> StreamEntry:
    return StreamEntry(subject=entry_subject(ENTRY), sequence=sequence, time=NOW, **fields)


def test_an_entry_that_is_new_or_renewed_is_reported_once() -> None:
    known: dict[str, StreamEntry] = {}

    looks = [_changes(known, [seen(n, entry=ENTRY)]) for n in (1, 1, 2)]

    told = RegistrationChange(action="register", entry=ENTRY)
    assert looks == [[told], [], [told]]


def test_a_removed_entry_is_reported_with_its_old_content() -> None:
    gone = {"expired": [seen(2, reason="MaxAge")], "silent": [], "spoilt": [seen(2, is_spoilt=True)]}

    told = {}
    for name, look in gone.items():
        known: dict[str, StreamEntry] = {}
        _changes(known, [seen(1, entry=ENTRY)])
        told[name] = [*_changes(known, look), *_changes(known, look)]

    reasons = {"expired": "MaxAge", "silent": "Gone", "spoilt": "Gone"}
    assert told == {
        name: [RegistrationChange(action="remove", entry=ENTRY, reason=why)] for name, why in reasons.items()
    }


def test_marks_of_earlier_removals_are_not_reported() -> None:
    assert _changes({}, [seen(1, reason="MaxAge"), seen(2, is_spoilt=True)]) == []
