"""Scheduled rollouts on real agents: rollout servers start them, and one of several does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.fleet import Controller, Done, Fleet, a_file, a_gate, fleet, manifest
from tests.support.schedules import add_at

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

NODES = ("web1", "web2", "web3")
GATED = manifest(a_file("begun"), a_gate(), a_file("done"))
FAILS = manifest(a_file("begun"), ("exec", "fails", {"command": "sh -c 'exit 3'"}))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("scheduled")) as made:
        made.add(*NODES)
        yield made


@pytest.fixture
def servers(three: Fleet) -> Iterator[list[Controller]]:
    """Servers that a test begins; they end with it."""
    running: list[Controller] = []
    yield running
    for server in running:
        server.kill()
    three.open_gates()
    for name in [one["name"] for one in three.ctl("schedule", "list", "--json").named("schedule")]:
        three.ctl("schedule", "rm", name, "--yes")
    for run in [one["run"] for one in three.ctl("rollout", "list", "--json").named("rollout")]:
        three.ctl("run", "abort", run)
    three.wait_present(NODES)
    three.forget_files()


def add(fleet: Fleet, name: str, *options: str, text: str = GATED) -> Done:
    """Add a scheduled rollout that is due once, soon."""
    return add_at(fleet, name, fleet.write(f"{name}.yaml", text), "--all", "--json", *options)


def status(fleet: Fleet, name: str) -> Done:
    return fleet.ctl("schedule", "status", name, "--json")


def starts(fleet: Fleet, name: str) -> list[dict[str, Any]]:
    return status(fleet, name).named("scheduled_start")


def with_file(fleet: Fleet, name: str) -> set[str]:
    return {node for node, agent in fleet.agents.items() if (agent.files / name).exists()}


def test_one_of_two_servers_starts_it_and_the_other_drives_it_on_when_that_one_is_killed(
    three: Fleet, servers: list[Controller]
) -> None:
    servers += [three.begin("rollout", "serve"), three.begin("rollout", "serve")]
    three.wait_for(lambda: three.ctl("rollout", "list", "--json").named("rollout_server"), "a server")
    added = add(three, "two", "--batch", "1")
    three.wait_for(lambda: len(with_file(three, "begun")) == 1, "a node to begin")
    [start] = starts(three, "two")
    lines = [server.so_far.err for server in servers]
    driver = next(place for place, text in enumerate(lines) if f"run {start['run'][:8]}: driving" in text)

    servers[driver].kill()
    three.open_gates()
    three.wait_for(lambda: with_file(three, "done") == set(NODES), "the other server to take over")
    three.wait_for(lambda: status(three, "two").code == 0, "the end of the rollout")

    done = status(three, "two")
    [stored] = added.named("schedule")
    assert (stored["rollout"], stored["start_within_s"], len(stored["servers"])) == ("--batch 1", 3600.0, 1)
    assert done.states == dict.fromkeys(NODES, "changed")
    assert [one["run"] for one in done.named("scheduled_start")] == [start["run"]]
    for agent in NODES:
        numbers = three.stored(start["run"])[agent]
        assert numbers == sorted(set(numbers))


def wait_due(fleet: Fleet, name: str) -> None:
    """Wait until the broker has stored that a schedule is due."""

    def is_due() -> bool:
        return any(
            one["name"] == name and one.get("last")
            for one in fleet.ctl("schedule", "list", "--json").named("schedule")
        )

    fleet.wait_for(is_due, f"{name} to be due")


def since_due(fleet: Fleet, name: str) -> timedelta:
    """How long ago the broker stored that a schedule is due."""
    listed = fleet.ctl("schedule", "list", "--json").named("schedule")
    return datetime.now(UTC) - datetime.fromisoformat(
        next(one["last"] for one in listed if one["name"] == name)
    )


@pytest.mark.usefixtures("servers")
def test_a_start_that_was_due_while_no_server_was_there_is_made_by_the_next_one(three: Fleet) -> None:
    three.wait_for(
        lambda: not three.ctl("rollout", "list", "--json").named("rollout_server"),
        "killed servers to be gone",
    )
    added = add(three, "late", "--batch", "2", text=manifest(a_file("begun")))
    wait_due(three, "late")
    assert with_file(three, "begun") == set()

    served = three.ctl("rollout", "serve", "--once")

    assert "warning: no rollout server is running, so nothing starts this" in added.err
    assert (served.code, with_file(three, "begun")) == (0, set(NODES))
    [start] = starts(three, "late")
    assert three.ctl("run", "list", "--schedule", "late", "--json").run == start["run"]
    # what was started is not started again
    three.forget_files()
    assert three.ctl("rollout", "serve", "--once").code == 0
    assert with_file(three, "begun") == set()


@pytest.mark.usefixtures("servers")
def test_a_start_that_was_missed_for_too_long_is_skipped_and_said(three: Fleet) -> None:
    add(three, "missed", "--batch", "2", "--start-within", "1s", text=manifest(a_file("begun")))
    wait_due(three, "missed")

    three.wait_for(lambda: since_due(three, "missed") > timedelta(seconds=1), "the start to be too late")

    served = three.ctl("rollout", "serve", "--once")
    done = status(three, "missed")

    assert "is skipped: no rollout server started it within 1s" in served.err

    assert (done.code, with_file(three, "begun")) == (1, set())
    [start] = done.named("scheduled_start")
    assert start["reason"] == "no rollout server started it within 1s"
    assert "run" not in start


@pytest.mark.usefixtures("servers")
def test_a_schedule_that_is_removed_while_it_is_due_starts_nothing(three: Fleet) -> None:
    add(three, "gone", "--batch", "2", text=manifest(a_file("begun")))
    wait_due(three, "gone")

    removed = three.ctl("schedule", "rm", "gone", "--yes")
    served = three.ctl("rollout", "serve", "--once")

    assert (removed.code, served.code) == (0, 0)
    assert with_file(three, "begun") == set()
    assert three.ctl("rollout", "list", "--json").named("rollout") == []


def test_failures_pause_it_and_the_next_start_is_skipped_while_it_is_open(
    three: Fleet, servers: list[Controller]
) -> None:
    servers.append(three.begin("rollout", "serve"))
    path = three.write("fails.yaml", FAILS)
    three.ctl("schedule", "add", "fails", path, "--every", "3s", "--all", "--yes", "--canary", "1")

    three.wait_for(lambda: any("reason" in one for one in starts(three, "fails")), "a start to be skipped")
    listed = starts(three, "fails")
    run = listed[-1]["run"]
    three.ctl("schedule", "rm", "fails", "--yes")

    assert with_file(three, "begun") == {"web1"}
    assert {one.get("run") for one in listed[:-1]} == {None}
    three.wait_for(
        lambda: three.ctl("rollout", "list", "--json").named("rollout")[0]["phase"] == "paused", "the pause"
    )
    assert f"run {run[:8]} of this schedule is still open" in listed[0]["reason"]


def test_an_abort_from_another_machine_ends_it(three: Fleet, servers: list[Controller]) -> None:
    servers.append(three.begin("rollout", "serve"))
    add(three, "ended", "--batch", "1")
    three.wait_for(lambda: len(with_file(three, "begun")) == 1, "a node to begin")
    [start] = starts(three, "ended")

    aborted = three.ctl("run", "abort", start["run"], "--why", "not today")
    three.open_gates()
    three.wait_for(lambda: status(three, "ended").code == 2, "the end of the rollout")

    assert aborted.code == 0
    assert status(three, "ended").states == {"web1": "stopped", "web2": "skipped", "web3": "skipped"}
    assert with_file(three, "begun") == {"web1"}
