"""Which assignment counts for a node, and what is none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ccm_agent.bus.subjects import assignment_key, format_scope
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import Assignment, NodeRecord
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.assignments.assignments import (
    Assignments,
    Standing,
    parse_scope,
    read_assignments,
)
from ccm_ctl.fleet.nodes.nodes import Node
from tests.support.controller import fleet_on

BUNDLE = Bundle(digest="d", size_bytes=1)


def standing(scope: str, written: int, name: str = "web", **fields: Any) -> Standing:
    assignment = Assignment(name=name, scope=scope, bundle=BUNDLE, **fields)
    return Standing(key=assignment_key(scope, name), revision=written, written=written, assignment=assignment)


def node(name: str = "web1", **facts: Any) -> Node:
    return Node(name=name, record=NodeRecord(node=name, facts=facts))


def counting(one: Node, *standing: Standing) -> dict[str, str]:
    return {name: found.assignment.scope for name, found in Assignments(standing).of_node(one).items()}


def test_the_nodes_own_assignment_wins_regardless_of_age() -> None:
    everybodys, facts, own = standing("all", 3), standing("fact.role.web", 2), standing("node.web1", 1)

    assert counting(node(role="web"), everybodys, facts, own) == {"web": "node.web1"}
    assert counting(node(role="web"), everybodys, facts) == {"web": "fact.role.web"}
    assert counting(node(role="db"), everybodys, facts, standing("node.db1", 4)) == {"web": "all"}


def test_of_two_facts_the_one_written_last_counts() -> None:
    older, newer = standing("fact.role.web", 1), standing("fact.env.prod", 2)

    assert counting(node(role="web", env="prod"), older, newer) == {"web": "fact.env.prod"}


def test_one_that_does_not_mean_the_node_does_not_count() -> None:
    narrow = standing("fact.role.web", 2, targets=["role=web,env=test", "node=web9"])
    where = standing("node.web1", 3, where="Facts.env == 'test'")
    broken = standing("node.web1", 4, name="broken", targets=["=("])

    assert counting(node(role="web", env="prod"), standing("all", 1), narrow, where, broken) == {"web": "all"}
    assert counting(node(role="web", env="test"), standing("all", 1), narrow) == {"web": "fact.role.web"}


def test_a_fact_that_is_assigned_counts_before_the_node_has_taken_it() -> None:
    moved = Node(name="web1", record=NodeRecord(node="web1", facts={"role": "db"}), assigned={"role": "web"})

    assert counting(moved, standing("fact.role.web", 1), standing("fact.role.db", 2, name="db")) == {
        "web": "fact.role.web"
    }


@pytest.mark.parametrize(
    ("scope", "words"),
    [("all", "all"), ("node.web1.example", "node=web1.example"), ("fact.site=2Edc.a=20b", "site.dc=a b")],
)
def test_scopes_are_written_as_people_write_them(scope: str, words: str) -> None:
    assert (format_scope(scope), parse_scope(words)) == (words, scope)


async def test_a_document_of_another_key_is_not_an_assignment() -> None:
    bus = MemoryBus(MemoryBroker(), "op")
    bucket = bus.bucket("CCM_ASSIGNMENTS")
    body = msgspec.to_builtins(Assignment(name="web", scope="all", bundle=BUNDLE))

    async def put(key: str, body: Any, stamp: str = "") -> None:
        stamped = Stamped(bucket="CCM_ASSIGNMENTS", key=stamp or key, number=1, body=body)
        await bucket.put(key, msgspec.json.encode(stamped))

    await put("all.web", body)
    await put("all.other", body)
    await put("node.web1.web", body)
    await put("all.x", {"name": "x"})
    await put("x", body)
    await bucket.put("all.plain", b"hello")

    found = await read_assignments(fleet_on(bus))

    assert [one.key for one in found.standing] == ["all.web"]
    assert found.unreadable == ["all.other", "all.plain", "all.x", "node.web1.web", "x"]


async def test_a_document_copied_from_another_key_is_not_an_assignment() -> None:
    bus = MemoryBus(MemoryBroker(), "op")
    body = msgspec.to_builtins(Assignment(name="web", scope="all", bundle=BUNDLE))
    stamped = Stamped(bucket="CCM_ASSIGNMENTS", key="all.old", number=9, body=body)
    await bus.bucket("CCM_ASSIGNMENTS").put("all.web", msgspec.json.encode(stamped))

    found = await read_assignments(fleet_on(bus))

    assert (found.standing, found.unreadable) == ([], ["all.web"])
