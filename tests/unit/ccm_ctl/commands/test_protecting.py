"""`ccmctl data protect`, and what `ccmctl data put` says about documents of one node."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ccm_agent.model.wire import NodeRecord
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from tests.support.controller import Desk

NOTE = (
    "every node can read node/db1, because db1 has an older agent or older credentials; upgrade the agent, replace the "
    "credentials (`ccmctl node add db1`), restart it, then run `ccmctl data protect node/db1`\n"
)


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "db1.yaml"
    path.write_text("data: {password: S3CRET}\n")
    return str(path)


def announces(*, own_data: bool) -> Desk:
    """A desk at which db1 has said whether it can read its own documents."""

    async def announce(broker: MemoryBroker) -> None:
        record = msgspec.json.encode(NodeRecord(node="db1", own_data=own_data))
        await MemoryBus(broker, "db1").bucket("CCM_NODES").put("node.db1", record)

    desk = Desk()
    desk.hooks.append(announce)
    return desk


def upgrade(desk: Desk) -> None:
    desk.hooks[:] = announces(own_data=True).hooks


def test_document_of_a_node_looks_like_all_others(secret: str) -> None:
    desk = announces(own_data=True)

    put = desk.ccmctl("data", "put", "node/db1", secret)
    again = desk.ccmctl("data", "put", "node/db1", secret)
    got = desk.ccmctl("data", "get", "node/db1")
    listed = desk.ccmctl("data", "list")
    history = desk.ccmctl("data", "history", "node/db1")

    assert (put.code, put.err, put.out) == (0, "", "node/db1: revision 1\n")
    assert again.out == "node/db1: unchanged, revision 1\n"
    assert got.out == "data: {password: S3CRET}\n"
    assert [line.split()[:4] for line in listed.out.splitlines()[1:]] == [["node/db1", "1", "25", "B"]]
    assert [line.split()[:3] for line in history.out.splitlines()[1:]] == [["1", "25", "B"]]
    assert not any(b"S3CRET" in write.body for write in desk.broker.buckets["CCM_DATA"])


def test_operator_is_reported_when_every_node_can_read_a_document(secret: str) -> None:
    desk = announces(own_data=False)

    put = desk.ccmctl("data", "put", "node/db1", secret)
    left = desk.ccmctl("data", "protect")

    assert (put.code, put.err) == (0, NOTE)
    assert (left.code, left.err) == (3, NOTE)
    assert left.out == "KEY       REVISIONS  READABLE BY\nnode/db1          1  every node\n"


def test_documents_that_are_left_are_counted(secret: str) -> None:
    desk = announces(own_data=False)
    for key in ("node/db1", "node/db1/more"):
        desk.ccmctl("data", "put", key, secret)

    left = desk.ccmctl("data", "protect")

    assert left.err == (
        "every node can read 2 documents, because their nodes have older agents or older credentials; upgrade the agents, "
        "replace the credentials (`ccmctl node add`), restart them, then run `ccmctl data protect` again\n"
    )


def test_documents_are_moved_once_their_node_can_read_them(secret: str) -> None:
    desk = announces(own_data=False)
    desk.ccmctl("data", "put", "node/db1", secret)
    upgrade(desk)

    looked = desk.ccmctl("data", "protect", "--noop", "--json")
    moved = desk.ccmctl("data", "protect", "node/db1")
    rest = desk.ccmctl("data", "protect")
    got = desk.ccmctl("data", "get", "node/db1")

    assert looked.records == [
        {"record": "document", "key": "node/db1", "revisions": 1, "readers": "every node", "movable": True}
    ]
    assert (moved.code, moved.out) == (0, "KEY       REVISIONS  READABLE BY\nnode/db1          1  db1\n")
    assert (rest.code, rest.out) == (0, "no document under node/ can be read by other nodes\n")
    assert got.out == "data: {password: S3CRET}\n"
    assert not any(b"S3CRET" in write.body for write in desk.broker.buckets["CCM_DATA"])


def test_rollback_of_a_document_of_a_node_stores_its_old_text_again(secret: str, tmp_path: Path) -> None:
    desk = announces(own_data=True)
    desk.ccmctl("data", "put", "node/db1", secret)
    other = tmp_path / "other.yaml"
    other.write_text("data: {password: other}\n")
    desk.ccmctl("data", "put", "node/db1", str(other))

    compared = desk.ccmctl("data", "diff", "node/db1")
    back = desk.ccmctl("data", "rollback", "node/db1")

    assert "-data: {password: S3CRET}\n+data: {password: other}\n" in compared.out
    assert back.code == 0
    assert desk.ccmctl("data", "get", "node/db1").out == "data: {password: S3CRET}\n"
    assert not any(b"S3CRET" in write.body for write in desk.broker.buckets["CCM_DATA"])


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ("common", "common: not a document of a single node: its key does not start with node/NAME"),
        ("node/web9", "node/web9: there is no such document; see `ccmctl data list node/`"),
    ],
)
def test_key_that_cannot_be_protected_is_refused(key: str, error: str) -> None:
    said = Desk().ccmctl("data", "protect", key)

    assert (said.code, said.err) == (1, f"ccmctl: {error}\n")


def test_list_shows_which_nodes_can_read_each_document(secret: str, tmp_path: Path) -> None:
    (tmp_path / "db2.yaml").write_text("data: {}\n")
    desk = announces(own_data=False)
    desk.ccmctl("data", "put", "node/db1", secret)
    desk.ccmctl("data", "put", "node/db2", str(tmp_path / "db2.yaml"))
    desk.ccmctl("data", "put", "common", str(tmp_path / "db2.yaml"))

    said = desk.ccmctl("data", "list")
    listed = desk.ccmctl("data", "list", "--json").records
    other = desk.ccmctl("data", "list", "node/db2")

    assert [line.split()[0] + " " + " ".join(line.split()[7:]) for line in said.out.splitlines()[1:]] == [
        "common every node",
        "node/db1 every node",
        "node/db2 db2",
    ]
    assert said.err == (
        "every node can read 1 document meant for single nodes, or earlier revisions; `ccmctl data protect` moves them\n"
    )
    assert {one["key"]: (one["readers"], one.get("exposed")) for one in listed} == {
        "common": ("every node", None),
        "node/db1": ("every node", True),
        "node/db2": ("db2", None),
    }
    assert other.err == ""


def test_list_ends_with_the_brokers_answer_when_it_may_not_look_at_a_document(secret: str) -> None:
    desk = announces(own_data=False)
    desk.ccmctl("data", "put", "node/db1", secret)
    desk.broker.deny("op", "$KV.CCM_DATA.node/db1")

    said = desk.ccmctl("data", "list")

    assert (
        said.code,
        said.err.startswith("ccmctl: $KV.CCM_DATA.node/db1: the broker does not allow op"),
    ) == (1, True)
