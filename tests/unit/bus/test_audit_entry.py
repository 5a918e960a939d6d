"""What a signature of an operator leaves in the audit trail."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from ccm_agent.bus.access.audit_entry import TEXT_LIMIT, AuditedKey, SignedAction
from ccm_agent.bus.signatures.signing import SignatureKind, SigningKey, verify_content
from ccm_agent.model.wire import (
    NODE_PING,
    RESOURCE_ENSURE,
    RESOURCE_EXEC,
    EnsureRequest,
    ExecRequest,
    Request,
    StopRequest,
)
from tests.support.authorship import new_seed


def signed(kind: SignatureKind, subject: str, body: bytes, **claims: dict[str, str]) -> list[SignedAction]:
    """What is reported of a signature, which is valid."""
    found: list[SignedAction] = []
    key = AuditedKey(SigningKey(new_seed()), found.append)
    verify_content(key.sign(kind, subject, body, issued_ms=1, **claims), kind, subject, body)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(ExecRequest(protocol=RESOURCE_EXEC, run="r1", argv=["SECRET"]), id="arguments"),
        pytest.param(
            EnsureRequest(protocol=RESOURCE_ENSURE, run="r1", type="file", properties={"contents": "SECRET"}),
            id="properties",
        ),
        pytest.param(Request(protocol=RESOURCE_EXEC, run="r1", where="SECRET"), id="expressions"),
    ],
)
def test_an_entry_has_the_run_and_the_digest_and_no_content(request_: Request) -> None:
    subject, body = f"{request_.protocol}.all", msgspec.json.encode(request_)

    [found] = signed(SignatureKind.REQUEST, subject, body)

    assert found == SignedAction(
        kind="request", subject=subject, digest=hashlib.sha256(body).hexdigest(), run="r1"
    )
    assert b"SECRET" not in msgspec.json.encode(found)


def test_a_manifest_is_named_and_a_command_in_the_record_of_its_run_is_not() -> None:
    body = b'{"run":"r1","name":"exec#echo SECRET"}'

    [record] = signed(SignatureKind.RECORD, "$KV.CCM_RUNS.ann.r1", body)
    [request] = signed(SignatureKind.REQUEST, "x.all", b'{"run":"r1","name":"site"}')

    assert (record.run, record.details, request.details) == ("r1", {}, {"name": "site"})


def test_an_entry_has_the_reason_of_a_run() -> None:
    request_ = ExecRequest(protocol=RESOURCE_EXEC, run="r1", argv=["SECRET"], message="m" * (TEXT_LIMIT + 1))

    [found] = signed(SignatureKind.REQUEST, f"{RESOURCE_EXEC}.all", msgspec.json.encode(request_))

    assert found.details == {"message": "m" * TEXT_LIMIT}


def test_an_entry_names_what_a_stop_stops() -> None:
    body = msgspec.json.encode(StopRequest(protocol="x", run="r1", stop="r0"))

    [found] = signed(SignatureKind.REQUEST, "x.all", body)

    assert found.details == {"stop": "r0"}


def test_a_field_with_a_type_of_its_own_does_not_hide_the_run() -> None:
    [found] = signed(SignatureKind.DOCUMENT, "$KV.B.k", b'{"run":"r1","name":{"a":1}}')

    assert (found.run, found.details) == ("r1", {})


def test_bytes_that_are_no_document_have_an_entry() -> None:
    [found] = signed(SignatureKind.OBJECT, "$O.B.M.x", b"\xff\x00", details={"note": "abc"})

    assert (found.kind, found.details) == ("object", {"note": "abc"})


@pytest.mark.parametrize(
    ("kind", "subject"),
    [(SignatureKind.REQUEST, f"{NODE_PING}.all"), (SignatureKind.TIMESTAMP, "$KV.CCM_TRUST.timestamp")],
)
def test_questions_and_timestamps_have_no_entry(kind: SignatureKind, subject: str) -> None:
    assert signed(kind, subject, b"{}") == []
