"""Stored messages as entries: what counts, and what does not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from ccm_agent.bus.signatures.node_state import StateReader
from ccm_agent.bus.signatures.signing import CERTIFICATE_HEADER, SIGNATURE_HEADER, SignatureKind
from ccm_agent.bus.signatures.trust import SignersList
from ccm_agent.bus.streams import Stored
from ccm_agent.model.errors import DataError
from ccm_agent.model.records.registration import RegistrationEntry, encode_entry
from ccm_agent.registration.entries import (
    RegistrationQuery,
    StreamEntry,
    entry_subject,
    find_forgery,
    read_stored,
)
from ccm_agent.registration.lookup import _checked
from tests.support.authorship import Root, now_ms
from tests.support.signing import new_key

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ENTRY = RegistrationEntry(
    cluster="prod", service="web", protocol="http", address="10.0.0.1", port=8080, priority=10
)
SUBJECT = "choria.ccm.registration.v1.prod.http.web.10_0_0_1.8615c9f698160162"


def stored(**fields: Any) -> Stored:
    known: dict[str, Any] = {"subject": SUBJECT, "body": encode_entry(ENTRY), "sequence": 7, "time": NOW}
    return Stored(**(known | fields))


def test_an_entry_has_the_reference_s_subject() -> None:
    assert entry_subject(ENTRY) == SUBJECT


def test_an_entry_is_read() -> None:
    message = stored()
    assert read_stored(message) == StreamEntry(
        subject=SUBJECT, sequence=7, time=NOW, entry=ENTRY, body=message.body
    )


def test_the_broker_s_marker_is_an_entry_that_is_gone() -> None:
    marker = stored(body=b"", headers={"Nats-Marker-Reason": "MaxAge"})

    assert read_stored(marker) == StreamEntry(subject=SUBJECT, sequence=7, time=NOW, reason="MaxAge")


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(stored(copied=True), id="a copy of what was stored elsewhere"),
        pytest.param(stored(subject=SUBJECT.replace("10_0_0_1", "10_0_0_2")), id="another node's address"),
        pytest.param(stored(subject=SUBJECT.replace("8615", "8616")), id="another instance"),
        pytest.param(stored(body=b"{}"), id="no entry"),
        pytest.param(
            stored(body=b"", headers={"Nats-Marker-Reason": "x"}, subject="a.b"), id="no subject of one"
        ),
    ],
)
def test_an_invalid_entry_on_a_subject_is_spoilt(message: Stored) -> None:
    assert read_stored(message) == StreamEntry(subject=message.subject, sequence=7, time=NOW, is_spoilt=True)


def test_a_query_is_a_pattern_with_wildcards() -> None:
    assert (
        RegistrationQuery("prod", "", "web", "10.0.0.1").pattern
        == "choria.ccm.registration.v1.prod.*.web.10_0_0_1.*"
    )
    assert str(RegistrationQuery("prod", "", "web")) == "prod * web *"


@pytest.mark.parametrize("part", ["a.b", ">", "a b", "web*"])
def test_a_query_cannot_be_widened(part: str) -> None:
    with pytest.raises(DataError):
        RegistrationQuery(part).pattern  # noqa: B018


@pytest.mark.parametrize(
    ("signer", "reason"),
    [("node", ""), ("another root", "root"), ("", "it is not signed")],
    ids=["the node", "a key of another root", "nobody"],
)
def test_an_entry_counts_if_a_node_signed_it(signer: str, reason: str) -> None:
    root, other, key = Root(), Root(), new_key()
    signers = SignersList(number=1, issued=now_ms(), signed_state=True)
    reader = StateReader(root.key.public_key, signers, now_ms)
    by = root if signer == "node" else other
    body = encode_entry(ENTRY)
    headers = {
        SIGNATURE_HEADER: key.sign(SignatureKind.STATE, SUBJECT, body, issued_ms=now_ms()),
        CERTIFICATE_HEADER: by.certificate("web1", key),
    }
    found = read_stored(stored(body=body, headers=headers if signer else {}))

    assert reason in find_forgery(reader, found)
    assert bool(find_forgery(reader, found)) is bool(reason)
    assert _checked(reader, found) == (
        StreamEntry(subject=SUBJECT, sequence=7, time=NOW, is_spoilt=True) if reason else found
    )
