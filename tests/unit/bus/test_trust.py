"""The root key, the signers list and certificates of nodes."""

from __future__ import annotations

import msgspec
import pytest

from ccm_agent.bus.signing import SignatureError, SignatureKind
from ccm_agent.bus.trust import (
    EVERYWHERE,
    SIGNERS_SUBJECT,
    Signer,
    SignersList,
    Trust,
    certify_node,
    read_signers,
    sign_signers,
    trust_in_credentials,
    verify_certificate,
)
from ccm_agent.model.errors import InputError, ProtocolError, UsageError
from ccm_agent.model.wire import (
    MANIFEST_APPLY,
    MANIFEST_PLAN,
    NODE_CONVERGE,
    NODE_DISABLE,
    NODE_ENABLE,
    NODE_PING,
    RESOURCE_ENSURE,
    RUN_STOP,
)
from tests.unit.bus.test_signing import NOW, new_key

WEB = "fact.role.web"


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

    with pytest.raises(SignatureError, match="another number"):
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
