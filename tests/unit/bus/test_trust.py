"""The root key, the signers list and certificates of nodes."""

from __future__ import annotations

import msgspec
import pytest

from ccm_agent.bus.signatures.signing import SignatureError, SignatureKind
from ccm_agent.bus.signatures.timestamp import AHEAD_MS, TIMESTAMP_SUBJECT, Timestamp, read_timestamp
from ccm_agent.bus.signatures.trust import (
    EVERYWHERE,
    SIGNERS_LIMIT,
    SIGNERS_SUBJECT,
    SignedText,
    Signer,
    SignersList,
    Trust,
    certify_node,
    check_signers,
    read_certificate,
    read_signers,
    sign_signers,
    trust_in_credentials,
    verify_certificate,
)
from ccm_agent.model.errors import InputError, ProtocolError, UsageError
from ccm_agent.model.wire import (
    MANIFEST_APPLY,
    MANIFEST_CHECK,
    MANIFEST_PLAN,
    NODE_CONVERGE,
    NODE_DISABLE,
    NODE_ENABLE,
    NODE_PING,
    RESOURCE_ENSURE,
    RESOURCE_EXEC,
    RESOURCE_IMPORT,
    RUN_STOP,
)
from tests.unit.bus.test_signing import NOW, new_key

WEB = "fact.role.web"
KEYS = [new_key().public_key for _ in range(8)]


def listed(**others) -> SignersList:
    return SignersList(number=1, issued=NOW, **others)


def test_list_that_the_root_signed_is_read_back():
    root, bob = new_key(), new_key()
    signers = listed(signers=(Signer(name="bob", key=bob.public_key, apply=(WEB,)),))

    text = sign_signers(root, signers)

    assert read_signers(text.body.encode(), text.signature, root.public_key, now_ms=NOW) == signers


def test_list_that_another_key_signed_is_refused():
    root, broker = new_key(), new_key()
    text = sign_signers(broker, listed())

    with pytest.raises(SignatureError, match="not the fleet's root key"):
        read_signers(text.body.encode(), text.signature, root.public_key, now_ms=NOW)


def test_list_with_another_number_than_its_signature_is_refused():
    root = new_key()
    body = msgspec.json.encode(listed())
    signature = root.sign(SignatureKind.SIGNERS, SIGNERS_SUBJECT, body, issued_ms=NOW, number=2)

    with pytest.raises(SignatureError, match="the numbers of the signers list and its signature differ"):
        read_signers(body, signature, root.public_key, now_ms=NOW)


def test_signed_list_that_makes_no_sense_is_refused():
    root = new_key()
    body = b'{"number": 1, "issued": "x"}'
    signature = root.sign(SignatureKind.SIGNERS, SIGNERS_SUBJECT, body, issued_ms=NOW, number=1)

    with pytest.raises(ProtocolError, match="cannot be read"):
        read_signers(body, signature, root.public_key, now_ms=NOW)


@pytest.mark.parametrize(
    ("protocol", "scope", "allowed"),
    [
        pytest.param(MANIFEST_APPLY, WEB, True, id="applies in its scope"),
        pytest.param(RESOURCE_ENSURE, WEB, True, id="ensures in its scope"),
        pytest.param(RUN_STOP, WEB, True, id="stops in its scope"),
        pytest.param(MANIFEST_APPLY, "all", False, id="does not apply everywhere"),
        pytest.param(MANIFEST_APPLY, "node.web1", False, id="a node is another scope"),
        pytest.param(MANIFEST_PLAN, "all", True, id="plans where it may plan"),
        pytest.param(NODE_PING, "all", True, id="pings"),
        pytest.param(NODE_DISABLE, "node.web1", True, id="disables in its scope"),
        pytest.param(NODE_ENABLE, WEB, False, id="who may apply does not enable"),
        pytest.param(NODE_CONVERGE, "all", False, id="does not converge everywhere"),
    ],
)
def test_signer_may_do_what_its_entry_allows(protocol, scope, allowed):
    signer = Signer(
        name="bob", key=new_key().public_key, plan=("all",), apply=(WEB,), maintain=("node.web1",)
    )

    assert signer.may_request(protocol, scope) is allowed


def test_signer_for_all_nodes_may_assign_anywhere():
    assert Signer(name="eve", key="x", apply=(EVERYWHERE,)).may_assign("node.db1")
    assert not Signer(name="ann", key="x").may_assign("all")


def test_entry_that_has_expired_counts_no_longer():
    key = new_key().public_key
    signers = listed(signers=(Signer(name="bob", key=key, expires=NOW // 1000),))

    assert signers.by_key(key, NOW - 1000) is not None
    assert signers.by_key(key, NOW + 1000) is None


def test_same_key_for_two_operators_is_refused():
    key = new_key().public_key

    with pytest.raises(UsageError, match="twice"):
        sign_signers(new_key(), listed(signers=(Signer(name="a", key=key), Signer(name="b", key=key))))


def test_trust_travels_in_a_credentials_file():
    root, node = new_key(), new_key()
    trust = Trust(
        root=root.public_key,
        signers=sign_signers(root, listed()),
        certificate=certify_node(root, "web1", node.public_key, issued_ms=NOW),
        floors={"CCM_FACTS/web1": 7},
    )

    assert trust_in_credentials(f"-----BEGIN NATS USER JWT-----\nx\n\n{trust.as_block()}") == trust
    assert trust_in_credentials("-----BEGIN NATS USER JWT-----\nx\n") is None


def test_damaged_trust_is_an_error_and_not_the_absence_of_trust():
    block = Trust(root=new_key().public_key).as_block()

    for text in (block[:60], block.replace("\n", "\n!", 1), block.replace("END CCM", "END")):
        with pytest.raises(InputError, match="damaged"):
            trust_in_credentials(text)


def test_certificate_counts_for_its_node_and_key_only():
    root, node = new_key(), new_key()
    certificate = certify_node(root, "web1", node.public_key, issued_ms=NOW)

    verify_certificate(certificate, "web1", node.public_key, root.public_key, now_ms=NOW)

    for name, key, trusted in (
        ("web2", node.public_key, root.public_key),
        ("web1", new_key().public_key, root.public_key),
        ("web1", node.public_key, new_key().public_key),
    ):
        with pytest.raises(SignatureError):
            verify_certificate(certificate, name, key, trusted, now_ms=NOW)


PROTOCOLS = {
    "apply": (MANIFEST_APPLY, RESOURCE_ENSURE),
    "plan": (MANIFEST_PLAN, MANIFEST_CHECK, RESOURCE_IMPORT),
    "exec": (RESOURCE_EXEC,),
    "maintain": (NODE_DISABLE, NODE_ENABLE, NODE_CONVERGE),
    "stop": (RUN_STOP,),
}
GIVES = {
    "plan": {"plan"},
    "apply": {"apply", "plan", "stop"},
    "exec": {"exec", "stop"},
    "maintain": {"maintain"},
}
"""What each right of a scope allows there."""


@pytest.mark.parametrize("right", GIVES)
def test_each_right_allows_its_requests_in_its_scope_and_no_others(right):
    signer = Signer(name="bob", key="x", **{right: (WEB,)})

    for kind, protocols in PROTOCOLS.items():
        for protocol in protocols:
            assert signer.may_request(protocol, WEB) is (kind in GIVES[right]), protocol
            assert not signer.may_request(protocol, "fact.role.db"), protocol


@pytest.mark.parametrize(
    ("right", "written"),
    [
        ({"facts": True}, {("CCM_FACTS", "web1")}),
        ({"data": True}, {("CCM_DATA", "common"), ("CCM_NODE_DATA", "web1.0"), ("CCM_SECRETS", "head.db")}),
        ({"apply": ("all",)}, {("CCM_ASSIGNMENTS", "all.site")}),
        ({"admin": True}, {("CCM_TRUST", "group.edge"), ("CCM_SECRETS", "sealing")}),
        ({"timestamp": True, "schedules": True, "plan": (EVERYWHERE,)}, set()),
    ],
    ids=["facts", "data", "apply", "admin", "others"],
)
def test_each_right_allows_its_documents_and_no_others(right, written):
    signer = Signer(name="bob", key="x", **right)
    documents = {
        ("CCM_FACTS", "web1"),
        ("CCM_DATA", "common"),
        ("CCM_NODE_DATA", "web1.0"),
        ("CCM_SECRETS", "head.db"),
        ("CCM_SECRETS", "sealing"),
        ("CCM_ASSIGNMENTS", "all.site"),
        ("CCM_ASSIGNMENTS", "node.web1.site"),
        ("CCM_TRUST", "group.edge"),
        ("CCM_TRUST", "signers"),
        ("CCM_TRUST", "snapshot.timestamp"),
    }

    assert {one for one in documents if signer.may_write(*one)} == written


def test_list_with_more_entries_than_are_read_is_refused():
    def entries(count):
        # 8 keys are not enough for this many entries, so the first fault of a list within the limit is a key that is there twice
        return tuple(Signer(name=f"n{n}", key=KEYS[n % 8]) for n in range(count))

    with pytest.raises(UsageError, match=f"at most {SIGNERS_LIMIT} are accepted"):
        check_signers(listed(signers=entries(SIGNERS_LIMIT + 1)))
    with pytest.raises(UsageError, match="twice"):
        check_signers(listed(signers=entries(SIGNERS_LIMIT)))


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        pytest.param({"key": "UNOKEY"}, "is not a public nkey", id="no key"),
        pytest.param({"apply": ("everywhere",)}, "everywhere", id="no scope"),
        pytest.param({"maintain": ("fact.role",)}, "fact.role", id="half a scope"),
    ],
)
def test_list_with_an_entry_that_cannot_count_is_refused_by_writer_and_reader(entry, why):
    root, fields = new_key(), {"name": "bob", "key": KEYS[0]}
    check_signers(listed(signers=(Signer(**fields, plan=(EVERYWHERE,), apply=(WEB,)),)))
    wrong = listed(signers=(Signer(**fields | entry),))
    body = msgspec.json.encode(wrong)
    signature = root.sign(SignatureKind.SIGNERS, SIGNERS_SUBJECT, body, issued_ms=NOW, number=1)

    with pytest.raises(UsageError, match=why):
        sign_signers(root, wrong)
    with pytest.raises(ProtocolError, match=why):
        read_signers(body, signature, root.public_key, now_ms=NOW)


def test_trust_block_without_a_root_key_is_an_error():
    with pytest.raises(InputError, match="contains no root key"):
        trust_in_credentials(Trust(root="nobody").as_block())


def test_certificate_is_read_after_its_end_and_only_if_the_root_signed_it():
    root, node = new_key(), new_key()
    certificate = certify_node(root, "web1", node.public_key, issued_ms=NOW, expires_ms=NOW + 1)
    forged = certify_node(new_key(), "web1", node.public_key, issued_ms=NOW)

    assert read_certificate(certificate, "web1", node.public_key, root.public_key).expires == NOW + 1
    with pytest.raises(SignatureError, match="not the fleet's root key"):
        read_certificate(forged, "web1", node.public_key, root.public_key)


def test_timestamp_counts_if_a_signer_with_that_right_signed_its_own_time():
    key, other = new_key(), new_key()
    signers = listed(
        signers=(
            Signer(name="ann", key=key.public_key, timestamp=True),
            Signer(name="bob", key=other.public_key, apply=(EVERYWHERE,), admin=True),
        )
    )

    def signed(by=key, issued=NOW, number=NOW, names=5, body_issued=NOW):
        body = msgspec.json.encode(Timestamp(issued=body_issued, signers=names))
        signature = by.sign(SignatureKind.TIMESTAMP, TIMESTAMP_SUBJECT, body, issued_ms=issued, number=number)
        return SignedText(body=body.decode(), signature=signature)

    assert read_timestamp(signed(), signers, now_ms=NOW) == Timestamp(issued=NOW, signers=5)
    assert read_timestamp(signed(names=NOW + AHEAD_MS), signers, now_ms=NOW).signers == NOW + AHEAD_MS
    for forged, why in (
        (signed(by=other), "may not sign timestamps"),
        (signed(by=new_key()), "may not sign timestamps"),
        (signed(issued=NOW - 1), "the times of the timestamp and its signature differ"),
        (signed(number=NOW - 1), "the times of the timestamp and its signature differ"),
        (signed(names=NOW + AHEAD_MS + 1), "whose time is in the future"),
        (SignedText(body=signed().body, signature=""), "not signed"),
    ):
        with pytest.raises(ProtocolError, match=why):
            read_timestamp(forged, signers, now_ms=NOW)
