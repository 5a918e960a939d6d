"""Two rollouts and runs on the same nodes, on real agents: what is named, what asks, and what does not start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fleet import Controller, Done, Fleet, a_file, a_gate, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

NODES = ("web1", "web2")
LIMITS = "two rollouts do not keep each other's limits"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("beside")) as made:
        made.add(*NODES)
        yield made


@pytest.fixture
def first(two: Fleet) -> Iterator[Controller]:
    """A rollout of which one node stands at a gate."""
    path = two.write("first.json", manifest(a_gate(), a_file("first")))
    controller = two.begin("apply", path, "--all", "--yes", "--json", "--batch", "1")
    two.wait_for(lambda: (two.agents["web1"].files / "at-go").exists(), "a node to stand at its gate")
    yield controller
    two.open_gates()
    if controller.process.poll() is None:
        controller.end()
    two.forget_files()


def run_of(controller: Controller) -> str:
    return controller.so_far.run


def a_rollout(fleet: Fleet, *options: str) -> Done:
    return fleet.ctl("exec", "--all", "--batch", "2", "--json", *options, "--", "true")


def test_a_second_rollout_starts_on_the_same_nodes_only_if_an_operator_agrees(
    two: Fleet, first: Controller
) -> None:
    run = run_of(first)[:8]

    refused = a_rollout(two, "--yes")
    asked = a_rollout(two)
    others = two.ctl("exec", "-t", "node=web2", "--yes", "--json", "--", "true")
    agreed = two.ctl(
        "exec", "-t", "node=web2", "--batch", "1", "--yes", "--alongside", "--json", "--", "true"
    )

    named = f"web[1-2]: run {run} (apply first by tester) is a rollout that is open on these nodes, too: "
    assert (refused.code, refused.states) == (1, {})
    assert named in refused.err
    assert f"{LIMITS}: wait with `ccmctl run watch {run}`, or add --alongside" in refused.err
    assert (asked.code, named in asked.err, "cannot ask" in asked.err) == (1, True, True)
    assert (others.code, "is a rollout that is open on this node, too" in others.err) == (0, True)
    assert (agreed.code, agreed.states) == (0, {"web2": "changed"})
    two.open_gates()
    done = first.end()
    after = a_rollout(two, "--yes")
    assert (done.code, after.code, after.err) == (0, 0, after.err.replace(LIMITS, ""))


def test_a_paused_rollout_does_not_continue_beside_another_one(two: Fleet, first: Controller) -> None:
    run = run_of(first)
    assert two.ctl("run", "pause", run).code == 0
    path = two.write("second.json", manifest(a_gate("second-go"), a_file("second")))
    second = two.begin("apply", path, "-t", "node=web2", "--batch", "1", "--yes", "--json")
    two.wait_for(lambda: (two.agents["web2"].files / "at-second-go").exists(), "the second rollout")

    refused = two.ctl("run", "resume", run)
    two.open_gates("web2", gate="second-go")
    ended = second.end()
    resumed = two.ctl("run", "resume", run)
    two.open_gates()
    done = first.end()

    assert (refused.code, LIMITS in refused.err) == (1, True)
    assert (ended.code, "is a rollout that is open on this node, too: paused" in ended.err) == (0, True)
    assert (resumed.code, done.code) == (0, 0), resumed.err
    assert done.states == dict.fromkeys(NODES, "changed")


def test_rollback_and_schedule_run_name_an_open_rollout_and_ask(two: Fleet) -> None:
    base = [two.write(f"base{number}.json", manifest(a_file("base", str(number)))) for number in (1, 2)]
    for path in base:
        assert two.ctl("assign", "base", path, "--all", "--yes").code == 0
    added = two.ctl(
        "schedule", "add", "nightly", base[0], "--all", "--cron", "0 3 * * *", "--batch", "1", "--yes"
    )
    assert added.code == 0, added.err
    path = two.write("first.json", manifest(a_gate(), a_file("first")))
    controller = two.begin("apply", path, "--all", "--yes", "--json", "--batch", "1")
    two.wait_for(lambda: (two.agents["web1"].files / "at-go").exists(), "a node to stand at its gate")

    rollback = two.ctl("rollback", "base")
    scheduled = two.ctl("schedule", "run", "nightly")
    refused = two.ctl("schedule", "run", "nightly", "--yes")
    two.open_gates()
    done = controller.end()

    named = f"run {done.run[:8]} (apply first by tester) is a rollout that is open on these nodes, too: "
    for one in (rollback, scheduled):
        assert (one.code, named in one.err, "cannot ask" in one.err) == (1, True, True), one.err
    assert (refused.code, named in refused.err, LIMITS in refused.err) == (1, True, True)
    assert two.ctl("rollback", "base", "--yes").code == 0
    two.forget_files()


def test_a_run_without_waves_that_has_not_ended_is_named(two: Fleet) -> None:
    path = two.write("long.json", manifest(a_gate(), a_file("long")))
    controller = two.begin("apply", path, "-t", "node=web1", "--yes", "--json")
    two.wait_for(lambda: (two.agents["web1"].files / "at-go").exists(), "the node to stand at its gate")

    asked = two.ctl("exec", "--all", "--", "true")
    other = two.ctl("exec", "-t", "node=web2", "--", "true")
    two.open_gates()
    done = controller.end()
    after = two.ctl("exec", "--all", "--", "true")

    named = f"web1: run {done.run[:8]} (apply long by tester) has not ended on this node\n"
    assert (asked.code, named in asked.err, "cannot ask" in asked.err) == (1, True, True), asked.err
    assert ("has not ended" in other.err, "has not ended" in after.err) == (False, False)
    two.forget_files()
