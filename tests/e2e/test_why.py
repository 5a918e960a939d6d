"""`ccmctl why` on agents that run: each says the true reason, on one screen."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.fleet import TOP, WAIT_S, AgentProcess, Done, Fleet, a_file, a_gate, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

LINES = 24
"""One screen."""

SETTINGS = {"interval": "1h", "change_pause": "0s"}


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A node for each trouble; what only heartbeats show begins here, for it takes some of them."""
    with fleet(tmp_path_factory.mktemp("fleet")) as built:
        built.add("fails1", "idle1", "off1", "dead1", "waits1", "twin1", **SETTINGS)
        built.agents["dead1"].kill()
        copy = built.agents["copy"] = AgentProcess("twin1", built.directory / "copy", built.environ)
        copy.configure(built.url, **SETTINGS)
        copy.start()
        yield built


def why(fleet: Fleet, node: str) -> dict[str, Any]:
    done = fleet.ctl("why", node, "--json")
    assert done.code == 0, done.err
    [record] = done.named("why")
    return record


def wait_until(fleet: Fleet, node: str, state: str) -> dict[str, Any]:
    """What is said of a node once it has come so far."""
    fleet.wait_for(lambda: why(fleet, node)["state"] == state, f"{node} to be called {state}")
    return why(fleet, node)


def shown(fleet: Fleet, node: str) -> str:
    """The screen; it is one."""
    done = fleet.ctl("why", node)
    assert (done.code, done.err) == (0, "")
    assert len(done.out.splitlines()) < LINES
    return done.out


def assign(fleet: Fleet, name: str, node: str, *resources: Any) -> None:
    path = fleet.write(f"{name}.yaml", manifest(*resources))
    done = fleet.ctl("assign", name, path, "--targets", f"node={node}", "--yes", "--json")
    assert done.code == 0, done.err


def ccm(agent: AgentProcess, *arguments: str) -> None:
    """`ccm agent …` at the agent's host."""
    subprocess.run(
        [sys.executable, "-m", "ccm_agent", "agent", "--config", str(agent.directory / "agent.yaml"), *arguments],
        cwd=TOP, env=dict(agent.environ), stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=WAIT_S,
    )  # fmt: skip


def test_a_failing_node_shows_the_resource_and_the_commands_output(ward: Fleet) -> None:
    failing = ("exec", "migrate", {"command": "sh -c 'echo no such table; exit 3'"})
    assign(ward, "base", "fails1", a_file("fine"), failing)

    record = wait_until(ward, "fails1", "failed")

    assert [one["resource"] for one in record["failed"]] == ["exec#migrate"]
    assert record["failed"][0]["output"] == "no such table\n"
    [standing] = record["assignments"]
    assert (standing["name"], standing["state"], bool(standing["digest"])) == ("base", "failed", True)
    screen = shown(ward, "fails1")
    assert screen.startswith("fails1 has failed")
    assert "exec#migrate failed in the assignment base: " in screen
    assert "\n  │ no such table\n" in screen


def test_a_disabled_node_shows_the_operator_and_the_reason(ward: Fleet) -> None:
    ccm(ward.agents["idle1"], "disable", "--for", "4h", "--why", "the disk is replaced")

    record = wait_until(ward, "idle1", "disabled")

    assert record["disabled"]["why"] == "the disk is replaced"
    screen = shown(ward, "idle1")
    assert screen.startswith("idle1 was disabled ")
    assert screen.splitlines()[0].endswith(": the disk is replaced.")


def test_a_node_that_was_stopped_is_off_since_then(ward: Fleet) -> None:
    wait_until(ward, "off1", "unassigned")
    ward.agents["off1"].stop()

    record = wait_until(ward, "off1", "offline")

    assert (record["answered"], "shutdown" in record["told"]) == ("not asked", True)
    assert shown(ward, "off1").startswith("off1 is off: its agent was stopped at 20")


def test_a_waiting_node_shows_the_reason(ward: Fleet) -> None:
    path = ward.write("gate.yaml", manifest(a_gate()))
    ward.begin("apply", path, "--name", "long", "--targets", "node=waits1", "--yes", "--json")
    wait_until(ward, "waits1", "running")
    assign(ward, "later", "waits1", a_file("later"))

    ward.wait_for(lambda: "cannot start the assignment later" in why(ward, "waits1")["reason"], "it to wait")
    record = why(ward, "waits1")

    assert (record["state"], [one["state"] for one in record["assignments"]]) == ("running", ["waiting"])
    screen = shown(ward, "waits1")
    assert screen.startswith(
        f"waits1 cannot start the assignment later until this run ends: run {record['run'][:8]} of long"
    )
    assert "at exec#gate-go (1 of 1) for " in " ".join(screen.split())
    ward.open_gates("waits1")
    assert wait_until(ward, "waits1", "converged")["assignments"][0]["state"] == "converged"


def test_two_agents_of_one_identity_are_distinguished_and_both_refuse(ward: Fleet) -> None:
    path = ward.write("asked.yaml", manifest(a_file("asked")))
    seen: list[tuple[dict[str, Any], str, dict[str, Any], Done]] = []

    def all_say_so() -> bool:
        """A beat that came late may end the dispute for a moment, so it is looked at as a whole."""
        record, screen = why(ward, "twin1"), shown(ward, "twin1")
        [node] = [one for one in ward.ctl("nodes", "--json").named("node") if one["node"] == "twin1"]
        asked = ward.ctl("apply", path, "--noop", "--targets", "node=twin1", "--yes", "--json")
        seen[:] = [(record, screen, node, asked)]
        return (
            record["state"] == "duplicate"
            and len(record.get("agents", [])) == len(node.get("agents", [])) == 2
            and screen.startswith("twin1 is the identity of two agents")
            and asked.states == {"twin1": "refused"}
        )

    ward.wait_for(all_say_so, "both to have seen each other, and to say so")

    [(record, screen, node, asked)] = seen
    first, second = record["agents"]
    assert first != second
    assert node["agents"] == record["agents"]
    assert screen.splitlines()[0].endswith(", so both refuse all work until one of them is stopped.")
    assert [
        screen.count(f"machine {one['machine']}, started {one['started']}") for one in (first, second)
    ] == [1, 1]
    assert asked.reasons["twin1"] == "another agent uses this identity; remove one of them"


def test_a_node_whose_disk_is_full_says_so_until_there_is_space(ward: Fleet) -> None:
    ward.add("full1", **SETTINGS)
    process = ward.agents["full1"].process
    assert process is not None
    before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    # as on a full disk, no file takes more data
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, before[1]))
    done = ward.ctl("exec", "-t", "node=full1", "--yes", "--", "true")

    record = wait_until(ward, "full1", "disk")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)
    after = wait_until(ward, "full1", "unassigned")

    assert done.code == 0, done.err
    assert record["reason"].startswith("full1 cannot write its state: ")
    assert record["reason"].endswith(
        "Events wait in memory and are lost at a restart, and runs cannot be undone."
    )
    assert not after["status"]["spool"]["trouble"]


def test_a_node_that_was_killed_is_off_without_a_goodbye(ward: Fleet) -> None:
    wait_until(ward, "dead1", "offline")

    first, *_ = shown(ward, "dead1").splitlines()
    assert first.startswith("dead1 is off: last heartbeat at 20")
    assert first.endswith(", and it did not sign off: the machine, its network or its agent is down.")
