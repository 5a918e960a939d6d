"""What `ccm registration` prints."""

from __future__ import annotations

import pytest

from ccm_agent.cli import options
from ccm_agent.cli.services.registration_output import as_json, change_json, change_note, listing
from ccm_agent.model.errors import UsageError
from ccm_agent.model.records.registration import RegistrationChange, RegistrationEntry
from tests.support.ccm_json import checked
from tests.support.registrations import an_entry


def test_a_listing_has_a_heading_for_each_service() -> None:
    text = listing(
        [an_entry(1, service="db"), an_entry(2, annotations={"b": "2", "a": "\x1b[31m"}), an_entry(3)]
    )

    assert [line for line in text.splitlines() if line.startswith("Service:")] == [
        "Service: db @ prod",
        "Service: web @ prod",
    ]
    assert "\x1b" not in text
    assert text.index(" b: 2") > text.index(" a: ")


def test_empty_list_of_registrations_says_so() -> None:
    assert listing([]) == "No results found"
    assert checked("ccm_registration_query", as_json([])) == []


def test_missing_port_is_shown_as_in_choria_ccm() -> None:
    entry = RegistrationEntry(cluster="c", service="s", protocol="p", address="10.0.0.1", priority=1)

    assert "          Port: <nil>" in listing([entry]).splitlines()


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (
            RegistrationChange(action="register", entry=an_entry(1, ttl="10m")),
            ("info", "Updated entry", {"ttl": "10m0s"}),
        ),
        (RegistrationChange(action="register", entry=an_entry(1)), ("info", "Updated entry", {})),
        (
            RegistrationChange(action="remove", entry=an_entry(1), reason="MaxAge"),
            ("warning", "Removed entry", {"reason": "MaxAge"}),
        ),
    ],
)
def test_a_change_is_a_line_for_the_log(
    change: RegistrationChange, note: tuple[str, str, dict[str, object]]
) -> None:
    level, phrase, more = note
    fields = {"cluster": "prod", "service": "web", "protocol": "http", "address": "10.0.0.1", "port": 8080}

    assert change_note(change) == (level, phrase, fields | more)


def test_a_change_is_a_line_of_json() -> None:
    entry = checked("ccm_registration_query", as_json([an_entry(1)]))[0]

    assert checked(
        "ccm_registration_watch", change_json(RegistrationChange(action="register", entry=an_entry(1)))
    ) == {
        "action": "register",
        "entry": entry,
    }
    assert checked(
        "ccm_registration_watch",
        change_json(RegistrationChange(action="remove", entry=an_entry(1), reason="Gone")),
    ) == {
        "action": "remove",
        "entry": entry,
        "reason": "Gone",
    }


@pytest.mark.parametrize(("written", "seconds"), [(None, None), ("", None), ("0s", 0), ("10m", 600)])
def test_a_settle_time_is_a_duration(written: str | None, seconds: float | None) -> None:
    assert options.settle_s(written) == seconds


@pytest.mark.parametrize("written", ["soon", "-1s"])
def test_a_settle_time_that_is_not_valid_is_refused(written: str) -> None:
    with pytest.raises(UsageError, match="--registration-settle"):
        options.settle_s(written)
