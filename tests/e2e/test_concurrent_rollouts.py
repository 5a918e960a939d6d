"""Two rollouts and runs on the same nodes, on real agents: what is named, what asks, and what does not start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import Controller, Done, Fleet, a_file, a_gate, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

NODES = ("web1", "web2")
LIMITS = "two rollouts do not keep each other's limits"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("concurrent")) as made:
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

    named = f"web[1-2]: run {run} (apply first by tester) is an open rollout on these nodes, too: "
    assert (refused.code, refused.states) == (1, {})
    assert named in refused.err
    assert f"{LIMITS}: wait with `ccmctl run watch {run}`, or add --alongside" in refused.err
    assert (asked.code, named in asked.err, "cannot ask" in asked.err) == (1, True, True)
    assert (others.code, "is an open rollout on this node, too" in others.err) == (0, True)
    assert (agreed.code, agreed.states) == (0, {"web2": "changed"})
    two.open_gates()
    done = first.end()
    after = a_rollout(two, "--yes")
    assert (done.code, after.code, after.err) == (0, 0, after.err.replace(LIMITS, ""))


def test_a_paused_rollout_does_not_continue_during_another_one(two: Fleet, first: Controller) -> None:
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
    assert (ended.code, "is an open rollout on this node, too: paused" in ended.err) == (0, True)
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

    named = f"run {done.run[:8]} (apply first by tester) is an open rollout on these nodes, too: "
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


def test_undo_and_retry_name_an_open_rollout_and_a_retry_in_waves_asks(two: Fleet, tmp_path: Path) -> None:
    changed = two.ctl(
        "apply", two.write("motd.json", manifest(a_file("motd"))), "-t", "node=web2", "--yes", "--json"
    )
    job = ("exec", "job", {"command": f"test -e {tmp_path}/may"})
    words = ("apply", two.write("job.json", manifest(job)), "-t", "node=web2", "--yes", "--json")
    plain, waves = two.ctl(*words), two.ctl(*words, "--batch", "1", "--max-failures", "100%")
    (tmp_path / "may").touch()
    path = two.write("first.json", manifest(a_gate(), a_file("first")))
    controller = two.begin("apply", path, "--all", "--yes", "--json", "--batch", "1")
    two.wait_for(lambda: (two.agents["web1"].files / "at-go").exists(), "a node to stand at its gate")

    undone = two.ctl("undo", changed.run, "--yes", "--json")
    retried = two.ctl("run", "retry", plain.run, words[1], "--yes", "--json")
    asked = two.ctl("run", "retry", plain.run, words[1])
    refused = two.ctl("run", "retry", waves.run, "--yes", "--json")
    agreed = two.ctl("run", "retry", waves.run, "--yes", "--alongside", "--json")
    two.open_gates()
    done = controller.end()
    after = two.ctl("run", "retry", plain.run, words[1], "--yes", "--json")

    named = f"web2: run {done.run[:8]} (apply first by tester) is an open rollout on this node, too: "
    assert (plain.states, waves.states) == ({"web2": "failed"}, {"web2": "failed"})
    for one in (undone, retried, agreed):
        assert (one.code, one.states, named in one.err) == (0, {"web2": "changed"}, True), one.err
    assert (asked.code, named in asked.err, "cannot ask" in asked.err) == (1, True, True), asked.err
    assert (refused.code, refused.states, named in refused.err, LIMITS in refused.err) == (1, {}, True, True)
    assert (done.code, "is an open rollout" in after.err) == (0, False), done.err
    two.forget_files()


@pytest.mark.parametrize(
    ("options", "code", "states"),
    [
        pytest.param((), 2, {"web1": "superseded", "web2": "planned"}, id="no failure is allowed by default"),
        pytest.param(
            ("--max-failures", "1"), 3, {"web1": "superseded", "web2": "changed"}, id="one is allowed"
        ),
    ],
)
def test_a_node_that_a_newer_run_took_over_is_not_done(
    two: Fleet, options: tuple[str, ...], code: int, states: dict[str, str]
) -> None:
    hold = two.write("hold.json", manifest(a_gate(), a_file("hold")))
    first = two.begin("apply", hold, "-t", "node=web1", "--yes", "--json")
    two.wait_for(lambda: (two.agents["web1"].files / "at-go").exists(), "the node to stand at its gate")
    path = two.write("site.json", manifest(a_file("site")))
    waits = two.begin("apply", path, "--all", "--batch", "1", *options, "--yes", "--json")
    two.wait_for(lambda: waiting(two, "web1") == 1, "the rollout to be queued on web1")

    newer = two.begin("apply", path, "-t", "node=web1", "--yes", "--json")
    two.wait_for(lambda: newer.so_far.records, "the newer run to begin")
    done = waits.end()
    shown = two.ctl("run", "show", done.run, "--json")
    two.open_gates()

    assert done.code == code, done.err
    assert ("paused: 1 node was superseded; the limit is 0" in done.err) == (not options), done.err
    assert shown.states == states
    assert (first.end().code, newer.end().states) == (0, {"web1": "changed"})
    if not options:
        assert two.ctl("run", "abort", done.run).code in (0, 2)
    two.forget_files()


def waiting(fleet: Fleet, name: str) -> int:
    """How many runs of `site` wait at a node for their turn; its own corrections wait there, too."""
    [explained] = fleet.ctl("why", name, "--json").named("why")
    return sum(one["name"] == "site" for one in explained["status"].get("waiting", []))
