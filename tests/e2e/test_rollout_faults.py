"""Rollouts whose driver, broker or agents fail in each phase: no node changes after an abort, and none is forgotten."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fleet import Controller, Fleet, a_file, a_gate, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

NODES = ("web1", "web2", "web3")
GATED = manifest(a_file("begun"), a_gate(), a_file("done"))
PLAIN = manifest(a_file("begun"))

PHASES = [
    pytest.param(("--at", "1h"), PLAIN, 0, id="before it begins"),
    pytest.param(("--batch", "1"), GATED, 1, id="in a batch"),
    pytest.param(("--canary", "1", "--bake", "1h"), PLAIN, 1, id="in the wait after the canary"),
    pytest.param(("--splay", "1h"), PLAIN, 1, id="while requests are spread"),
]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("rollout-faults")) as made:
        made.add(*NODES)
        yield made


@pytest.fixture(autouse=True)
def _clean(three: Fleet) -> Iterator[None]:
    yield
    three.open_gates()
    for agent in three.agents.values():
        if agent.process is None or agent.process.poll() is not None:
            agent.start()
    three.wait_present(NODES)
    three.forget_files()


def begun(fleet: Fleet) -> set[str]:
    return {name for name, agent in fleet.agents.items() if (agent.files / "begun").exists()}


def start(fleet: Fleet, *options: str, text: str) -> Controller:
    return fleet.begin("apply", fleet.write("site.yaml", text), "--all", "--yes", "--json", *options)


@pytest.mark.parametrize(("options", "text", "nodes"), PHASES)
def test_no_node_changes_after_an_abort_of_a_rollout_whose_driver_was_killed(
    three: Fleet, options: tuple[str, ...], text: str, nodes: int
) -> None:
    controller = start(three, *options, text=text)
    three.wait_for(lambda: bool(controller.so_far.named("rollout")), "the rollout to be driven")
    three.wait_for(lambda: len(begun(three)) == nodes, f"{nodes} nodes to begin")
    run = controller.so_far.run
    changed = begun(three)
    controller.kill()

    aborted = three.ctl("run", "abort", run, "--json")
    resumed = three.ctl("run", "resume", run)
    three.open_gates()
    shown = three.ctl("run", "show", run, "--json")

    assert (aborted.code, resumed.code) == (0, 1), aborted.err
    assert begun(three) == changed
    assert set(shown.states) == set(NODES)
    assert {name for name, state in shown.states.items() if state == "skipped"} == set(NODES) - changed


def test_rollout_continues_after_the_broker_was_killed_in_each_wave(three: Fleet) -> None:
    controller = start(three, "--batch", "1,100%", "--bake", "1s", text=GATED)

    three.wait_for(lambda: len(begun(three)) == 1, "the first wave to begin")
    three.broker.kill()
    three.broker.start()
    three.open_gates()
    three.wait_for(lambda: len(begun(three)) == 3, "the second wave to begin")
    three.broker.kill()
    three.broker.start()
    three.open_gates()
    done = controller.end()

    assert (done.code, done.states) == (0, dict.fromkeys(NODES, "changed")), done.err
    for name, numbers in three.stored(done.run).items():
        assert numbers == sorted(set(numbers)), name


def test_rollout_pauses_when_an_agent_is_killed_and_counts_its_real_end(three: Fleet) -> None:
    controller = start(three, "--batch", "1", text=GATED)
    three.wait_for(lambda: len(begun(three)) == 1, "a node to begin")
    [killed] = begun(three)

    three.agents[killed].kill()
    three.agents[killed].open_gates()
    three.agents[killed].start()
    done = controller.end()

    assert done.code == 2
    assert done.named("rollout")[-1]["phase"] == "paused"
    assert begun(three) == {killed}
    assert done.states[killed] == "failed"
