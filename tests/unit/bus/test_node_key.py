"""The key that a node signs its events with."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccm_agent.bus.chain import PLACE_DETAIL, ChainPosition, new_chain_id
from ccm_agent.bus.signatures.node_key import NodeKey
from ccm_agent.bus.signatures.signing import SignatureKind, SigningKey, verify
from ccm_agent.bus.signatures.trust import verify_certificate
from tests.support.authorship import Root, new_seed, now_ms, write_credentials

SUBJECT = "io.choria.ccm.v1.agent.startup.web1"
PLACE = ChainPosition(chain=new_chain_id(), number=1).header


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "web1.creds"


def test_an_event_is_signed_with_the_key_and_for_its_place(path: Path) -> None:
    root = Root()
    key = write_credentials(path, root, "web1")
    node_key = NodeKey(str(path))

    assert node_key.read("web1")
    claims = verify(
        node_key.sign(SUBJECT, b"body", PLACE, now_ms()),
        SignatureKind.EVENT,
        SUBJECT,
        b"body",
        now_ms=now_ms(),
    )

    assert (claims.key, claims.details) == (key.public_key, {PLACE_DETAIL: PLACE})
    assert node_key.public_key == key.public_key
    verify_certificate(node_key.certificate, "web1", key.public_key, root.key.public_key, now_ms=now_ms())


def test_a_file_with_a_seed_alone_gives_a_key_without_a_certificate(path: Path) -> None:
    seed = new_seed()
    path.write_text(f"{seed.reveal()}\n")
    node_key = NodeKey(str(path))

    assert node_key.read("web1")
    assert (node_key.public_key, node_key.certificate) == (SigningKey(seed).public_key, "")


def test_a_node_without_a_file_signs_nothing() -> None:
    node_key = NodeKey()

    assert not node_key.read("web1")
    assert node_key.sign(SUBJECT, b"body", PLACE, now_ms()) == ""


def test_new_credentials_are_another_key_and_the_same_ones_are_not(path: Path) -> None:
    root = Root()
    write_credentials(path, root, "web1")
    node_key = NodeKey(str(path))
    node_key.read("web1")

    again = node_key.read("web1")
    key = write_credentials(path, root, "web1")

    assert not again
    assert node_key.read("web1")
    assert node_key.public_key == key.public_key


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"-----BEGIN CCM TRUST-----\nx\n"])
def test_a_file_that_cannot_be_read_leaves_the_key_as_it_was(path: Path, content: bytes | None) -> None:
    key = write_credentials(path, Root(), "web1")
    node_key = NodeKey(str(path))
    node_key.read("web1")

    path.unlink() if content is None else path.write_bytes(content)

    assert not node_key.read("web1")
    assert node_key.public_key == key.public_key


def test_a_certificate_for_another_node_is_warned_of(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_credentials(path, Root(), "db1")
    warned = {}

    for name in ("web1", "db1"):
        caplog.clear()
        with caplog.at_level("WARNING"):  # tests of ccmctl set another level
            NodeKey(str(path)).read(name)
        warned[name] = "readers will reject this node's events" in caplog.text

    assert warned == {"web1": True, "db1": False}
