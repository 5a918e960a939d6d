"""What proves that a node stored an entry about itself."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ccm_agent.bus.signatures.node_state import StateReader, find_slot_forgery
from ccm_agent.bus.signatures.signing import SKEW_MS, SignatureError, SignatureKind, SigningKey
from ccm_agent.bus.signatures.trust import SignersList, certify_node
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.ports import KeyValueEntry
from tests.support.signing import new_key

NOW = 1_800_000_000_000
SUBJECT, BODY = key_subject("CCM_NODES", "presence.web1"), b"here"
ROOT, KEY, STRANGER = new_key(), new_key(), new_key()


def reader(**others: object) -> StateReader:
    signers = SignersList(number=1, issued=0, **({"signed_state": True} | others))  # type: ignore[arg-type]
    return StateReader(ROOT.public_key, signers, lambda: NOW)


def certificate(node: str = "web1", key: SigningKey = KEY, expires_ms: int = 0) -> str:
    return certify_node(ROOT, node, key.public_key, issued_ms=NOW - 1000, expires_ms=expires_ms)


def signed(
    body: bytes = BODY,
    subject: str = SUBJECT,
    kind: SignatureKind = SignatureKind.STATE,
    key: SigningKey = KEY,
    issued_ms: int = NOW,
    expires_ms: int = 0,
) -> str:
    return key.sign(kind, subject, body, issued_ms=issued_ms, expires_ms=expires_ms)


def test_entry_that_a_certified_key_signed_is_of_its_node() -> None:
    assert reader().read_signer(SUBJECT, BODY, signed(), certificate()) == "web1"


@pytest.mark.parametrize(
    ("signature", "certified", "why"),
    [
        pytest.param("", certificate(), "it is not signed", id="unsigned"),
        pytest.param(signed(b"gone"), certificate(), "changed after signing", id="another body"),
        pytest.param(signed(subject=f"{SUBJECT}2"), certificate(), "the signature is for", id="another key"),
        pytest.param(signed(kind=SignatureKind.EVENT), certificate(), "for a event", id="another kind"),
        pytest.param(signed(), "", "certificate of its signing key is missing", id="without a certificate"),
        pytest.param(signed(key=STRANGER), certificate(), "changed after signing|content", id="a stranger"),
        pytest.param(
            signed(issued_ms=NOW + SKEW_MS + 1), certificate(), "signed in the future", id="from the future"
        ),
        pytest.param(
            signed(expires_ms=NOW - SKEW_MS - 1), certificate(), "signature has expired", id="expired"
        ),
        pytest.param(
            signed(),
            certificate(expires_ms=NOW - 1),
            "after its certificate expired",
            id="old certificate",
        ),
        pytest.param(
            signed(),
            ROOT.sign(SignatureKind.NODE, "nodes", KEY.public_key.encode(), issued_ms=NOW),
            "does not name a node",
            id="certificate of something else",
        ),
        pytest.param(
            signed(),
            KEY.sign(SignatureKind.NODE, "node.web 1", KEY.public_key.encode(), issued_ms=NOW),
            "does not name a node",
            id="the node's own certificate of a name that no node can have",
        ),
        pytest.param(
            signed(),
            KEY.sign(SignatureKind.NODE, "node.web1", KEY.public_key.encode(), issued_ms=NOW),
            "root key",
            id="the node's own certificate",
        ),
        pytest.param(
            signed(),
            certify_node(STRANGER, "web1", KEY.public_key, issued_ms=NOW),
            "root key",
            id="another root",
        ),
    ],
)
def test_anything_else_is_refused(signature: str, certified: str, why: str) -> None:
    with pytest.raises(SignatureError, match=why):
        reader().read_signer(SUBJECT, BODY, signature, certified)


def test_a_revoked_key_is_refused() -> None:
    with pytest.raises(SignatureError, match="was revoked"):
        reader(revoked_nodes=(KEY.public_key,)).read_signer(SUBJECT, BODY, signed(), certificate())


def test_times_within_the_skew_are_accepted_and_untimed_entries_have_any() -> None:
    for signature in (signed(issued_ms=NOW + SKEW_MS), signed(expires_ms=NOW - SKEW_MS)):
        assert reader().read_signer(SUBJECT, BODY, signature, certificate()) == "web1"
    late = signed(issued_ms=NOW + SKEW_MS + 1, expires_ms=NOW + SKEW_MS + 2)

    assert reader().read_signer(SUBJECT, BODY, late, certificate(), is_timed=False) == "web1"


@pytest.mark.parametrize(
    "others",
    [
        pytest.param({"signed_state": False}, id="not demanded"),
        pytest.param({"allow_unsigned_until": NOW + 1}, id="yet"),
    ],
)
def test_unsigned_entries_are_of_nobody_while_they_are_allowed(others: dict[str, object]) -> None:
    assert reader(**others).read_signer(SUBJECT, BODY, "", "") == ""
    with pytest.raises(SignatureError, match="changed after signing"):
        reader(**others).read_signer(SUBJECT, b"gone", signed(), certificate())


def test_a_slot_is_held_by_the_node_that_its_key_names() -> None:
    subject = key_subject("CCM_SLOTS", "restart.web1")

    def entry(signature: str, certified: str) -> KeyValueEntry:
        now = datetime.now(UTC)
        return KeyValueEntry(
            key="restart.web1",
            value=BODY,
            revision=1,
            created=now,
            signature=signature,
            certificate=certified,
        )

    genuine = entry(signed(subject=subject), certificate())
    of_web2 = entry(signed(subject=subject), certificate("web2"))

    assert find_slot_forgery(reader(), genuine) == ""
    assert find_slot_forgery(reader(), of_web2) == "signed with the key of web2"
    assert find_slot_forgery(reader(), entry("", "")) == "it is not signed"
    assert find_slot_forgery(reader(signed_state=False), entry("", "")) == ""
    assert find_slot_forgery(None, of_web2) == ""
