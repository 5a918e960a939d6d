"""The joining host, the leaving host and the join service, killed with SIGKILL at each of their steps: the next try ends well."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccm_agent.joining import join, leave
from ccm_agent.joining.leave import LeftHost, leave_fleet
from ccm_agent.joining.membership import JoinPlaces, read_membership
from tests.support.fleet import TOP
from tests.support.joining import JoinFleet, join_fleet

pytestmark = [pytest.mark.nats, pytest.mark.timeout(600)]

MOST = 60
"""More steps than any of the programs has here."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JoinFleet]:
    """One fleet for all tests, which use names of their own; its join service runs."""
    with join_fleet(tmp_path_factory.mktemp("kills")) as one:
        one.fleet.environ["CCM_CREDS"] = str(one.keys / "tester.creds")
        one.token()
        one.serve()
        yield one


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "ANSWER_S", 1.0)
    monkeypatch.setattr(leave, "ANSWER_S", 1.0)


class Killed:
    """A process that dies before one of its steps, and the steps that it began."""

    def __init__(self, fleet: JoinFleet, folder: Path, at: int, *words: str, creds: str = "") -> None:
        self.path = folder / f"steps-{words[0]}-{words[1]}-{at}"
        environ = {**os.environ, **fleet.fleet.environ, "KILL_AT": str(at), "KILL_STEPS": str(self.path)}
        environ["TMPDIR"] = str(folder)  # a killed process leaves its files
        if creds:
            environ["CCM_CREDS"] = creds
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.killed", *words],
            cwd=TOP,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def steps(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def end(self) -> int:
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode in (0, -9), (out, err)
        return self.process.returncode


def places(fleet: JoinFleet, name: str) -> JoinPlaces:
    return JoinPlaces.below(str(fleet.host(name)))


def test_a_host_that_is_killed_at_any_step_of_joining_joins_with_the_next_try(
    fleet: JoinFleet, tmp_path: Path
) -> None:
    seen: list[str] = []
    for at in range(1, MOST):
        name, token = f"join{at}", fleet.token("--role", "web")
        process = Killed(fleet, tmp_path, at, "ccm", "join", token, *fleet.place(name))
        is_killed = process.end() == -9
        seen = process.steps

        fleet.join_here(token, name)

        member = read_membership(fleet.host(name) / "node.creds")
        assert member is not None, seen
        assert (member.name, fleet.uses(token)) == (name, 1), seen
        assert sorted(one.name for one in fleet.host(name).iterdir()) == ["config.yaml", "node.creds"], seen
        if not is_killed:
            break
    sent = [one for one in seen if one.startswith("send ")]
    assert len(sent) == 1, seen
    written = [one for one in seen if one.startswith("rename ")]
    assert written == ["rename join.seed", "rename node.creds", "rename config.yaml"]
    assert seen[-1] == "remove join.seed"


def test_a_host_that_is_killed_at_any_step_of_leaving_leaves_with_the_next_try(
    fleet: JoinFleet, tmp_path: Path
) -> None:
    seen: list[str] = []
    for at in range(1, MOST):
        name = f"leave{at}"
        fleet.join_here(fleet.token("--role", "web"), name)
        process = Killed(fleet, tmp_path, at, "ccm", "leave", "--state", str(fleet.host(name)))
        is_killed = process.end() == -9
        seen = process.steps

        left = leave_fleet(places(fleet, name), wait_s=30)

        assert left.is_told or not left.was_member, seen
        assert [one.name for one in fleet.host(name).iterdir()] == [], seen
        assert fleet.join_here(fleet.token(), name).is_new, seen
        if not is_killed:
            break
    assert [one for one in seen if not one.startswith("send ")] == [
        "rename leave.json",
        "rename leave.json",
        "remove node.creds",
        "remove config.yaml",
        "remove leave.json",
    ]


def test_a_join_service_that_is_killed_at_any_step_leaves_nothing_half_done(
    fleet: JoinFleet, tmp_path: Path
) -> None:
    """A host joins and leaves, while the service dies once on the way, and another one takes over."""
    fleet.service.kill()
    creds = str(fleet.directory / "joiner.creds")
    seen: list[str] = []
    for at in range(1, MOST):
        name, token = f"served{at}", fleet.token("--role", "web", "--ephemeral", "1h")
        ended: list[LeftHost] = []

        def join_and_leave(name: str = name, token: str = token, ended: list[LeftHost] = ended) -> None:
            assert fleet.join_here(token, name).is_new
            ended.append(leave_fleet(places(fleet, name), wait_s=60))

        process = Killed(fleet, tmp_path, at, "ccmctl", "join", "serve", creds=creds)
        host = threading.Thread(target=join_and_leave)
        host.start()
        fleet.fleet.wait_for(
            lambda process=process, host=host: process.process.poll() is not None or not host.is_alive(),
            "an end",
        )
        if is_killed := process.process.poll() is not None:
            fleet.serve()
        host.join(120)
        seen = process.steps
        if is_killed:
            fleet.service.kill()
        process.process.kill()
        process.process.communicate()

        assert [one.is_told for one in ended] == [True], seen
        assert fleet.uses(token) == 1, seen
        assert stored_of(fleet, name) == [], seen
        if not is_killed:
            break
    assert [step_of(one) for one in seen] == [
        "CCM_JOINS.uses",
        "CCM_JOINS.node",
        "CCM_JOINS.brief",
        "CCM_FACTS",
        "answer",
        "CCM_JOINS.left",
        "CCM_FACTS",
        "CCM_NODES.presence",
        "CCM_NODES.facts",
        "CCM_NODES.node",
        "CCM_JOINS.brief",
        "CCM_JOINS.node",
        "answer",
    ]


def step_of(line: str) -> str:
    """A message that the service sends, without names."""
    first, *words = line.removeprefix("send ").split(".")
    if first != "$KV":
        return "answer"
    return words[0] if words[0] == "CCM_FACTS" else ".".join(words[:2])


def stored_of(fleet: JoinFleet, name: str) -> list[str]:
    """The records of the fleet that show a node."""
    nodes = fleet.as_("tester", "node", "list", "--json").named("node")
    return [str(one["node"]) for one in nodes if one["node"] == name]
