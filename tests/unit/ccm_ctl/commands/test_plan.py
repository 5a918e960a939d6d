"""What would change, before it does: `ccmctl plan`, `--diff`, and the answer `d`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.resource_diff import FileDiff, PropertyChange, ResourceDiff
from tests.support.controller import Desk, FakeNode, event, planned_change

MANIFEST = "ccm:\n  resources:\n    - exec: [{'true': {}}]\n"


@pytest.fixture
def motd(tmp_path: Path) -> str:
    path = tmp_path / "motd.yaml"
    path.write_text(MANIFEST)
    return str(path)


def would_change(old: str, number: int = 2, **fields: object) -> TransactionEvent:
    diff = ResourceDiff(
        properties=[PropertyChange(property="mode", before="0600", after="0644")],
        files=[FileDiff(path="/etc/motd", text=f"@@ -1 +1 @@\n-{old}\n+new\n", added=1, removed=1)],
    )
    return event("/etc/motd", number, **{"noop": True, "diff": diff, **fields})


def desk_of_three() -> Desk:
    return Desk(
        FakeNode("web1", {"role": "web"}, [would_change("old")]),
        FakeNode("web2", {"role": "web"}, [would_change("old")]),
        FakeNode("db1", {"role": "db"}, [would_change("other")]),
    )


def test_a_plan_asks_for_diffs_and_nodes_with_equal_ones_share_a_block(motd: str) -> None:
    desk = desk_of_three()

    said = desk.ccmctl("plan", motd, "--all")

    assert [node.heard[0]["protocol"] for node in desk.nodes] == [
        "io.choria.ccm.v1.manifest.plan.request"
    ] * 3
    assert [node.heard[0]["diff"] for node in desk.nodes] == [True] * 3
    assert (said.code, said.screen) == (
        0,
        "run RUN: plan motd on 3 nodes\n"
        "db1: file#/etc/motd would change\n"
        "  mode: 0600 → 0644\n"
        "  content: 1 line added, 1 removed\n"
        "  @@ -1 +1 @@\n"
        "  -other\n"
        "  +new\n"
        "\n"
        "web[1-2]: file#/etc/motd would change\n"
        "  mode: 0600 → 0644\n"
        "  content: 1 line added, 1 removed\n"
        "  @@ -1 +1 @@\n"
        "  -old\n"
        "  +new\n"
        "\n"
        "NODES          STATE         WHAT            TIME\n"
        "db1, web[1-2]  would change  file#/etc/motd  12ms\n"
        "\n"
        "plan motd: 3 nodes: 3 would change in T (run RUN)\n",
    )


def test_an_apply_without_diff_asks_for_none_and_one_with_it_does(motd: str) -> None:
    desk = Desk(FakeNode("web1", {}, [would_change("old", noop=False)]))

    desk.ccmctl("apply", motd, "--all", "--yes")
    said = desk.ccmctl("apply", motd, "--all", "--yes", "--diff")

    asked = {one["run"]: one.get("diff", False) for one in desk.nodes[0].heard}
    assert list(asked.values()) == [False, True]
    assert "web1: file#/etc/motd changed\n  mode: 0600 → 0644\n" in said.screen


def test_a_single_resource_may_be_asked_for_its_diff(motd: str) -> None:
    desk = Desk(FakeNode("web1", {}, [would_change("old", noop=False)]))

    said = desk.ccmctl("ensure", "package", "nginx", "present", "--all", "--yes", "--diff")

    assert desk.nodes[0].heard[0]["diff"] is True
    assert "web1: file#/etc/motd changed\n" in said.screen


def test_json_carries_the_diffs(motd: str) -> None:
    said = desk_of_three().ccmctl("plan", motd, "-t", "role=db", "--json")

    (told,) = [one["event"] for one in said.records if one["record"] == "event" and "diff" in one["event"]]
    assert told["diff"]["properties"] == [{"property": "mode", "before": "0600", "after": "0644"}]
    assert told["diff"]["files"][0]["text"] == "@@ -1 +1 @@\n-other\n+new\n"


@pytest.mark.parametrize(
    ("typed", "actions"), [("d\ny\n", ["plan", "apply"]), ("d\nd\nn\n", ["plan", "plan"])]
)
def test_d_at_the_prompt_shows_the_plan_and_asks_again(motd: str, typed: str, actions: list[str]) -> None:
    desk = Desk(FakeNode("web1", {}, [would_change("old")]))

    said = desk.ccmctl("apply", motd, "--all", typed=typed, environ={"NO_COLOR": "1"})

    asked = {one["run"]: one["protocol"].split(".")[-2] for one in desk.nodes[0].heard}
    assert list(asked.values()) == actions
    assert said.err.count("apply motd to 1 node? [y/N/d = show diff] ") == typed.count("\n")
    assert said.screen.count("web1: file#/etc/motd would change") >= 1


def test_a_node_that_sends_no_diffs_is_named(motd: str) -> None:
    desk = Desk(
        FakeNode("web1", {}, [would_change("old")]), FakeNode("web2", {}, [event("/etc/motd", 2, noop=True)])
    )

    said = desk.ccmctl("plan", motd, "--all")

    assert "no diffs from web2: the agents are too old\n" in said.err + said.screen


def test_escape_sequences_in_a_diff_are_shown_as_text(motd: str) -> None:
    evil = ResourceDiff(files=[FileDiff(path="/etc/motd", text="+\x1b[2J\x9b1m\x07\n", added=1)])
    desk = Desk(FakeNode("web1", {}, [event("/etc/motd", 2, noop=True, diff=evil)]))

    said = desk.ccmctl("plan", motd, "--all")

    assert "\x1b" not in said.screen
    assert "+\\x1b[2J\\x9b1m\\x07\n" in said.screen


def test_a_changed_file_is_not_called_created(motd: str) -> None:
    said = Desk(FakeNode("web1", {}, [planned_change("/etc/motd", 2)])).ccmctl(
        "apply", motd, "--all", "--noop"
    )

    assert "file#/etc/motd: Would have changed content" in said.screen
