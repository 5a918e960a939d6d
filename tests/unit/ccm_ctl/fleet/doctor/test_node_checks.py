"""What `ccmctl doctor` says about nodes, by what they say about themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ccm_agent.model.wire import DUPLICATE_IDENTITY, NodeRecord, Presence
from ccm_ctl.fleet.doctor.node_checks import IDS, judge_nodes
from ccm_ctl.fleet.doctor.results import CheckResult
from ccm_ctl.fleet.nodes.nodes import Node
from tests.support.doctor import states, the

VERSION = "1.2.3"


def node(name: str, *, clock_off_s: float | None = 0.2, **fields: Any) -> Node:
    """A node that is present and has nothing wrong with it, but for these fields of its record."""
    values = {"version": VERSION, "signatures": True, "policy": True} | fields
    record = NodeRecord(node=name, **values)
    return Node(name=name, record=record, presence=Presence(node=name), clock_off_s=clock_off_s)


def judge(*nodes: Node) -> Sequence[CheckResult]:
    return judge_nodes([node("ok1"), *nodes], VERSION)


def test_healthy_nodes_pass_every_check() -> None:
    assert states(judge()) == dict.fromkeys(IDS, "ok")


def test_fleet_without_nodes_passes() -> None:
    assert states(judge_nodes([], VERSION)) == dict.fromkeys(IDS, "ok")


@pytest.mark.parametrize(
    ("fields", "id_", "state"),
    [
        pytest.param({"signatures": False}, "nodes.signatures", "problem", id="unsigned operation"),
        pytest.param({"plans_only": "too old"}, "nodes.outdated", "problem", id="an old signers list"),
        pytest.param({"unsigned": ("data",)}, "nodes.unsigned", "warning", id="unsigned data"),
        pytest.param({"version": "1.2.2"}, "nodes.version", "warning", id="older agent"),
        pytest.param({"conflict": DUPLICATE_IDENTITY}, "nodes.identity", "problem", id="twins"),
        pytest.param({"conflict": "its policy cannot be used"}, "nodes.conflict", "problem", id="conflict"),
        pytest.param({"clock_off_s": -61.0}, "nodes.clock", "warning", id="clock"),
        pytest.param({"clock_off_s": 301.0}, "nodes.clock", "problem", id="clock beyond what nodes accept"),
        pytest.param({"policy": False}, "nodes.policy", "warning", id="no policy"),
    ],
)
def test_node_with_one_fault_fails_one_check(fields: dict[str, Any], id_: str, state: str) -> None:
    results = judge(node("web1", **fields))

    assert states(results) == dict.fromkeys(IDS, "ok") | {id_: state}
    result = the(results, id_)
    assert (result.names, result.count) == (("web1",), 1)
    assert "1 of 2 nodes (web1)" in result.sentence


def test_agent_that_does_not_report_its_policy_is_not_counted() -> None:
    assert states(judge(node("old1", policy=None)))["nodes.policy"] == "ok"


@pytest.mark.parametrize(
    ("versions", "sentence"),
    [
        (["1.2.2", "0.9"], "Agents of older versions than this ccmctl (1.2.3) on 2 of 3 nodes (n0, n1): 1.2.2: 1, 0.9: 1."),
        (["1.10.0"], "Agents of other versions than this ccmctl (1.2.3) on 1 of 2 nodes (n0): 1.10.0: 1."),
    ],
)  # fmt: skip
def test_versions_are_counted(versions: list[str], sentence: str) -> None:
    nodes = [node(f"n{number}", version=version) for number, version in enumerate(versions)]

    assert the(judge(*nodes), "nodes.version").sentence == sentence


def test_record_that_cannot_be_read_is_a_problem_and_an_expected_node_is_not() -> None:
    broken = Node(name="web1", presence=Presence(node="web1"))
    expected = Node(name="web2", assigned={"role": "web"})

    result = the(judge(broken, expected), "nodes.records")

    assert (result.state, result.names) == ("problem", ("web1",))


def test_hostile_record_makes_no_long_sentence() -> None:
    nodes = [
        node(f"n{number}", version="9" * 1_000_000 + str(number), conflict="\x1b[2J" * 100_000)
        for number in range(20)
    ]

    results = judge(*nodes)

    assert all(len(one.sentence) < 400 for one in results)
    assert not any("\x1b" in one.sentence for one in results)
