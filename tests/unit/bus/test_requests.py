"""What is admitted as a request, and what is not."""

from __future__ import annotations

import pytest

from ccm_agent.bus.connection.messages import COPIED
from ccm_agent.bus.requests import validate_request
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.ports import IncomingRequest
from ccm_agent.model.wire import MANIFEST_APPLY

SUBJECT = "io.choria.ccm.v1.manifest.apply.request.fact.role.web"
BODY = b'{"protocol":"io.choria.ccm.v1.manifest.apply.request","new":"field"}'
DUE = {
    "Nats-Scheduler": "choria.ccm.schedule.manifest.apply.request.fact.role.web.nightly",
    "Nats-Stream": "CCM_SCHEDULES",
    "Nats-Subject": "choria.ccm.due.manifest.apply.request.fact.role.web",
    "Nats-Sequence": "7",
    "Nats-Time-Stamp": "2026-11-21T12:00:00.123456789Z",
}


def test_a_message_of_a_program_is_a_request() -> None:
    headers = {"Ccm-Sent": "1", "Anything": "else"}

    assert validate_request(SUBJECT, BODY, headers) == IncomingRequest(
        subject=SUBJECT,
        protocol=MANIFEST_APPLY,
        scope="fact.role.web",
        body=BODY,
        headers=headers,
    )


@pytest.mark.parametrize("headers", [{}, {"Anything": "else"}])
def test_a_message_that_no_program_sent_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ProtocolError, match="not a request but a reply of the broker"):
        validate_request(SUBJECT, BODY, headers)


def test_a_due_request_is_admitted_on_the_subject_it_was_due_for() -> None:
    assert validate_request(SUBJECT, BODY, DUE).scheduled


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"Nats-Stream": "KV_CCM_DATA"}, id="of another stream"),
        pytest.param({"Nats-Stream": COPIED}, id="a stored copy"),
        pytest.param({"Nats-Stream": ""}, id="of a stream without a name"),
        pytest.param(
            {"Nats-Subject": "choria.ccm.due.manifest.apply.request.all"}, id="that was due elsewhere"
        ),
        pytest.param({"Nats-Subject": "choria.ccm.schedule.manifest.apply.request.all.x"}, id="not due yet"),
        pytest.param({"Nats-Subject": SUBJECT}, id="stored under the subject of a request"),
        pytest.param({"Nats-Sequence": "-1"}, id="without a sequence"),
        pytest.param({"Nats-Sequence": "9" * 5000}, id="with a sequence that is not a number of 64 bits"),
        pytest.param({"Nats-Time-Stamp": "2026-11-21T12:00:00 soon"}, id="with a time that cannot be read"),
        pytest.param({"Nats-Time-Stamp": "0001-01-01T00:00:00+01:00"}, id="with a time before the calendar"),
        pytest.param({"Nats-Scheduler": ""}, id="that no schedule made"),
        pytest.param(
            {"Nats-Scheduler": "choria.ccm.schedule.manifest.apply.request.all.nightly"},
            id="of a schedule for another scope",
        ),
        pytest.param(
            {"Nats-Scheduler": "choria.ccm.schedule.manifest.plan.request.fact.role.web.nightly"},
            id="of a schedule for another action",
        ),
        pytest.param(
            {"Nats-Scheduler": "choria.ccm.schedule.manifest.apply.request.fact.role.web.nightly.x"},
            id="of a schedule whose name is more than a token",
        ),
    ],
)
def test_a_copy_is_refused(changed) -> None:
    with pytest.raises(ProtocolError, match="a copy of a message"):
        validate_request(SUBJECT, BODY, DUE | changed)


@pytest.mark.parametrize(
    "missing", ["Nats-Scheduler", "Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"]
)
def test_a_due_request_without_a_header_is_refused(missing) -> None:
    with pytest.raises(ProtocolError):
        validate_request(SUBJECT, BODY, {name: value for name, value in DUE.items() if name != missing})


@pytest.mark.parametrize("name", ["Nats-Subject", "nats-sequence", "Nats-Time-Stamp"])
def test_a_copy_whose_stream_is_hidden_is_refused(name: str) -> None:
    with pytest.raises(ProtocolError, match="a copy of a message"):
        validate_request(SUBJECT, BODY, {"Ccm-Sent": "1", "X": "abNats-Stream: KV_CCM_RUNS", name: "1"})


def test_a_header_counts_however_it_is_written() -> None:
    with pytest.raises(ProtocolError, match="a copy"):
        validate_request(SUBJECT, BODY, {"nats-stream": "KV_CCM_DATA"})


def test_an_answer_of_the_broker_is_refused() -> None:
    with pytest.raises(ProtocolError, match="a reply of the broker"):
        validate_request(SUBJECT, BODY, {"Status": "404"})


@pytest.mark.parametrize(
    "body",
    [
        b'{"stream":"KV_CCM_NODES","seq":7}',
        b'{"protocol":"io.choria.ccm.v1.manifest.plan.request"}',
        b'{"protocol":null}',
        b'{"Protocol":"io.choria.ccm.v1.manifest.apply.request"}',
        b'[{"protocol":"io.choria.ccm.v1.manifest.apply.request"}]',
        b"\xff",
        b"",
        BODY[:-1] + b',"more":' + b"[" * 2000 + b"]" * 2000 + b"}",
    ],
    ids=[
        "an acknowledgement",
        "another protocol",
        "none",
        "misspelt",
        "a list",
        "no text",
        "empty",
        "too deep",
    ],
)
def test_a_body_that_does_not_name_the_subjects_protocol_is_refused(body) -> None:
    with pytest.raises(ProtocolError):
        validate_request(SUBJECT, body, {"Ccm-Sent": "1"})
