"""`ccmctl data`: documents put, got and listed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ccm_agent.model.records.stamped import Stamped
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from tests.support.controller import BEFORE, NOW, Desk, FakeNode


@pytest.fixture
def common(tmp_path: Path) -> Path:
    path = tmp_path / "common.yaml"
    path.write_text("data:\n  a: 1\n  b: 2\n")
    return path


def test_a_document_is_stamped_and_the_changes_is_shown(common: Path) -> None:
    desk = Desk()
    first = desk.ccmctl("data", "put", "common", str(common))
    same = desk.ccmctl("data", "put", "common", str(common))
    common.write_text("data:\n  a: 1\n  b: 3\n")
    second = desk.ccmctl("data", "put", "common", str(common))

    assert [one.out for one in (first, same, second)] == [
        "common: revision 1\n",
        "common: unchanged, revision 1\n",
        "--- common 1\n+++ common 2\n@@ -1,3 +1,3 @@\n data:\n   a: 1\n-  b: 2\n+  b: 3\ncommon: revision 2\n",
    ]
    stored = msgspec.json.decode(desk.broker.buckets["CCM_DATA"][-1].body, type=Stamped)
    assert stored == Stamped(
        bucket="CCM_DATA",
        key="common",
        number=BEFORE + 2,
        count=2,
        body="data:\n  a: 1\n  b: 3\n",
        written_by="op",
        time=NOW,
    )
    assert desk.ccmctl("data", "get", "common").out == "data:\n  a: 1\n  b: 3\n"


def test_a_document_changed_by_another_operator_is_not_written_over(common: Path) -> None:
    desk = Desk()
    desk.ccmctl("data", "put", "common", str(common))

    said = desk.ccmctl("data", "put", "common", str(common), "--if-revision", "7")

    assert (said.code, said.err) == (1, "ccmctl: common: the newest revision is 1, not 7; check it first\n")


def test_plain_documents_of_choria_are_read(common: Path) -> None:
    async def plain(broker: MemoryBroker) -> None:
        await MemoryBus(broker, "nats").bucket("CCM_DATA").put("role/web", b"data: {x: 1}\n")

    desk = Desk()
    desk.hooks.append(plain)

    assert desk.ccmctl("data", "get", "role/web").out == "data: {x: 1}\n"
    assert desk.ccmctl("data", "list").screen.splitlines()[1].split()[:5] == [
        "role/web",
        "2",
        "13",
        "B",
        "(plain)",
    ]


def test_documents_are_listed(common: Path) -> None:
    desk = Desk()
    for key in ("common", "role/web", "role/db"):
        desk.ccmctl("data", "put", key, str(common))

    assert desk.ccmctl("data", "list").out == (
        "KEY       REVISION  SIZE  BY  WHEN      READABLE BY\n"
        "common           1  20 B  op  just now  every node\n"
        "role/db          3  20 B  op  just now  every node\n"
        "role/web         2  20 B  op  just now  every node\n"
    )
    assert [one["key"] for one in desk.ccmctl("data", "list", "role/", "--json").records] == [
        "role/db",
        "role/web",
    ]
    assert Desk().ccmctl("data", "list").out == "no data yet; `ccmctl data put common FILE` stores some\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n", "FILE: not Hiera data: its top-level value is not a mapping"),
        ("a: 1\na: 2\n", "FILE:2:1: "),
        ("a:\n\tb: 1\n", "FILE:2:1: "),
    ],
)
def test_invalid_hiera_data_is_not_stored(common: Path, text: str, said: str) -> None:
    common.write_text(text)
    desk = Desk()

    done = desk.ccmctl("data", "put", "common", str(common))

    assert done.code == 1
    assert done.err.startswith(f"ccmctl: {said.replace('FILE', str(common))}")
    assert desk.broker.buckets.get("CCM_DATA", []) == []


def test_document_that_affects_no_node_is_reported(tmp_path: Path) -> None:
    desk, path = Desk(FakeNode("web1", {})), tmp_path / "plain.yaml"
    path.write_text("greeting: hi\n")

    said = desk.ccmctl("data", "put", "plain", str(path))
    looked = desk.ccmctl("data", "explain", "greeting", "-n", "web1", "--data", "kv://CCM_DATA/plain")
    path.write_text("{}\n")
    meant = desk.ccmctl("data", "put", "plain", str(path))

    assert (said.code, said.err) == (
        0,
        "plain: has neither `data` nor `overrides`, so no node reads a value from it; "
        "keys such as `greeting` must be under `data:`\n",
    )
    assert (looked.code, looked.out) == (
        1,
        "greeting is not set for web1: no matching layer defines it.\n"
        "kv://CCM_DATA/plain: has neither `data` nor `overrides`, so it provides no data\n",
    )
    assert (meant.code, meant.err) == (0, "")


def test_a_missing_key_lists_the_existing_ones() -> None:
    desk = Desk()

    assert [desk.ccmctl("data", "get", key).err for key in ("nope", "a b")] == [
        "ccmctl: nope: there is no such document; see `ccmctl data list`\n",
        "ccmctl: 'a b': not a valid key of a bucket: use letters, digits, `-`, `_`, `=`, `/` and `.`, "
        "without a leading, trailing or double dot\n",
    ]
