"""
Time-driven convergence without a process of ours: the broker keeps time, agents come and go, no controller runs.

A schedule that is due each second or two proves who is reached; one that is due once proves what is caught up with, for nothing
comes after it that could be mistaken for it.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.events import NatsEvents
from ccm_agent.bus.subjects import parse_event
from ccm_agent.model.outcome import SESSION_START
from ccm_agent.model.wire import PROTOCOL
from tests.support.fleet import AgentProcess, Fleet, a_file, fleet, manifest
from tests.support.schedules import add_at

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """web1 and web2 with role=web, db1 with role=db."""
    with fleet(tmp_path_factory.mktemp("fleet")) as built:
        built.add("web1", "web2", "db1")
        assert built.ctl("facts", "set", "web1", "web2", "role=web").code == 0
        assert built.ctl("facts", "set", "db1", "role=db").code == 0
        for name in ("web1", "web2", "db1"):
            # who has looked at what was due before knows from when on it can miss something
            built.wait_for(partial(has_looked, built.agents[name]), f"{name} to have looked")
        yield built


def has_looked(agent: AgentProcess) -> bool:
    role = "db" if agent.name.startswith("db") else "web"
    return f"{PROTOCOL}.manifest.apply.request.fact.role.{role}" in seen(agent)


def seen(agent: AgentProcess) -> dict[str, dict[str, object]]:
    """What a node has on disk of schedules: the last due request of each subject that it saw."""
    path = agent.directory / "state/due.json"
    found: dict[str, dict[str, object]] = json.loads(path.read_text())["seen"] if path.exists() else {}
    return found


def runs(fleet: Fleet, agent: AgentProcess, name: str) -> Counter[str]:
    """How often each run of a manifest was begun on a node, as the stream knows."""
    return asyncio.run(_runs(fleet, agent.name, name))


async def _runs(fleet: Fleet, node: str, name: str) -> Counter[str]:
    async with Connection(settings_for(fleet.url)) as connection:
        await connection.connect_now()
        starts = await NatsEvents(connection).read(f"{SESSION_START}.*.{node}")
    return Counter(
        parse_event(start.subject).run for start in starts if json.loads(start.body)["manifest"] == name
    )


def test_a_schedule_converges_only_its_role_without_a_controller(trio: Fleet) -> None:
    path = trio.write("often.yaml", manifest(a_file("often")))
    web1, web2, db1 = (trio.agents[name] for name in ("web1", "web2", "db1"))
    words = ["--every", "2s", "--targets", "role=web", "--catch-up", "--yes"]

    added = trio.ctl("schedule", "add", "often", path, *words)
    trio.wait_for(
        lambda: all((one.files / "often").exists() for one in (web1, web2)), "the schedule to be due"
    )
    web1.stop()
    (web1.files / "often").unlink()
    web1.start()
    trio.wait_for((web1.files / "often").exists, "the node to catch up, or the schedule to be due again")
    removed = trio.ctl("schedule", "rm", "often", "--yes")

    assert (added.code, removed.code) == (0, 0)
    assert not (db1.files / "often").exists()
    assert runs(trio, db1, "often") == {}
    # what was delivered and what was caught up with are one run
    assert set(runs(trio, web1, "often").values()) == {1}


def test_an_agent_that_was_stopped_takes_the_last_due_request_after_its_return_once(trio: Fleet) -> None:
    path = trio.write("once.yaml", manifest(a_file("once")))
    away, there = trio.agents["web1"], trio.agents["web2"]
    away.stop()

    added = add_at(trio, "once", path, "--targets", "role=web", "--catch-up")
    trio.wait_for((there.files / "once").exists, "the schedule to be due")
    away.start()
    trio.wait_for((away.files / "once").exists, "the node to catch up")
    trio.wait_for(lambda: runs(trio, away, "once") and runs(trio, there, "once"), "the events of the run")
    for agent in (away, there):
        # nobody does it again, whoever comes back
        (agent.files / "once").unlink()
        agent.stop()
        agent.start()
    trio.wait_present(["web1", "web2"])
    new = trio.write("last.yaml", manifest(a_file("last")))
    last = trio.ctl("apply", new, "--targets", "role=web", "--yes", "--json")

    [(caught_up, times)] = runs(trio, away, "once").items()
    assert (added.code, last.code) == (0, 0)
    assert (times, runs(trio, there, "once")) == (1, {caught_up: 1})
    assert not (away.files / "once").exists()
    assert not (there.files / "once").exists()
    assert not (trio.agents["db1"].files / "once").exists()
    assert trio.ctl("schedule", "rm", "once", "--yes").code == 0


def test_one_command_shows_how_the_last_run_of_a_schedule_ended_and_which_nodes_were_away(
    trio: Fleet,
) -> None:
    away, there = trio.agents["web1"], trio.agents["web2"]
    path = trio.write("status.yaml", manifest(a_file("status")))
    away.stop()
    trio.wait_for(lambda: "offline" in trio.ctl("nodes", "--json").out, "the node to be away")

    assert add_at(trio, "status", path, "--targets", "role=web", "--catch-up").code == 0
    trio.wait_for((there.files / "status").exists, "the schedule to be due")
    trio.wait_for(
        lambda: trio.ctl("schedule", "status", "status", "--json").states.get("web2") == "changed",
        "the end of the run",
    )
    missed = trio.ctl("schedule", "status", "status", "--json")
    listed = trio.ctl("run", "list", "--schedule", "status", "--json")
    shown = trio.ctl("run", "show", missed.run[:9], "--json")
    away.start()
    trio.wait_for((away.files / "status").exists, "the node to catch up")
    trio.wait_for(lambda: runs(trio, away, "status"), "the events of the run")
    trio.wait_for(lambda: trio.ctl("schedule", "status", "status").code == 0, "the end of the run")

    assert (missed.code, missed.states) == (3, {"web1": "offline", "web2": "changed"})
    assert shown.states == missed.states
    [run] = listed.named("run")
    assert (run["run"], run["origin"], run["nodes"]) == (missed.run, "status", 2)
    assert run["counts"] == {"changed": 1, "offline": 1}
    assert set(runs(trio, there, "status")) == {missed.run}
    assert trio.ctl("schedule", "rm", "status", "--yes").code == 0


def test_a_schedule_that_fired_once_keeps_its_outcome_with_the_nodes_that_were_away(trio: Fleet) -> None:
    away, there = trio.agents["web1"], trio.agents["web2"]
    path = trio.write("oneoff.yaml", manifest(a_file("oneoff")))
    away.stop()
    trio.wait_for(lambda: "offline" in trio.ctl("nodes", "--json").out, "the node to be away")

    assert add_at(trio, "oneoff", path, "--targets", "role=web").code == 0
    trio.wait_for((there.files / "oneoff").exists, "the schedule to be due")
    trio.wait_for(
        lambda: trio.ctl("schedule", "status", "oneoff", "--json").states.get("web2") == "changed",
        "the end of the run",
    )
    status = trio.ctl("schedule", "status", "oneoff", "--json")
    [run] = trio.ctl("run", "list", "--schedule", "oneoff", "--json").named("run")
    listed = {one["name"]: one for one in trio.ctl("schedule", "list", "--json").named("schedule")}
    removed = trio.ctl("schedule", "rm", "oneoff", "--yes")
    after = trio.ctl("schedule", "status", "oneoff", "--json")
    never = trio.ctl("schedule", "status", "never")
    away.start()
    trio.wait_present(["web1"])

    assert (status.code, status.states) == (3, {"web1": "offline", "web2": "changed"})
    assert (run["run"], run["nodes"], run["counts"]) == (status.run, 2, {"changed": 1, "offline": 1})
    assert run.get("reported_by") is None
    assert "last" in listed["oneoff"]
    assert removed.code == 0, removed.err
    assert (after.run, after.states) == (status.run, {"web2": "changed"}), after.err
    assert never.code == 1


def test_node_that_refuses_a_scheduled_request_is_named_with_its_reason(trio: Fleet) -> None:
    path = trio.write("refused.yaml", manifest(a_file("refused")))
    assert trio.ctl("disable", "-t", "node=web2", "--why", "a test", "--yes").code == 0

    assert add_at(trio, "refused", path, "--targets", "role=web", "--catch-up").code == 0
    trio.wait_for((trio.agents["web1"].files / "refused").exists, "the schedule to be due")
    trio.wait_for(
        lambda: trio.ctl("schedule", "status", "refused", "--json").states.get("web2") == "refused",
        "the refusal to be on record",
    )
    said = trio.ctl("schedule", "status", "refused", "--json")
    enabled = trio.ctl("enable", "-t", "node=web2", "--yes")

    assert "a test" in said.reasons["web2"]
    assert (said.code, enabled.code) == (2, 0)
    assert trio.ctl("schedule", "rm", "refused", "--yes").code == 0


def test_killed_agent_catches_up_with_each_schedule_of_its_scope_once(trio: Fleet) -> None:
    names = ("backup", "patch", "report")
    away, there = trio.agents["web1"], trio.agents["web2"]
    away.kill()
    for name in names:
        path = trio.write(f"{name}.yaml", manifest(a_file(name)))
        assert add_at(trio, name, path, "--targets", "role=web", "--catch-up").code == 0
    for name in names:
        trio.wait_for((there.files / name).exists, f"{name} to be due")

    away.start()
    for name in names:
        trio.wait_for((away.files / name).exists, f"web1 to catch up with {name}")
        trio.wait_for(lambda name=name: runs(trio, away, name), f"the events of {name}")
    for agent in (away, there):
        for name in names:
            (agent.files / name).unlink()
        agent.kill()
        agent.start()
    trio.wait_present(["web1", "web2"])
    path = trio.write("after.yaml", manifest(a_file("after")))
    assert trio.ctl("apply", path, "--targets", "role=web", "--yes").code == 0

    for name in names:
        [(run, times)] = runs(trio, away, name).items()
        assert (times, runs(trio, there, name)) == (1, {run: 1})
        assert not any((agent.files / name).exists() for agent in (away, there))
        assert trio.ctl("schedule", "rm", name, "--yes").code == 0
