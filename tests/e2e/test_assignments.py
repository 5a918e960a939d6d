"""Five agents that are assigned what they should be: those that are there, those that are off, those that come to be meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.fleet import Done, Fleet, a_file, a_gate, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

NODES = ("web1", "web2", "web3", "web4", "web5")
WORD = "{{ lookup('data.word') }}"
COMMON = "kv://CCM_DATA/common"


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet")) as built:
        built.add(*NODES, interval="1h", change_pause="0s")
        assert built.ctl("facts", "set", *NODES, "role=web").code == 0
        yield built


def assign(
    fleet: Fleet, name: str, *resources: Any, targets: str = "role=web", more: tuple[str, ...] = ()
) -> Done:
    path = fleet.write(f"{name}.yaml", manifest(*resources))
    done = fleet.ctl("assign", name, path, "--targets", targets, "--yes", "--json", *more)
    assert done.code == 0, done.err
    return done


def status(fleet: Fleet, name: str, *, wait: bool = False) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit code of `assignment status`, and its record for each node."""
    done = fleet.ctl("assignment", "status", name, "--json", *(("--wait", "60s") if wait else ()))
    return done.code, {record["node"]: record for record in done.named("standing")}


def states(fleet: Fleet, name: str) -> dict[str, str]:
    """How each node stands, once nobody is on the way any more."""
    return {node: record["state"] for node, record in status(fleet, name, wait=True)[1].items()}


def content(fleet: Fleet, node: str, name: str) -> str | None:
    path = fleet.agents[node].files / name
    return path.read_text() if path.exists() else None


def everywhere(fleet: Fleet, name: str) -> set[str | None]:
    return {content(fleet, node, name) for node in NODES}


def test_nodes_that_are_down_get_it_when_they_come_back_and_the_status_is_true_at_every_moment(
    five: Fleet,
) -> None:
    away = ("web4", "web5")
    for node in away:
        five.agents[node].stop()
    before = five.ctl("assignment", "status", "motd")

    [record] = assign(five, "motd", a_file("motd", "hello")).named("assignment")
    code, down = status(five, "motd", wait=True)

    assert (before.code, before.err) == (
        1,
        "ccmctl: motd: there is no such assignment; see `ccmctl assignment list`\n",
    )
    assert (code, {node: one["state"] for node, one in down.items()}) == (
        3,
        {node: "offline" if node in away else "converged" for node in NODES},
    )
    assert all(down[node]["reason"].startswith("offline since 20") for node in away)
    assert {one["digest"] for node, one in down.items() if node not in away} == {record["digest"]}
    assert [content(five, node, "motd") for node in NODES] == ["hello"] * 3 + [None] * 2

    for node in away:
        five.agents[node].start()
    five.wait_for(lambda: true_status(five, record["digest"]) == 0, "everybody to have converged")

    assert everywhere(five, "motd") == {"hello"}
    [listed] = five.ctl("assignments", "--json").named("assignment")
    assert (listed["name"], listed["nodes"], listed["converged"]) == ("motd", 5, 5)
    assert five.ctl("unassign", "motd").code == 0


def true_status(fleet: Fleet, digest: str) -> int:
    """The exit code; whoever is said to have converged has."""
    code, found = status(fleet, "motd")
    assert {one["state"] for one in found.values()} <= {"offline", "waiting", "converged"}
    converged = [node for node, one in found.items() if one["state"] == "converged"]
    assert [found[node]["digest"] for node in converged] == [digest] * len(converged)
    assert [content(fleet, node, "motd") for node in converged] == ["hello"] * len(converged)
    assert (code == 0) == (len(converged) == len(NODES))
    return code


def test_a_node_that_gets_the_role_later_converges(five: Fleet) -> None:
    five.ctl("facts", "set", "web1", "tier=gold")
    assign(five, "gold", a_file("gold"), targets="tier=gold")
    first = states(five, "gold")

    five.ctl("facts", "set", "web2", "tier=gold")

    assert first == {"web1": "converged"}
    assert states(five, "gold") == {"web1": "converged", "web2": "converged"}
    assert [content(five, node, "gold") for node in NODES] == ["x", "x", None, None, None]
    assert five.ctl("unassign", "gold").code == 0


def test_a_newer_assignment_takes_the_place_of_an_older_one_that_waits(five: Fleet) -> None:
    node = five.agents["web1"]
    assign(five, "slow", a_file("begun"), a_gate(), targets="node=web1")
    five.wait_for((node.files / "begun").exists, "the first to be in hand")

    assign(five, "slow", a_file("second"), targets="node=web1")
    waits = status(five, "slow")[1]["web1"]
    assign(five, "slow", a_file("third"), targets="node=web1")
    five.open_gates("web1")

    assert (waits["state"], waits["wanted"]) == ("waiting", 2)
    assert states(five, "slow") == {"web1": "converged"}
    assert status(five, "slow")[1]["web1"]["revision"] == 3
    assert (content(five, "web1", "second"), content(five, "web1", "third")) == (None, "x")
    assert five.ctl("unassign", "slow").code == 0


def test_two_that_want_the_same_file_are_refused_and_both_are_named(five: Fleet) -> None:
    assign(five, "ours", a_file("shared", "ours"))
    assert set(states(five, "ours").values()) == {"converged"}

    assign(five, "theirs", a_file("shared", "theirs"), targets="node=web2")
    code, theirs = status(five, "theirs", wait=True)
    ours = status(five, "ours", wait=True)[1]

    shared = five.agents["web2"].files / "shared"
    assert (code, theirs["web2"]["state"], theirs["web2"]["code"]) == (2, "refused", "assignment.conflict")
    for one in (theirs["web2"], ours["web2"]):
        assert "ours and theirs" in one["reason"]
        assert f"file#{shared}" in one["reason"]
    assert {node: one["state"] for node, one in ours.items()} == {
        node: "refused" if node == "web2" else "converged" for node in NODES
    }
    assert everywhere(five, "shared") == {"ours"}

    assert five.ctl("unassign", "theirs").code == 0
    five.wait_for(lambda: status(five, "ours")[0] == 0, "web2 to converge again")
    assert five.ctl("unassign", "ours").code == 0


def test_a_rollback_restores_manifest_and_data(five: Fleet) -> None:
    for word in ("one", "two"):
        data = five.write("common.yaml", f"data: {{word: {word}}}")
        assert five.ctl("data", "put", "common", data).code == 0
        assign(five, "web", a_file("word", f"{word} says {WORD}"), more=("--data", COMMON))
        assert set(states(five, "web").values()) == {"converged"}
        assert everywhere(five, "word") == {f"{word} says {word}"}

    done = five.ctl("rollback", "web", "--yes", "--json")

    [record] = done.named("assignment")
    assert (done.code, record["revision"], record["rolled_back_from"]) == (0, 3, 2)
    code, found = status(five, "web", wait=True)
    assert (code, {one["digest"] for one in found.values()}) == (0, {record["digest"]})
    assert {one["data_revision"] for one in found.values()} == {record["data_revision"]}
    assert everywhere(five, "word") == {"one says one"}
    assert five.ctl("unassign", "web").code == 0


def test_no_node_counts_as_converged_before_it_has_the_newest_data_that_it_follows(five: Fleet) -> None:
    def put(word: str) -> None:
        assert (
            five.ctl("data", "put", "common", five.write("common.yaml", f"data: {{word: {word}}}")).code == 0
        )

    put("one")
    assign(five, "follows", a_file("followed", WORD), more=("--data", COMMON, "--follow-data"))
    assert set(states(five, "follows").values()) == {"converged"}
    # present for the time being, and it hears of nothing
    five.agents["web1"].suspend()
    try:
        put("two")
        five.wait_for(
            lambda: sum(one["state"] == "converged" for one in status(five, "follows")[1].values()) == 4,
            "all others to have converged",
        )
        code, found = status(five, "follows")
        assert (code, found["web1"]["state"], found["web1"]["older_data"]) == (3, "waiting", ["common"])
        assert [content(five, node, "followed") for node in NODES] == ["one", *["two"] * 4]
    finally:
        five.agents["web1"].go_on()

    code, found = status(five, "follows", wait=True)

    assert (code, {one["state"] for one in found.values()}) == (0, {"converged"})
    assert everywhere(five, "followed") == {"two"}
    assert five.ctl("unassign", "follows").code == 0


def test_an_unassigned_manifest_is_not_applied_again_and_nothing_is_undone(five: Fleet) -> None:
    node = five.agents["web1"]
    for name in ("kept", "ended"):
        assign(five, name, a_file(name), targets="node=web1")
        assert states(five, name) == {"web1": "converged"}

    done = five.ctl("unassign", "ended")

    assert done.code == 0, done.err
    assert (content(five, "web1", "kept"), content(five, "web1", "ended")) == ("x", "x")
    five.forget_files()
    node.stop()
    node.start()
    five.wait_for((node.files / "kept").exists, "the other one to be converged on again")
    assert states(five, "kept") == {"web1": "converged"}
    assert content(five, "web1", "ended") is None
    assert five.ctl("assignment", "status", "ended").code == 1
    assert five.ctl("unassign", "kept").code == 0
