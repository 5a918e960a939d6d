"""What `ccmctl data` refuses to store: documents that would break their own rules on a node."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.subjects import assignment_key
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import Assignment
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from tests.support.controller import Desk, FakeNode

LAYERED = """\
hierarchy:
  order:
    - env:${ lookup('facts.env') }
    - role:${ lookup('facts.role') }
    - node:${ lookup('facts.name') }
  merge: deep
data:
  # @validate isInt(value)
  port: 80
  # @require
  owner: ""
overrides:
  role:web:
    owner: web-team
  role:db:
    owner: db-team
  env:prod:
    port: PORT
  node:db1:
    owner: OWNER
"""


def layered(port: str = "443", owner: str = "dba") -> str:
    return LAYERED.replace("PORT", port).replace("OWNER", owner)


def a_fleet() -> Desk:
    return Desk(
        FakeNode("web1", {"role": "web", "env": "prod", "name": "web1"}),
        FakeNode("web2", {"role": "web", "env": "prod", "name": "web2"}, is_present=False),
        FakeNode("web3", {"role": "web", "name": "web3"}),
        FakeNode("db1", {"role": "db", "name": "db1"}),
    )


@pytest.fixture
def document(tmp_path: Path) -> Path:
    return tmp_path / "common.yaml"


def test_data_that_no_node_refuses_is_stored(document: Path) -> None:
    document.write_text(layered())

    done = a_fleet().ccmctl("data", "put", "common", str(document))

    assert (done.code, done.err, done.out) == (0, "", "common: revision 1\n")


def test_a_rule_that_an_override_breaks_names_key_rule_line_nodes_and_layer(document: Path) -> None:
    document.write_text(layered(port="https", owner="null"))
    desk = a_fleet()

    done = desk.ccmctl("data", "put", "common", str(document))

    assert (done.code, done.out) == (1, "")
    assert done.err.replace(str(document), "FILE") == (
        "ccmctl: common: the data would be refused by 3 nodes of 4 (no assignment reads it, so it was checked alone)\n"
        "  FILE:10: the key `owner` is required but has no value: set it in `data` or an override; on db1 (role:db, node:db1)\n"
        "  FILE:8: the value of `port` does not satisfy `isInt(value)`; on web[1-2] (env:prod, role:web)\n"
        "nothing is stored; fix the data, or pass --force to store it, although those nodes will fail\n"
    )
    assert not desk.broker.buckets.get("CCM_DATA")


def test_force_stores_a_document_and_reports_the_broken_rules(document: Path) -> None:
    document.write_text(layered(port="https"))

    done = a_fleet().ccmctl("data", "put", "common", str(document), "--force")

    assert (done.code, done.out) == (0, "common: revision 1\n")
    assert "on web[1-2] (env:prod, role:web)\nstored anyway because of --force\n" in done.err


def test_a_broken_document_is_refused_with_its_line_even_by_force(document: Path) -> None:
    document.write_text("data:\n  a: 1\n  b: [1\n")
    desk = a_fleet()

    done = desk.ccmctl("data", "put", "common", str(document), "--force")

    assert done.code == 1
    assert done.err.startswith(f"ccmctl: {document}:3")
    assert not desk.broker.buckets.get("CCM_DATA")


def test_an_expression_that_fails_on_a_node_is_named_with_its_line(document: Path) -> None:
    document.write_text("data:\n  a: 1\n  half: ${ Facts.role / 2 }\n")

    done = a_fleet().ccmctl("data", "put", "common", str(document))

    assert done.code == 1
    assert f"{document}:3" in done.err
    assert "on db1, web[1-3]" in done.err


@pytest.mark.parametrize(("key", "code"), [("node/db1", 0), ("node/web1", 1), ("common", 1)])
def test_document_of_one_node_is_tried_on_that_node_alone(document: Path, key: str, code: int) -> None:
    document.write_text(layered(port="https"))

    assert a_fleet().ccmctl("data", "put", key, str(document)).code == code


def test_without_nodes_no_rule_can_be_broken(document: Path) -> None:
    document.write_text(layered(port="https"))

    assert Desk().ccmctl("data", "put", "common", str(document)).code == 0


async def assigned(broker: MemoryBroker) -> None:
    """An assignment for the web nodes reads common, and role/web over it."""
    key = assignment_key("fact.role.web", "base")
    body = Assignment(
        name="base", scope="fact.role.web", bundle=Bundle(digest="0" * 64, size_bytes=1),
        data=["kv://CCM_DATA/common", "kv://CCM_DATA/role/web"],
    )  # fmt: skip
    stamped = Stamped(bucket="CCM_ASSIGNMENTS", key=key, number=1, body=body)
    bus = MemoryBus(broker, "other")
    await bus.bucket("CCM_ASSIGNMENTS").put(key, msgspec.json.encode(stamped))
    if not await bus.bucket("CCM_DATA").get("role/web"):
        await bus.bucket("CCM_DATA").put("role/web", b"data: {owner: web-team}\n")


def test_documents_of_one_assignment_are_checked_together_on_its_nodes(document: Path) -> None:
    desk = a_fleet()
    desk.hooks.append(assigned)
    document.write_text("data:\n  # @require\n  owner:\n  # @require\n  port:\n")

    refused = desk.ccmctl("data", "put", "common", str(document))
    document.write_text("data:\n  # @require\n  owner:\n")
    stored = desk.ccmctl("data", "put", "common", str(document))

    assert refused.err.splitlines()[:2] == [
        "ccmctl: common: the data would be refused by 3 nodes of 3",
        f"  {document}:4: the key `port` is required but has no value: set it in `data` or an override; "
        "on web[1-3], by the assignment base",
    ]
    follows = "the assignment base follows it: 3 nodes will apply it again: web[1-3]\n"
    assert (stored.code, stored.err) == (0, follows)


def test_a_rollback_to_invalid_data_is_refused(document: Path) -> None:
    desk = Desk()
    document.write_text("data:\n  # @require\n  owner:\n")
    desk.ccmctl("data", "put", "common", str(document))
    document.write_text("data:\n  owner: me\n")
    desk.ccmctl("data", "put", "common", str(document))
    desk.nodes = [FakeNode("web1")]

    refused = desk.ccmctl("data", "rollback", "common")
    forced = desk.ccmctl("data", "rollback", "common", "--force")

    assert (refused.code, "common 1:2: the key `owner` is required" in refused.err) == (1, True)
    assert forced.code == 0
