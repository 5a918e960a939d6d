"""
Rollouts whose driver, broker or agents fail in each phase: no node changes after an abort, none is forgotten, budgets hold.

The four kinds of rollouts run side by side, each on two nodes of its own: `apply`, `assign`, `exec`, and an `apply` that a server
drives (`detached`). Below, a name without a file is a test of this module.

| Phase                | driver killed                | broker killed                  | agent killed                            |
|----------------------|------------------------------|--------------------------------|-----------------------------------------|
| before the request   | killed_driver[before]        | nothing is sent without it     | test_rollouts: comes_back (`offline`)   |
| asked, not accepted  | killed_driver[spread]        | killed_broker (undo)           | budgets (`unreachable`)                 |
| running              | killed_driver[batch],        | killed_broker, abort_without   | budgets (`lost`), restarted_agent;      |
|                      | another_driver               |                                | test_undo: killed_during_the_undo       |
| baking               | killed_driver[bake]          | killed_broker                  | as `lost`: the node has ended           |
| at a gate            | killed_driver[gate]          | killed_broker                  | as above                                |
| paused by operators  | killed_driver[paused]        | abort_without                  | as above                                |
| ended, record open   | test_rollouts: driver_killed | killed_broker (last wave)      | its end is in the stream                |

Budgets: budgets (failed, unreachable and lost; per wave and in total), and against a model in tests/unit/ccm_ctl/fleet/rollout.
A run without waves (`undo`, `retry`) has no driver: its request is out at once, and nodes end it alone (test_kills, test_undo).
Agents of the released form: test_released. What cannot be a rollout: test_rollouts, test_assignment_rollouts.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.subjects import ROLLOUTS
from ccm_agent.model.records.rollout_records import RolloutState
from tests.support.fleet import Controller, Done, Fleet, a_file, a_gate, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

KINDS = ("apply", "assign", "exec", "detached")
GATED = manifest(a_file("begun"), a_gate(), a_file("done"))
PLAIN = manifest(a_file("begun"))
T = TypeVar("T")


@dataclass
class Rollout:
    """
    One rollout on two nodes.

    Attributes:
        kind: One of KINDS.
        run: Its run; "" until it has one.
        controller: The command that started it.
    """

    site: Site
    kind: str
    controller: Controller
    run: str = ""

    @property
    def nodes(self) -> list[str]:
        """Its nodes, in the order of the waves."""
        return [f"{self.kind}1", f"{self.kind}2"]

    @property
    def begun(self) -> int:
        """How many nodes have begun."""
        return self.site.begun(self.kind)

    @property
    def driver(self) -> Controller:
        """The process that drives it."""
        return self.site.server if self.kind == "detached" and self.site.server else self.controller

    def has_begun(self, count: int) -> bool:
        """So many nodes have begun."""
        return self.begun == count

    def is_on_record(self) -> bool:
        """Its command has said which run it is."""
        return bool(self.controller.so_far.named("run"))

    def is_driven(self) -> bool:
        """Its driver has begun."""
        said = self.driver.so_far
        return (
            f"run {self.run[:8]}: driving" in said.err
            if self.kind == "detached"
            else bool(said.named("rollout"))
        )


@dataclass
class Site:
    """Eight nodes, two for each kind, and what is started on them."""

    fleet: Fleet
    server: Controller | None = None

    @property
    def marks(self) -> Path:
        """Where commands leave a file when they begin; they wait for a file `go` here."""
        return self.fleet.directory / "marks"

    def begun(self, kind: str) -> int:
        """How many nodes of a kind have begun."""
        if kind == "exec":
            return len(list(self.marks.glob("begun.*")))
        return sum((self.fleet.agents[f"{kind}{n}"].files / "begun").exists() for n in (1, 2))

    def start(self, kind: str, *options: str, gated: bool) -> Rollout:
        """Start a rollout; `gated`: its nodes begin, and wait for `open`."""
        text = GATED if gated else PLAIN
        path = self.fleet.write(f"{kind}.yaml", text)
        target = ("-t", f"role={kind}", "--yes", "--json", *options)
        command = f"mktemp -q {self.marks}/begun.XXXXXX" + (
            f"; until [ -e {self.marks}/go ]; do sleep 0.05; done" if gated else ""
        )
        words = {
            "apply": ["apply", path, *target],
            "assign": ["assign", "site", path, *target],
            "exec": ["exec", *target, "--", "sh", "-c", command],
            "detached": ["apply", path, *target, "--detach"],
        }
        if kind == "detached" and self.server is None:
            self.server = self.fleet.begin("rollout", "serve")
        return Rollout(self, kind, self.fleet.begin(*words[kind]))

    def start_each(self, *options: str, gated: bool, kinds: Iterable[str] = KINDS) -> list[Rollout]:
        """Start a rollout of each kind, and wait until all of them have a driver."""
        rollouts = [self.start(kind, *options, gated=gated) for kind in kinds]
        for one in rollouts:
            self.fleet.wait_for(one.is_on_record, f"{one.kind} to be on record")
            one.run = one.controller.so_far.run
            self.fleet.wait_for(one.is_driven, f"{one.kind} to be driven")
        return rollouts

    def ctl(self, *lines: Iterable[str]) -> list[Done]:
        """Run commands side by side."""
        return each(lambda words: self.fleet.ctl(*words), lines)

    def open(self) -> None:
        """Let all nodes go on."""
        (self.marks / "go").touch()
        self.fleet.open_gates()

    def wait_begun(self, rollouts: Iterable[Rollout], count: int) -> None:
        """Wait until so many nodes of each rollout have begun."""
        for one in rollouts:
            self.fleet.wait_for(partial(one.has_begun, count), f"{count} nodes of {one.kind} to begin")

    @property
    def states(self) -> dict[str, RolloutState]:
        """The stored rollouts, by run."""

        async def read() -> dict[str, RolloutState]:
            async with Connection(settings_for(self.fleet.url)) as connection:
                await connection.connect_now()
                entries = await NatsKeyValue(connection, "CCM_RUNS").matching([f"{ROLLOUTS}.*"])
            found = [msgspec.json.decode(entry.value, type=RolloutState) for entry in entries]
            return {state.run: state for state in found}

        return asyncio.run(read())

    def wait_phases(self, rollouts: Iterable[Rollout], *phases: str) -> dict[str, RolloutState]:
        """Wait until the rollouts are in these phases, each in its own; the stored rollouts."""
        runs = [one.run for one in rollouts]
        self.fleet.wait_for(
            lambda: [str(self.states[run].phase) for run in runs] == list(phases), f"the phases {phases}"
        )
        return self.states

    def counts(self, rollouts: Iterable[Rollout]) -> list[dict[str, int]]:
        """How many nodes of each run are in each state, as operators see it."""
        listed = {one["run"]: one["counts"] for one in self.fleet.ctl("run", "list", "--json").named("run")}
        return [listed[one.run] for one in rollouts]

    def close(self) -> None:
        """Let everything end, and forget it."""
        self.open()
        if self.server is not None:
            self.server.kill()
            self.server = None
        if not self.fleet.broker.pid:
            self.fleet.broker.start()
        for agent in self.fleet.agents.values():
            if agent.process is not None:
                agent.go_on()
        dead = [name for name, agent in self.fleet.agents.items() if agent.process is None]
        for name in dead:
            self.fleet.agents[name].start()
        if dead:
            self.fleet.wait_present(dead)
        self.fleet.ctl("unassign", "site", "--yes")
        self.fleet.forget_files()
        for path in self.marks.iterdir():
            path.unlink()


def each(function: Callable[..., T], values: Iterable[object]) -> list[T]:
    """Call a function with each of these, side by side."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(function, values))


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with fleet(tmp_path_factory.mktemp("rollout-faults")) as made:
        site = Site(made)
        site.marks.mkdir()
        names = [f"{kind}{number}" for kind in KINDS for number in (1, 2)]
        made.add(*names, interval="1h", change_pause="0s")
        for done in site.ctl(*(["facts", "set", f"{kind}1", f"{kind}2", f"role={kind}"] for kind in KINDS)):
            assert done.code == 0, done.err
        yield site


@pytest.fixture
def site(eight: Site) -> Iterator[Site]:
    yield eight
    eight.close()


PHASES = [
    pytest.param(("--at", "1h"), False, 0, "running", id="before"),
    pytest.param(("--batch", "1"), True, 1, "running", id="batch"),
    pytest.param(("--canary", "1", "--bake", "1h"), False, 1, "baking", id="bake"),
    pytest.param(("--splay", "1h"), False, 1, "running", id="spread"),
    pytest.param(("--batch", "1,1", "--gate", "changed == 0"), False, 1, "paused", id="gate"),
    pytest.param(("--batch", "1"), True, 1, "paused", id="paused"),
]


@pytest.mark.parametrize(("options", "gated", "count", "phase"), PHASES)
def test_killed_driver_leaves_a_rollout_that_an_abort_ends_for_good(
    site: Site, request: pytest.FixtureRequest, options: tuple[str, ...], gated: bool, count: int, phase: str
) -> None:
    rollouts = site.start_each(*options, gated=gated)
    site.wait_begun(rollouts, count)
    if "paused" in request.node.callspec.id:
        site.ctl(*(["run", "pause", one.run] for one in rollouts))
    site.wait_phases(rollouts, *[phase] * 4)
    for one in rollouts:
        one.driver.kill()

    aborted = site.ctl(*(["run", "abort", one.run] for one in rollouts))
    resumed = site.fleet.ctl("run", "resume", rollouts[0].run)
    site.open()
    counts = site.counts(rollouts)

    assert [done.code for done in aborted] == [0] * 4, aborted
    assert (resumed.code, "this rollout is aborted and cannot be resumed" in resumed.err) == (1, True), (
        resumed.err
    )
    assert [one.begun for one in rollouts] == [count] * 4
    assert [(found["skipped"], sum(found.values())) for found in counts] == [(2 - count, 2)] * 4


def test_killed_broker_delays_rollouts_and_an_undo_and_loses_nothing(site: Site) -> None:
    gate = "failed == 0 && ended >= 1 && len(registrations('prod', 'http', 'web', '*')) == 0"
    apply_node = site.fleet.agents["apply1"]
    undone = apply_node.files / "undone"
    undone.write_text("old")
    path = site.fleet.write("undone.yaml", manifest(a_file("undone", "new")))
    first = site.fleet.ctl("apply", path, "-t", "node=apply1", "--yes", "--json")
    rollouts = site.start_each("--batch", "1,1", "--bake", "1s", "--gate", gate, gated=True)
    site.wait_begun(rollouts, 1)
    undo = site.fleet.begin("undo", first.run, "--yes", "--json")
    site.fleet.wait_for(lambda: undo.so_far.named("run"), "the undo to wait behind the rollout")

    site.fleet.broker.kill()
    site.open()
    for one in rollouts:
        if one.kind != "exec":
            done = site.fleet.agents[one.nodes[0]].files / "done"
            site.fleet.wait_for(done.exists, f"the first node of {one.kind} to end without a broker")
    away = [one.begun for one in rollouts]
    site.fleet.broker.start()
    ended = each(lambda one: one.controller.end(), rollouts[:3])
    site.fleet.wait_for(lambda: site.begun("detached") == 2, "the server to go on")
    undo_done = undo.end()
    site.wait_phases(rollouts, *["done"] * 4)
    counts = site.counts(rollouts)

    assert away == [1] * 4
    assert [done.code for done in ended] == [0] * 3, [done.err for done in ended]
    assert [done.states for done in ended] == [dict.fromkeys(one.nodes, "changed") for one in rollouts[:3]]
    assert counts == [{"changed": 2}] * 4
    assert (undo_done.code, undo_done.states, undone.read_text()) == (0, {"apply1": "changed"}, "old"), (
        undo_done.err
    )
    for one in rollouts:
        assert all(numbers == sorted(set(numbers)) for numbers in site.fleet.stored(one.run).values()), (
            one.kind
        )


def test_abort_without_a_broker_fails_and_with_it_ends_rollouts_before_their_next_node(site: Site) -> None:
    rollouts = site.start_each("--batch", "1", gated=True)
    site.wait_begun(rollouts, 1)
    site.fleet.broker.kill()

    early = site.fleet.ctl("run", "abort", rollouts[0].run)
    site.open()
    for one in rollouts:
        one.driver.process.send_signal(signal.SIGSTOP)
    site.fleet.broker.start()
    late = site.ctl(*(["run", "abort", one.run] for one in rollouts))
    for one in rollouts:
        one.driver.process.send_signal(signal.SIGCONT)
    ended = each(lambda one: one.controller.end(), rollouts[:3])
    counts = site.counts(rollouts)

    assert (early.code, early.out) == (1, "")
    assert early.err.startswith("ccmctl: "), early.err
    assert [done.code for done in late] == [0] * 4, late
    assert [one.begun for one in rollouts] == [1] * 4
    assert [(found["skipped"], sum(found.values())) for found in counts] == [(1, 2)] * 4
    assert [done.states[one.nodes[1]] for one, done in zip(rollouts, ended, strict=False)] == ["skipped"] * 3


def test_budgets_stop_rollouts_whose_agents_die(site: Site) -> None:
    agents = site.fleet.agents
    limits = {
        "apply": ("--max-lost", "100%", "--max-lost-per-wave", "0"),
        "assign": ("--max-unreachable", "0"),
        "exec": ("--max-lost", "1", "--max-lost-per-wave", "100%"),
        "detached": ("--max-unreachable-per-wave", "0", "--max-lost", "100%"),
    }
    rollouts = [
        site.start_each("--batch", "1,1", *limits[kind], gated=True, kinds=[kind])[0] for kind in KINDS
    ]
    site.wait_begun(rollouts, 1)
    for name in ("assign2", "detached2"):
        agents[name].suspend()
    for name in ("apply1", "exec1"):
        agents[name].kill()
    site.fleet.open_gates("assign1", "detached1")
    (site.marks / "go").touch()
    states = site.wait_phases(rollouts, "paused", "paused", "done", "paused")
    stopped = [one.begun for one in rollouts]
    ended = each(lambda one: one.controller.end(), rollouts[:3])
    aborts = [["run", "abort", one.run] for one in rollouts if one.kind != "exec"]
    aborted = site.ctl(*aborts)
    for name in ("assign2", "detached2"):
        agents[name].go_on()
    again = site.ctl(*aborts[1:])
    agents["apply1"].open_gates()
    agents["apply1"].start()
    site.fleet.wait_present(["apply1"])
    shown = site.fleet.ctl("run", "show", rollouts[0].run, "--json")

    assert [states[one.run].reason for one in rollouts] == [
        "1 node of wave 1 is lost; the limit is 0",
        "1 node did not run it; the limit is 0",
        "",
        "1 node of wave 2 did not run it; the limit is 0",
    ]
    assert stopped == [1, 1, 2, 1]
    assert [(done.code, done.states) for done in ended] == [
        (2, {"apply1": "lost"}),
        (2, {"assign1": "changed", "assign2": "unreachable"}),
        (3, {"exec1": "lost", "exec2": "changed"}),
    ]
    assert shown.states == {"apply1": "failed", "apply2": "skipped"}
    silent = [done.err.partition(";")[0] for done in aborted]
    assert silent == [f"no answer to the stop: {name}" for name in ("apply1", "assign2", "detached2")]
    assert [(done.code, "no answer" in done.err) for done in again] == [(0, False)] * 2
    assert [one.begun for one in rollouts] == [1, 1, 2, 1]


def test_agent_restarted_during_its_part_counts_with_its_real_end(site: Site) -> None:
    rollouts = site.start_each("--batch", "1", gated=True, kinds=("apply", "assign"))
    site.wait_begun(rollouts, 1)

    for one in rollouts:
        agent = site.fleet.agents[one.nodes[0]]
        agent.kill()
        agent.open_gates()
        agent.start()
    ended = each(lambda one: one.controller.end(), rollouts)

    assert [(done.code, done.states) for done in ended] == [(2, {one.nodes[0]: "failed"}) for one in rollouts]
    assert [done.named("rollout")[-1]["phase"] for done in ended] == ["paused"] * 2
    assert [site.begun(kind) for kind in ("apply", "assign")] == [1, 1]


def test_another_driver_continues_a_command_and_a_server_closes_what_has_ended(site: Site) -> None:
    [command] = site.start_each("--batch", "1", gated=True, kinds=["exec"])
    [served] = site.start_each("--batch", "2", gated=True, kinds=["detached"])
    site.wait_begun([command], 1)
    site.wait_begun([served], 2)
    standby = site.fleet.begin("rollout", "serve")
    assert site.server is not None
    site.server.kill()
    site.server = standby
    command.controller.process.send_signal(signal.SIGINT)
    left = command.controller.end()
    held = site.begun("exec")

    site.open()
    resumed = site.fleet.ctl("run", "resume", command.run, "--json")
    site.wait_phases([served], "done")

    assert (left.code, held) == (1, 1)
    assert f"continue:  ccmctl run resume {command.run[:8]}" in left.err
    assert (resumed.code, resumed.states) == (0, dict.fromkeys(command.nodes, "changed")), resumed.err
    assert (site.begun("exec"), site.begun("detached")) == (2, 2)
    assert site.counts([command, served]) == [{"changed": 2}] * 2
