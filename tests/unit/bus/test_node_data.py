"""Keys and index entries of documents that one node alone may read."""

from __future__ import annotations

import pytest

from ccm_agent.bus.access.credentials import forbids_publishing, new_authority, user_credentials
from ccm_agent.bus.access.permissions import node_permissions
from ccm_agent.bus.node_data import TOO_OLD_TEXT, slot_key
from ccm_agent.bus.subjects import owner_of, subject_matches
from ccm_agent.hiera.resolve import resolve_document
from ccm_agent.model.errors import CcmError

GET = "$JS.API.DIRECT.GET.KV_CCM_NODE_DATA.$KV.CCM_NODE_DATA"


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        ("node/db1", "db1"),
        ("node/db1.example.net", "db1.example.net"),
        ("node/db1/secrets", "db1"),
        ("node/all", ""),
        ("node/DB1", ""),
        ("node/", ""),
        ("node", ""),
        ("nodes/db1", ""),
        ("role/node/db1", ""),
        ("node.db1", ""),
    ],
)
def test_owner_of_a_document_is_the_node_that_its_key_names(key: str, owner: str) -> None:
    assert owner_of(key) == owner


@pytest.mark.parametrize(
    ("node", "key", "is_allowed"),
    [
        ("db1", "node/db1", True),
        ("db1", "node/db1/secrets", True),
        ("db1", "node/db11", False),
        ("db1", "node/db1.example.net", False),
        ("db1.example.net", "node/db1.example.net", True),
        ("db1.example.net", "node/db1", False),
        ("example.net", "node/db1.example.net", False),
        ("a_b", "node/a-b", False),
    ],
)
def test_permission_covers_the_documents_of_one_node(node: str, key: str, is_allowed: bool) -> None:
    subject = f"{GET}.{slot_key(key, 3)}"

    allowed = any(subject_matches(pattern, subject) for pattern in node_permissions(node).publish)

    assert allowed is is_allowed


def test_agent_without_support_for_index_entries_does_not_read_them_as_documents() -> None:
    with pytest.raises(
        CcmError, match="this agent is too old to read documents that are stored for one node"
    ):
        resolve_document(TOO_OLD_TEXT.encode(), {}, "kv://CCM_DATA/node/db1")


@pytest.mark.parametrize(
    ("subject", "is_forbidden"),
    [(f"{GET}.{slot_key('node/db1', 0)}", False), (f"{GET}.{slot_key('node/web1', 0)}", True)],
)
def test_credentials_tell_which_messages_the_broker_refuses(subject: str, is_forbidden: bool) -> None:
    allowed = node_permissions("db1")
    made = user_credentials(new_authority().of(allowed.account), "db1", allowed)

    assert forbids_publishing(made.text.reveal(), subject) is is_forbidden


@pytest.mark.parametrize(
    "text", ["", "-----BEGIN NATS USER JWT-----\na.b.c\n------END NATS USER JWT------\n"]
)
def test_credentials_that_say_nothing_forbid_nothing(text: str) -> None:
    assert not forbids_publishing(text, "anything")
