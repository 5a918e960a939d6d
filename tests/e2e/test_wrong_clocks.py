"""Nodes whose clock is wrong: they refuse, say so, keep what they have, and are well again once the clock is right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.faults import FaultyAgent, add_faulty
from tests.support.fleet import a_file, manifest
from tests.support.secured import Secured, secured_broker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

HOURS_2 = 7200.0


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A secured broker without nodes."""
    with secured_broker(tmp_path_factory.mktemp("clocks"), Secured) as one:
        one.fleet.environ["CCM_CREDS"] = str(one.keys / "tester.creds")
        yield one


def add_node(secured: Secured, name: str) -> FaultyAgent:
    """An agent with credentials whose clock can be turned, configured and not started."""
    nats = {"url": secured.fleet.environ["NATS_URL"], "creds": str(secured.give("node", name))}
    return add_faulty(secured.fleet, name, nats=nats, manifests=[])


def listed(secured: Secured, name: str) -> dict[str, Any]:
    """The node in `node list`."""
    nodes = secured.fleet.ctl("node", "list", "--json").named("node")
    return next((node for node in nodes if node["node"] == name), {})


def wait_clock(secured: Secured, name: str, words: str) -> None:
    """Wait until `node list` reports the clock in these words; "": that it is right."""
    fleet = secured.fleet
    fleet.wait_for(lambda: (found := listed(secured, name)) and found.get("wrong_clock", "") == words, words)


def apply(secured: Secured, name: str, path: str) -> Any:
    return secured.fleet.ctl("apply", path, "-t", f"node={name}", "--yes", "--json", "--timeout", "30s")


@pytest.mark.parametrize(
    ("name", "off_s", "words", "why"),
    [
        pytest.param("ahead1", HOURS_2, "the clock is 2h ahead of the broker's", "has expired", id="ahead"),
        pytest.param(
            "behind1", -HOURS_2, "the clock is 2h behind the broker's", "in the future", id="behind"
        ),
    ],
)
def test_a_node_with_a_wrong_clock_refuses_with_that_reason(
    secured: Secured, name: str, off_s: float, words: str, why: str
) -> None:
    fleet, agent = secured.fleet, add_node(secured, name)
    agent.start()
    fleet.wait_present([name])
    path = fleet.write("site.json", manifest(a_file("a")))
    right = apply(secured, name, path)
    assert (right.code, right.states) == (0, {name: "changed"})

    agent.turn(wall_s=off_s)
    wait_clock(secured, name, words)
    wrong = apply(secured, name, path)

    assert wrong.states == {name: "refused"}
    assert wrong.reasons[name].startswith("this node's clock shows 20")
    assert why in wrong.reasons[name]
    assert "left out" not in wrong.err
    shown = fleet.ctl("run", "show", wrong.run)
    assert "refused  this node's clock shows 20" in shown.out
    told = fleet.ctl("why", name)
    assert told.out.startswith(
        f"{name} has a wrong clock, so it refuses signed requests and documents: {words}."
    )
    assert f"wrong clock: {words}" in " ".join(fleet.ctl("node", "list").out.split())
    assert name in fleet.ctl("doctor").out.partition("The clock differs from the broker's")[2]

    agent.turn(wall_s=-off_s)
    wait_clock(secured, name, "")
    again = apply(secured, name, path)
    assert (again.code, again.states) == (0, {name: "stable"})
    assert fleet.ctl("why", name).out.startswith(f"{name} is in the desired state")


def test_an_agent_whose_clock_is_behind_starts_and_keeps_what_it_has(secured: Secured) -> None:
    fleet, agent = secured.fleet, add_node(secured, "battery1")
    agent.start()
    fleet.wait_present(["battery1"])
    path = fleet.write("kept.json", manifest(a_file("kept")))
    assigned = fleet.ctl("assign", "kept", path, "--targets", "node=battery1", "--yes", "--json")
    assert assigned.code == 0, assigned.err
    kept = agent.files / "kept"
    fleet.wait_for(kept.exists, "the assignment")
    agent.stop()
    agent.turn(wall_s=-HOURS_2)
    kept.unlink()

    agent.start()

    fleet.wait_for(kept.exists, "the agent to converge on what it has")
    words = "the clock is slow: the signers list was signed"
    fleet.wait_for(lambda: listed(secured, "battery1").get("wrong_clock", "").startswith(words), words)
    assert fleet.ctl("why", "battery1").out.startswith(
        f"battery1 has a wrong clock, so it refuses signed requests and documents: {words} 20"
    )
    assert "battery1" in fleet.ctl("doctor").out.partition("The clock differs from the broker's")[2]
    other = fleet.write("other.json", manifest(a_file("other")))
    assert apply(secured, "battery1", other).states == {"battery1": "refused"}
    assert fleet.ctl("assign", "kept", other, "--targets", "node=battery1", "--yes", "--json").code == 0
    fleet.wait_for(
        lambda: "new documents are refused" in agent.log or "in the future" in agent.log, "a refusal"
    )
    assert not (agent.files / "other").exists()

    process = agent.process
    agent.turn(wall_s=HOURS_2)

    fleet.wait_for((agent.files / "other").exists, "the agent to take the new revision by itself")
    wait_clock(secured, "battery1", "")
    assert agent.process is process
    assert apply(secured, "battery1", other).states == {"battery1": "stable"}
