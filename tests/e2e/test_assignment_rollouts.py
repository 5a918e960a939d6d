"""Assignments that reach real agents wave after wave: limits, aborts, drivers that die, and nodes that come later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.fleet import FILES, Controller, Done, Fleet, a_file, a_gate, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

NODES = ("web1", "web2", "web3")
FAILS = ("exec", "fails", {"command": "sh -c 'exit 3'"})


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("assignment-rollouts")) as made:
        made.add(*NODES, interval="1h", change_pause="0s")
        assert made.ctl("facts", "set", *NODES, "role=web").code == 0
        yield made


@pytest.fixture
def old(three: Fleet) -> Iterator[str]:
    """An assignment that all nodes have converged on: its name."""
    put(three, a_file("word", "old"))
    wait_content(three, *["old"] * 3)
    yield "site"
    three.open_gates()
    for agent in three.agents.values():
        if agent.process is None or agent.process.poll() is not None:
            agent.start()
    three.wait_present(NODES)
    three.ctl("unassign", "site")
    three.forget_files()


def arguments(fleet: Fleet, *resources: Any) -> list[str]:
    path = fleet.write("site.yaml", manifest(*resources))
    return ["assign", "site", path, "-t", "role=web", "--yes", "--json"]


def put(fleet: Fleet, *resources: Any) -> Done:
    done = fleet.ctl(*arguments(fleet, *resources))
    assert done.code == 0, done.err
    return done


def start(fleet: Fleet, *resources: Any, options: tuple[str, ...]) -> Controller:
    return fleet.begin(*arguments(fleet, *resources), *options)


def content(fleet: Fleet, name: str = "word") -> list[str | None]:
    paths = [fleet.agents[node].files / name for node in NODES]
    return [path.read_text() if path.exists() else None for path in paths]


def wait_content(fleet: Fleet, *words: str | None) -> None:
    fleet.wait_for(lambda: content(fleet) == list(words), f"the words {words}")


def status(fleet: Fleet, *, wait: bool = True) -> dict[str, tuple[str, str]]:
    done = fleet.ctl("assignment", "status", "site", "--json", *(("--wait", "60s") if wait else ()))
    return {one["node"]: (one["state"], one["digest"][:12]) for one in done.named("standing")}


def converge(fleet: Fleet) -> None:
    """All nodes converge on what they have now."""
    done = fleet.ctl("run-now", "--all", "--yes")
    assert done.code in (0, 2), done.err


def test_new_revision_reaches_nodes_wave_after_wave_and_stays(three: Fleet, old: str) -> None:
    controller = start(three, a_gate(), a_file("word", "new"), options=("--batch", "1"))
    three.wait_for(
        lambda: any((three.agents[node].files / "at-go").exists() for node in NODES), "a node to begin"
    )
    before = content(three)
    three.open_gates()
    done = controller.end()

    assert before == ["old"] * 3
    assert (done.code, done.states) == (0, dict.fromkeys(NODES, "changed")), done.err
    assert content(three) == ["new"] * 3
    assert {state for state, _ in status(three).values()} == {"converged"}


def test_failing_canary_pauses_and_an_abort_changes_no_node_until_the_rollback(
    three: Fleet, old: str
) -> None:
    before = status(three)["web2"][1]

    paused = start(three, a_file("word", "new"), FAILS, options=("--canary", "1")).end()
    refused = three.ctl(*arguments(three, a_file("word", "other")))
    aborted = three.ctl("run", "abort", paused.run)
    converge(three)

    assert (paused.code, paused.states) == (2, {"web1": "failed"}), paused.err
    assert "paused: 1 node failed; the limit is 0" in paused.err
    assert (refused.code, f"end it with `ccmctl run abort {paused.run[:8]}`" in refused.err) == (1, True)
    assert (aborted.code, content(three)) == (0, ["new", "old", "old"])
    assert "restore:  ccmctl rollback site" in aborted.err
    found = status(three, wait=False)
    assert found["web1"][0] == "failed"
    assert [found[node] for node in NODES[1:]] == [("converged", before)] * 2

    again = three.ctl(*arguments(three, a_file("word", "other")), "--batch", "1")
    back = three.ctl("rollback", "site", "--yes")
    wait_content(three, "old", "old", "old")

    assert (again.code, "run `ccmctl rollback site` first" in again.err) == (1, True)
    assert back.code == 0, back.err
    assert back.out.startswith("site: rolled back to the revision before the rollout, revision ")
    assert set(status(three).values()) == {("converged", before)}


def test_driver_that_is_killed_leaves_a_rollout_that_another_completes(three: Fleet, old: str) -> None:
    controller = start(three, a_gate(), a_file("word", "new"), options=("--batch", "1"))
    three.wait_for(lambda: (three.agents["web1"].files / "at-go").exists(), "the first node to begin")
    run = controller.so_far.run
    controller.kill()
    three.open_gates("web1")
    wait_content(three, "new", "old", "old")
    converge(three)
    between = content(three)
    three.open_gates()

    served = three.ctl("run", "resume", run, "--detach")
    assert three.ctl("run", "resume", run).code == 0

    assert between == ["new", "old", "old"]
    assert (served.code, "rollout servers write assignments only for operators who sign" in served.err) == (
        1,
        True,
    )
    assert content(three) == ["new"] * 3
    assert {state for state, _ in status(three).values()} == {"converged"}
    assert three.ctl("run", "abort", run).code == 1


def test_node_that_was_off_gets_the_revision_when_the_rollout_has_completed(three: Fleet, old: str) -> None:
    three.agents["web3"].stop()
    three.wait_for(lambda: offline(three) == {"web3"}, "it to be off")

    done = start(three, a_file("word", "new"), options=("--batch", "1")).end()
    between = content(three)
    three.agents["web3"].start()
    wait_content(three, "new", "new", "new")

    assert (done.code, done.states) == (0, {"web1": "changed", "web2": "changed", "web3": "offline"})
    assert between == ["new", "new", "old"]


def test_node_that_comes_back_during_the_rollout_has_the_old_revision_until_its_turn(
    three: Fleet, old: str
) -> None:
    three.agents["web3"].stop()
    three.wait_for(lambda: offline(three) == {"web3"}, "it to be off")
    controller = start(three, a_gate(), a_file("word", "new"), options=("--batch", "2"))
    three.wait_for(lambda: (three.agents["web2"].files / "at-go").exists(), "two nodes to begin")

    three.agents["web3"].start()
    three.wait_present(NODES)
    three.ctl("run-now", "-t", "node=web3", "--yes")
    between = content(three)
    three.open_gates("web1")
    three.wait_for(lambda: (three.agents["web3"].files / "at-go").exists(), "its turn")
    three.open_gates()
    done = controller.end()

    assert between == ["old"] * 3
    assert (done.code, done.states) == (0, dict.fromkeys(NODES, "changed"))
    assert content(three) == ["new"] * 3


def test_first_revision_of_a_name_reaches_nodes_wave_after_wave(three: Fleet, old: str) -> None:
    assert three.ctl("unassign", "site").code == 0
    three.forget_files()
    failing = start(three, a_file("word", "bad"), FAILS, options=("--canary", "1")).end()
    assert three.ctl("run", "abort", failing.run).code == 0
    first = content(three)

    back = three.ctl("rollback", "site", "--yes")
    assert three.ctl("unassign", "site").code == 0
    removed = three.ctl("rollback", "site", "--scope", "role=web", "--yes")
    done = start(three, a_file("word", "new"), options=("--batch", "1,100%")).end()

    assert (failing.code, first) == (2, ["bad", None, None])
    assert (back.code, "`ccmctl unassign site` removes it" in back.err) == (1, True)
    assert (removed.code, "there is no previous revision; assign it again" in removed.err) == (1, True)
    assert (done.code, content(three)) == (0, ["new"] * 3), done.err
    assert {state for state, _ in status(three).values()} == {"converged"}


def test_assignment_whose_rollout_is_open_is_removed_only_with_an_abort(three: Fleet, old: str) -> None:
    controller = start(three, a_gate(), a_file("word", "new"), options=("--batch", "1"))
    three.wait_for(lambda: (three.agents["web1"].files / "at-go").exists(), "the first node to begin")
    run = controller.so_far.run

    refused = three.ctl("unassign", "site")
    there = three.ctl("assignment", "status", "site").code
    removed = three.ctl("unassign", "site", "--abort")
    three.open_gates()
    done = controller.end()

    assert (refused.code, refused.err) == (
        1,
        f"ccmctl: site: the rollout {run[:8]} is in progress; use --abort to abort it first\n",
    )
    assert there == 3
    assert removed.code == 0, removed.err
    assert f"run {run[:8]}: aborted after 1 of 3 nodes had started\n" in removed.out
    assert {node: done.states[node] for node in NODES[1:]} == dict.fromkeys(NODES[1:], "skipped"), done.err
    assert content(three)[1:] == ["old", "old"]
    assert three.ctl("assignment", "status", "site").code == 1


def test_status_waits_for_the_rollout_of_a_first_revision_and_of_a_later_one(three: Fleet) -> None:
    later = start(three, a_file("word", "first"), options=("--batch", "1", "--at", "1h"))
    three.wait_for(lambda: later.so_far.named("rollout"), "the rollout to be driven")
    early = three.ctl("assignment", "status", "site", "--wait", "1s")
    listed = three.ctl("assignment", "list")
    assert three.ctl("unassign", "site", "--abort").code == 0
    later.end()

    driving = start(three, a_gate(), a_file("word", "first"), options=("--batch", "1"))
    three.wait_for(lambda: (three.agents["web1"].files / "at-go").exists(), "the first node to begin")
    waiting = three.begin("assignment", "status", "site", "--wait", "60s")
    three.wait_for(lambda: "rollout: wave 1" in waiting.so_far.err, "the command to wait for the rollout")
    three.open_gates()
    done, first = driving.end(), waiting.end()
    paused = start(three, FAILS, a_file("word", "second"), options=("--batch", "1")).end()
    second = three.ctl("assignment", "status", "site", "--wait", "60s")
    in_json = three.ctl("assignment", "status", "site", "--json")
    assert three.ctl("run", "abort", paused.run, "--why", "wrong version").code == 0
    aborted = three.ctl("assignment", "status", "site")
    three.ctl("rollback", "site", "--yes")
    three.ctl("unassign", "site")
    three.forget_files()

    assert (early.code, ": 0 of 3 nodes have it\n" in early.out) == (3, True), early.out
    assert "where" not in early.out + listed.out
    assert (done.code, first.code) == (0, 0), first.err
    assert "3 nodes: 3 converged\n" in first.out
    assert second.code == 2, second.out
    assert (
        f"\npaused: 1 node failed; the limit is 0\n  continue:  ccmctl run resume {paused.run[:8]}\n"
        in second.out
    )
    assert [one["rollout_phase"] for one in in_json.named("assignment")] == ["paused"]
    assert (
        " was aborted by tester: wrong version; 1 of 3 nodes has it\n  restore:  ccmctl rollback site\n"
        in aborted.out
    )
    assert aborted.code == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--batch", "1", "--mode", "plan"), "--mode plan changes nothing"),
        (("--batch", "1", "--move"), "--move removes the assignment"),
        (("--batch", "0"), "no node would ever run"),
        (("--canary", "3"), "nothing would be left for the next wave"),
    ],
)
def test_options_that_make_no_sense_write_nothing(
    three: Fleet, old: str, options: tuple[str, ...], message: str
) -> None:
    done = three.ctl(*arguments(three, a_file("word", "new")), *options)

    assert (done.code, message in done.err) == (1, True), done.err
    assert content(three) == ["old"] * 3


def offline(fleet: Fleet) -> set[str]:
    found = fleet.ctl("nodes", "--json").named("node")
    return {one["node"] for one in found if one["state"] == "offline"}


def known_runs(fleet: Fleet) -> set[str]:
    return {str(one["run"]) for one in fleet.ctl("run", "list", "--json").named("run")}


def test_a_rollout_applies_a_revision_once_on_each_node(three: Fleet, old: str) -> None:
    counting = ("exec", "count", {"command": f"sh -c 'echo x >> {FILES}/count'"})
    status(three)
    before = known_runs(three)

    controller = start(three, counting, a_file("word", "new"), options=("--batch", "1"))
    done = controller.end()
    waited = status(three)
    added = known_runs(three) - before
    states = three.ctl("state", "web3", "--json").named("state")

    assert (done.code, set(done.states.values())) == (0, {"changed"}), done.err
    assert {state for state, _ in waited.values()} == {"converged"}
    assert content(three, "count") == ["x\n"] * 3
    assert added == {done.run}, "no run of the convergence loops follows it"
    converge(three)
    after = three.ctl("state", "web3", "--json").named("state")
    assert content(three, "count") == ["x\nx\n"] * 3, "the loop goes on from there"
    names = [
        [one["manifest"] for one in found if one["resource"] == "exec#count"] for found in (states, after)
    ]
    assert names == [["site"], ["site"]], "one row, under one manifest"
