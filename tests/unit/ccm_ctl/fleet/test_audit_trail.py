"""What the audit trail takes for the entry of its author; `nats/test_audit.py` reads it from a broker."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.access.audit import operator_subject
from ccm_agent.bus.access.audit_entry import AUDIT_ENTRY, AuditEntry
from ccm_agent.bus.chain import CHAIN_HEADER, NONE
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SignatureKind, SigningKey
from ccm_agent.bus.signatures.trust import Signer, SignersList
from ccm_agent.bus.streams import Stored
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.wire import AGENT_DECISION, AgentEvent
from ccm_ctl.fleet.trust.audit_trail import (
    NODE,
    OPERATOR,
    AuditAuthor,
    AuditRecord,
    AuditStatus,
    check_author,
    judge_node,
    judge_operator,
)
from ccm_ctl.fleet.trust.authors import Authors
from tests.support.authorship import Root, Writer
from tests.support.controller import NOW
from tests.support.signing import new_key

NOW_MS = int(NOW.timestamp() * 1000)
ANN, BOB, STRANGER = new_key(), new_key(), new_key()
SIGNERS = SignersList(
    number=1,
    issued=NOW_MS,
    signers=(Signer(name="ann", key=ANN.public_key), Signer(name="bob", key=BOB.public_key)),
)


def entry(by: SigningKey, place: str = "ann", author: str = "ann", number: int = 1) -> Stored:
    """An entry in the place of an operator."""
    subject = operator_subject(place)
    body = msgspec.json.encode(
        AuditEntry(
            protocol=AUDIT_ENTRY,
            author=author,
            number=number,
            previous=NONE,
            time=NOW,
            kind="document",
            subject="$KV.CCM_FACTS.node.web1",
            digest="0" * 64,
        )
    )
    signature = by.sign(SignatureKind.AUDIT, subject, body, issued_ms=NOW_MS)
    return Stored(subject=subject, body=body, sequence=1, time=NOW, headers={SIGNATURE_HEADER: signature})


@pytest.mark.parametrize(
    ("stored", "status"),
    [
        pytest.param(entry(ANN), AuditStatus.VERIFIED, id="its author signed it"),
        pytest.param(entry(STRANGER), AuditStatus.UNKNOWN_KEY, id="a stranger signed it"),
        pytest.param(entry(BOB), AuditStatus.FORGED, id="another operator signed it"),
        pytest.param(entry(ANN, author="bob"), AuditStatus.FORGED, id="it names another author"),
        pytest.param(
            replace(entry(ANN), subject=operator_subject("bob")), AuditStatus.FORGED, id="in another's place"
        ),
        pytest.param(replace(entry(ANN), headers={}), AuditStatus.FORGED, id="it is not signed"),
    ],
)
def test_an_entry_is_verified_if_its_author_signed_it(stored: Stored, status: AuditStatus) -> None:
    assert judge_operator(stored, SIGNERS).status is status


def decision(writer: Writer, node: str = "web1", **details: Any) -> Stored:
    """A decision of a node, as the broker stores it."""
    event = AgentEvent(
        protocol=AGENT_DECISION, event_id="1", timestamp=NOW, node=node, message="refused", details=details
    )
    told = writer.event(event_subject(AGENT_DECISION, node), msgspec.json.encode(event))
    headers = {CHAIN_HEADER: told.chain}
    if told.signature:
        headers[SIGNATURE_HEADER] = told.signature
    return Stored(subject=told.subject, body=told.body, sequence=1, time=NOW, headers=headers)


class Nodes:
    """The keys of web1 and web2, of which the root has certified that of web1."""

    def __init__(self) -> None:
        root = Root()
        self.key, self.other = new_key(), new_key()
        self.authors = Authors(root.key.public_key, None, NOW_MS)
        self.authors.learn("web1", self.key.public_key, root.certificate("web1", self.key))


def test_a_decision_is_verified_if_a_certified_key_signed_it() -> None:
    nodes = Nodes()

    def status(stored: Stored, authors: Authors | None = nodes.authors) -> AuditStatus:
        return judge_node(stored, authors).status

    own = decision(Writer(nodes.key))
    assert status(own) is AuditStatus.VERIFIED
    assert status(own, None) is AuditStatus.UNKNOWN_KEY
    assert status(replace(own, body=own.body.replace(b"refused", b"allowed"))) is AuditStatus.FORGED
    assert status(decision(Writer(nodes.other))) is AuditStatus.FORGED
    assert status(decision(Writer(None))) is AuditStatus.FORGED
    assert status(decision(Writer(nodes.other), "web2")) is AuditStatus.UNKNOWN_KEY
    assert status(decision(Writer(None), "web2")) is AuditStatus.UNKNOWN_KEY
    bad = decision(Writer(nodes.other), "web2")
    assert status(replace(bad, body=bad.body.replace(b"refused", b"allowed"))) is AuditStatus.FORGED


def test_details_of_a_decision_are_texts() -> None:
    nodes = Nodes()

    found = judge_node(decision(Writer(nodes.key), reason="stale", times=3, number=7), nodes.authors)

    assert (found.number, found.details) == (7, {"reason": "stale"})


def trail(kind: str, *numbers: int, **first: Any) -> AuditAuthor:
    """The check of entries with these numbers, each linked to the one before it."""
    records, previous = [], NONE
    for number in numbers:
        records.append(
            AuditRecord(
                author_kind=kind,
                author="ann",
                stored=NOW,
                number=number,
                previous=previous,
                link=f"l{number}",
            )
        )
        previous = records[-1].link
    records[0] = replace(records[0], **first)
    return check_author(records)


@pytest.mark.parametrize(
    ("found", "is_bad"),
    [
        pytest.param(trail(OPERATOR, 1, 2, 3), False, id="complete"),
        pytest.param(trail(NODE, 4, 1, 2), False, id="a node that lost its state"),
        pytest.param(trail(OPERATOR, 3, 4), False, id="the oldest entries have expired"),
        pytest.param(trail(OPERATOR, 1, 3), True, id="an entry is missing"),
        pytest.param(trail(OPERATOR, 1, 2, link="changed"), True, id="an entry was exchanged"),
        pytest.param(trail(OPERATOR, 4, 3), True, id="an operator began again"),
        pytest.param(trail(OPERATOR, 1, 2, status=AuditStatus.FORGED), True, id="an entry is forged"),
    ],
)
def test_a_trail_is_bad_if_an_entry_is_missing_changed_or_forged(found: AuditAuthor, *, is_bad: bool) -> None:
    assert found.is_bad is is_bad
