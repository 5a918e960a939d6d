"""Everything at once, and the same on brokers that forget or fail over: no node without its end, no event lost or told twice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.fleet import Fleet, a_file, a_gate, assert_told_once, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

OUTAGE_S = 10
NODES = [f"n{number:02d}" for number in range(1, 21)]
LONG = manifest(
    a_file("before"), a_gate("one"), *(a_file(f"middle{number}") for number in range(5)), a_gate("two"), a_file("after")
)  # fmt: skip


def test_twenty_nodes_three_killed_the_broker_away_and_the_controller_killed(tmp_path: Path) -> None:
    with fleet(tmp_path) as storm:
        storm.add(*NODES)
        first = storm.begin("apply", storm.write("long.yaml", LONG), "--all", "--yes", "--json")
        storm.wait_for(lambda: first.so_far.changed("before") == set(NODES), "all to stand at the gate")

        for name in ("n01", "n02", "n03"):
            storm.agents[name].kill()
        storm.agents["n01"].start()
        storm.broker.stop()
        storm.open_gates(gate="one")
        time.sleep(OUTAGE_S)
        said = first.so_far.err
        first.kill()
        storm.broker.start()
        second = storm.begin("run", "watch", first.so_far.run, "--json")
        storm.agents["n02"].start()
        living = set(NODES) - {"n01", "n02", "n03"}
        storm.wait_for(lambda: second.so_far.changed("middle4") == living, "what happened in the dark")
        storm.open_gates(gate="two")
        done = second.end()

        assert "broker connection lost" in said
        assert done.states == dict.fromkeys(NODES, "changed") | {
            "n01": "failed",
            "n02": "failed",
            "n03": "lost",
        }
        assert done.reasons["n01"] == done.reasons["n02"] == "interrupted"
        assert done.code == 2
        assert_told_once(storm, done)


@pytest.fixture
def forgetful(tmp_path: Path) -> Fleet:
    """Two nodes and a broker that knows an event again for a second only."""
    with fleet(tmp_path, init=["--duplicate-window", "1s"]) as built:
        built.add("a", "b")
        yield built


def test_a_spool_is_drained_after_the_duplicate_window(forgetful: Fleet) -> None:
    controller = forgetful.begin("apply", forgetful.write("long.yaml", LONG), "--all", "--yes", "--json")
    forgetful.wait_for(lambda: controller.so_far.changed("before") == {"a", "b"}, "both to stand at the gate")

    forgetful.broker.kill()
    forgetful.open_gates(gate="one")
    forgetful.open_gates(gate="two")
    forgetful.wait_for(
        lambda: all((agent.files / "after").exists() for agent in forgetful.agents.values()), "the end"
    )
    forgetful.agents["b"].kill()
    time.sleep(2)  # the window passes
    forgetful.broker.start()
    forgetful.agents["b"].start()
    done = controller.end()

    assert (done.code, done.states) == (0, {"a": "changed", "b": "changed"})
    assert_told_once(forgetful, done)


def test_a_broker_that_stalls_longer_than_the_window_is_read_without_doubles(forgetful: Fleet) -> None:
    controller = forgetful.begin("apply", forgetful.write("long.yaml", LONG), "--all", "--yes", "--json")
    forgetful.wait_for(lambda: controller.so_far.changed("before") == {"a", "b"}, "both to stand at the gate")

    forgetful.broker.pause()
    forgetful.open_gates(gate="one")
    time.sleep(8)  # agents give their publishes up, and try again
    forgetful.broker.resume()
    forgetful.open_gates(gate="two")
    done = controller.end()

    # What was sent before the stall may be stored as well as its repetition: the window is over then. Readers tell.
    assert (done.code, done.states) == (0, {"a": "changed", "b": "changed"})
    assert done.numbers == {name: list(range(1, 12)) for name in ("a", "b")}
    assert {name: sorted(set(found)) for name, found in forgetful.stored(done.run).items()} == done.numbers


def test_a_cluster_of_three_loses_the_leader_of_the_events(tmp_path: Path) -> None:
    with fleet(tmp_path, servers=3) as built:
        built.add("a", "b", "c", "d")
        controller = built.begin("apply", built.write("long.yaml", LONG), "--all", "--yes", "--json")
        built.wait_for(
            lambda: controller.so_far.changed("before") == set(built.agents), "all to stand at the gate"
        )

        leader = built.leader_of("CCM_EVENTS")
        leader.kill()
        built.open_gates(gate="one")
        built.agents["d"].kill()
        built.agents["d"].start()
        built.wait_for(
            lambda: controller.so_far.changed("middle4") == {"a", "b", "c"}, "the run to go on with two"
        )
        leader.launch()
        built.open_gates(gate="two")
        done = controller.end()

        assert done.states == {"a": "changed", "b": "changed", "c": "changed", "d": "failed"}
        assert done.reasons["d"] == "interrupted"
        assert_told_once(built, done)
