"""Messages say what they are, and a reader of today understands writers of yesterday and tomorrow."""

import inspect
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from ccm_agent.model import outcome, wire
from ccm_agent.model.formats.untrusted_json import Moment
from ccm_agent.model.outcome import Counts, Outcome, TransactionEvent, count

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
MESSAGES = [
    kind
    for module in (wire, outcome)
    for _, kind in inspect.getmembers(module, inspect.isclass)
    if issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__
]


def event(**fields: Any) -> TransactionEvent:
    """An event of a stable resource, but for what is given."""
    words: dict[str, Any] = {
        "protocol": outcome.TRANSACTION_EVENT, "event_id": "e", "timestamp": NOW, "type": "file", "provider": "posix",
        "name": "/a", "requested_ensure": "present", "final_ensure": "present", "duration": 1, "properties": {},
        "status": {}, "error": [], "changed": False, "refreshed": False, "failed": False, "skipped": False,
        "noop": False, "unmet_requirements": [],
    }  # fmt: skip
    return TransactionEvent(**{**words, **fields})


@pytest.mark.parametrize("kind", [k for k in MESSAGES if "protocol" in k.__struct_fields__])
def test_a_message_always_writes_its_protocol(kind: type[msgspec.Struct]) -> None:
    info = {field.name: field for field in msgspec.structs.fields(kind)}

    assert info["protocol"].required


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_field_that_is_new_to_a_reader_is_skipped(kind: type[msgspec.Struct]) -> None:
    read = msgspec.json.decode(msgspec.json.encode({**smallest(kind), "invented_later": 1}), type=kind)

    assert isinstance(read, kind)


def smallest(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The least that a message must say."""
    samples: dict[Any, Any] = {Moment: NOW, str: "x", int: 1, bool: False}
    return {
        field.encode_name: smallest(field.type)
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
        else samples.get(field.type)
        or samples.get(getattr(field.type, "__origin__", None))
        or ([] if "list" in str(field.type) else {} if "dict" in str(field.type) else False)
        for field in msgspec.structs.fields(kind)
        if field.required
    }


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ({}, Outcome.STABLE),
        ({"changed": True}, Outcome.CHANGED),
        ({"changed": True, "refreshed": True}, Outcome.REFRESHED),
        ({"skipped": True}, Outcome.SKIPPED),
        ({"skipped": True, "unmet_requirements": ["file#/x"]}, Outcome.UNMET),
        ({"changed": True, "failed": True}, Outcome.FAILED),
    ],
)
def test_an_event_has_one_outcome(flags: dict[str, Any], word: Outcome) -> None:
    assert event(**flags).outcome is word


def test_a_refreshed_resource_counts_as_changed_too_and_every_check_by_its_status() -> None:
    counts = Counts()
    checks = [outcome.HealthResult(status=status) for status in (0, 1, 2, 3)]

    count(counts, event(changed=True, refreshed=True))
    count(counts, event(failed=True, health_check=checks))

    assert counts == Counts(
        total_resources=2, changed_resources=1, failed_resources=1, refreshed_count=1, total_errors=1,
        health_checked_count=4, health_check_ok_count=1, health_check_warning_count=1,
        health_check_critical_count=1, health_check_unknown_count=1,
    )  # fmt: skip


def test_end_states_are_those_after_running() -> None:
    going = {
        wire.NodeState.PLANNED,
        wire.NodeState.EXPECTED,
        wire.NodeState.ACCEPTED,
        wire.NodeState.QUEUED,
        wire.NodeState.RUNNING,
    }

    assert {state for state in wire.NodeState if not state.is_final} == going
