"""What leaves the process holds no secret, and on the bus no long or private text."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from ccm_agent.engine import mask
from ccm_agent.model.health import HealthResult
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.secret import Masker
from tests.support.engine import Board, NoteProperties, note_type

KIND = note_type(Board())


def event(wanted: NoteProperties, **fields: Any) -> TransactionEvent:
    values: dict[str, Any] = {
        "protocol": "p",
        "event_id": "e",
        "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
        "type": "note",
        "provider": "board",
        "name": wanted.name,
        "requested_ensure": "present",
        "final_ensure": "present",
        "duration": 1,
        "properties": wanted,
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


def test_a_secret_is_masked_wherever_it_travels() -> None:
    masker = Masker()
    wanted = NoteProperties(name="a", pin="hunter22", words={"en": "hunter22!"})
    told = event(
        wanted,
        error=["the pin hunter22 is wrong"],
        output="hunter22\n",
        status={"text": "hunter22"},
        health_check=[HealthResult(status=2, output="got hunter22")],
        noop_message="Would have set hunter22",
    )

    mask.learn(masker, KIND, wanted)
    found = mask.masked(told, KIND, masker)

    assert "hunter22" not in str(found)
    assert (found.error, found.output) == (["the pin *** is wrong"], "***\n")
    assert found.properties == {"name": "a", "pin": "***", "words": {"en": "***!"}}
    assert wanted.pin == "hunter22"


def test_credentials_are_taken_out_of_urls_and_of_what_quotes_them() -> None:
    masker = Masker()
    wanted = NoteProperties(name="a", url="https://me:p%40ss99@host/x")

    mask.learn(masker, KIND, wanted)
    found = mask.masked(event(wanted, error=["p@ss99 and p%40ss99"]), KIND, masker)

    assert (found.properties["url"], found.error) == ("https://***@host/x", ["*** and ***"])


def test_an_event_without_secrets_keeps_its_properties_as_they_are() -> None:
    wanted = NoteProperties(name="a", text="x")
    kind = note_type(Board(), secret=frozenset(), urls=frozenset())

    assert mask.masked(event(wanted), kind, Masker()).properties is wanted


def test_on_the_bus_content_is_a_digest_and_variables_are_names() -> None:
    kind = note_type(Board(), digested=frozenset({"text"}), names_only=frozenset({"subscribe"}))
    wanted = NoteProperties(name="a", text="héllo", subscribe=["A=1", "B=x=y", "C"])

    told = event(wanted)
    found = mask.for_bus(told, kind)

    digest = sha256("héllo".encode()).hexdigest()
    assert found.properties == {
        "name": "a",
        "text": f"sha256:{digest} (6 bytes)",
        "subscribe": ["A", "B", "C"],
    }
    assert told.properties is wanted


def test_of_a_mapping_that_is_digested_no_value_leaves() -> None:
    kind = note_type(Board(), digested=frozenset({"words"}))
    one, same, none = (
        mask.for_bus(event(NoteProperties(name="a", words=words)), kind).properties
        for words in ({"de": "x", "en": "y"}, {"en": "y", "de": "x"}, {})
    )

    digest = sha256(b'{"de":"x","en":"y"}').hexdigest()
    assert one == same == {"name": "a", "words": f"sha256:{digest} (19 bytes)"}
    assert "words" not in none


def test_of_what_is_masked_not_even_a_digest_leaves() -> None:
    kind = note_type(Board(), digested=frozenset({"pin"}))
    wanted = NoteProperties(name="a", pin="hunter22")
    masker = Masker()
    mask.learn(masker, kind, wanted)

    found = mask.for_bus(mask.masked(event(wanted), kind, masker), kind)

    assert found.properties["pin"] == "***"
