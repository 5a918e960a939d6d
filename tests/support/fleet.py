"""
A fleet of real processes: a nats-server, agents and the controller, each as people start them.

Everything lives in one directory of the test's own; `close` ends what was started, by its id. Waiting looks again and again under
a limit: what is waited for happens in other processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.events import NatsEvents
from ccm_agent.bus.streams import call
from ccm_agent.bus.subjects import parse_event, run_pattern
from ccm_agent.testing.nats_server import NatsServer, ServerSettings, cluster_servers
from tests.support import processes
from tests.support.processes import Process
from tests.support.records import check_records

TOP = Path(__file__).resolve().parents[2]
WAIT_S = 60.0
"""How long a test waits for what must happen; only a failure takes so long."""


FILES = "{{ lookup('facts.files') }}"
"""In a manifest: the folder of the node that applies it."""

GATE_OPEN = "go"
"""A run that stands at a gate goes on once this file is in the node's folder."""


def manifest(*resources: tuple[str, str, dict[str, Any]]) -> str:
    """A manifest of resources: type, name and properties of each."""
    listed = [{kind: [{name: properties}]} for kind, name, properties in resources]
    return json.dumps({"ccm": {"resources": listed}})


def a_file(name: str, content: str = "x") -> tuple[str, str, dict[str, Any]]:
    """A file in the node's folder."""
    owner = {"owner": str(os.getuid()), "group": str(os.getgid()), "mode": "0644"}
    return "file", f"{FILES}/{name}", {"ensure": "present", "content": content, **owner}


def a_gate(name: str = GATE_OPEN) -> tuple[str, str, dict[str, Any]]:
    """
    A command that ends when a file of this name is in the node's folder; before, it leaves one that says it is `at-` it.

    It ends as well when that one is gone: a test that is over must leave nothing behind that waits for ever.
    """
    mark = f"{FILES}/at-{name}"
    waits = f"touch {mark}; until [ -e {FILES}/{name} -o ! -e {mark} ]; do sleep 0.05; done"
    return "exec", f"gate-{name}", {"command": f'sh -c "{waits}"', "timeout": "120s"}


@dataclass
class Done:
    """How a command line ended."""

    code: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """The lines of `--json`; each must fit its schema."""
        found = [json.loads(line) for line in self.out.splitlines()]
        check_records(found)
        return found

    def named(self, kind: str) -> list[dict[str, Any]]:
        """The records of one kind."""
        return [record for record in self.records if record["record"] == kind]

    @property
    def states(self) -> dict[str, str]:
        """Where each node of a run came to."""
        return {record["node"]: record["state"] for record in self.named("result")}

    @property
    def reasons(self) -> dict[str, str]:
        """Why each node ended so."""
        return {record["node"]: record.get("reason", "") for record in self.named("result")}

    @property
    def resources(self) -> list[dict[str, Any]]:
        """The resource events that were shown."""
        events = [record["event"] for record in self.named("event")]
        return [event for event in events if event["protocol"].endswith("transaction.event")]

    @property
    def numbers(self) -> dict[str, list[int]]:
        """Numbers of the events that were shown, by node, in that order."""
        found: dict[str, list[int]] = {}
        for record in self.named("event"):
            found.setdefault(record["event"]["node"], []).append(record["event"]["number"])
        return found

    def changed(self, name: str) -> set[str]:
        """Nodes that reported a change of a file of this name."""
        return {
            event["node"]
            for event in self.resources
            if event["changed"] and event["name"].endswith(f"/{name}")
        }

    @property
    def run(self) -> str:
        """The id of the run."""
        return str(self.named("run")[0]["run"])


class Controller:
    """A `ccmctl` that runs on its own; its output goes to files."""

    def __init__(
        self, directory: Path, arguments: Sequence[str], environ: Mapping[str, str], code: Path
    ) -> None:
        self._out, self._err = directory / "out", directory / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            command = [sys.executable, "-m", "ccm_ctl", *arguments]
            environ = {**environ, "PYTHONPATH": str(code)}
            self.process = processes.start(command, cwd=code, env=environ, stdout=out, stderr=err)

    @property
    def so_far(self) -> Done:
        """What it has said until now; the last line only when it is whole."""
        out = self._out.read_text()
        code = self.process.poll()
        whole = out[: out.rfind("\n") + 1]
        return Done(-1 if code is None else code, whole, self._err.read_text())

    def end(self) -> Done:
        """Wait for its end."""
        self.process.wait(WAIT_S)
        return self.so_far

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()


@dataclass
class AgentProcess:
    """
    One agent: its state outlives its processes.

    Attributes:
        code: The tree that its processes run.
    """

    name: str
    directory: Path
    environ: dict[str, str]
    process: Process | None = field(default=None)
    code: Path = TOP

    @property
    def files(self) -> Path:
        """Where this node's managed files are to be put."""
        return self.directory / "files"

    def configure(self, url: str, **settings: Any) -> None:
        """Write the configuration, and the fact that tells manifests where this node's files are."""
        self.files.mkdir(parents=True, exist_ok=True)
        facts = self.directory / "facts.json"
        facts.write_text(json.dumps({"files": str(self.files), "name": self.name}))
        document = {
            "identity": self.name,
            "nats": {"url": url},
            "state_dir": str(self.directory / "state"),
            "facts_file": str(facts),
            "heartbeat": "5s",
            "connect_spread": "0s",
            "log_format": "json",
        }
        (self.directory / "agent.yaml").write_text(json.dumps(document | settings))

    @property
    def command(self) -> list[str]:
        """How a process of it is started."""
        return [sys.executable, "-m", "ccm_agent", "agent", "--config", str(self.directory / "agent.yaml")]

    def start(self) -> None:
        """Start a process."""
        with (self.directory / "agent.log").open("ab") as log:
            environ = self.environ | {"PYTHONPATH": str(self.code)}
            self.process = processes.start(
                self.command, cwd=self.code, env=environ, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def suspend(self) -> None:
        """Let it do nothing until `go_on`; its connection and its sign of life last for a while."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """As the service manager stops it."""
        self._end(signal.SIGTERM)

    def open_gates(self) -> None:
        """Let all commands end that stand at a gate; they outlive an agent that was killed."""
        for mark in self.files.glob("at-*"):
            (self.files / mark.name.removeprefix("at-")).touch()

    @property
    def log(self) -> str:
        """What all its processes have logged."""
        return (self.directory / "agent.log").read_text()

    def _end(self, number: int) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Fleet:
    """A broker, agents by name, and a controller."""

    def __init__(self, directory: Path, servers: Sequence[NatsServer]) -> None:
        self.directory = directory
        self.servers = list(servers)
        self.agents: dict[str, AgentProcess] = {}
        self._controllers: list[Controller] = []
        home = directory / "home"
        home.mkdir(parents=True)
        self.environ = {
            "PATH": os.environ["PATH"],
            "XDG_STATE_HOME": str(directory / "state"),
            "HOME": str(home),
            "USER": "tester",
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(TOP),
            "NATS_URL": self.url,
        }

    @property
    def url(self) -> str:
        """Where the broker is."""
        return ",".join(server.url for server in self.servers)

    @property
    def broker(self) -> NatsServer:
        """The first server."""
        return self.servers[0]

    def add(self, *names: str, code: Path = TOP, **settings: Any) -> None:
        """Start agents of a tree, and wait until they are all present."""
        for name in names:
            agent = AgentProcess(name, self.directory / name, self.environ, code=code)
            agent.configure(self.url, **settings)
            self.agents[name] = agent
            agent.start()
        self.wait_present(names)

    def wait_present(self, names: Iterable[str]) -> None:
        """Wait until nodes are present."""
        wanted = set(names)

        def present() -> bool:
            done = self.ctl("nodes", "--json")
            states = {record["node"]: record["state"] for record in done.named("node")}
            return all(states.get(name) == "present" for name in wanted)

        self.wait_for(present, f"{wanted} to be present")

    def ctl(
        self, *arguments: str, stdin: str = "", environ: Mapping[str, str] | None = None, code: Path = TOP
    ) -> Done:
        """Run `ccmctl` of a tree to its end."""
        command = [sys.executable, "-m", "ccm_ctl", *arguments]
        environ = self.environ | {"PYTHONPATH": str(code)} | dict(environ or {})
        done = processes.run(command, cwd=code, env=environ, stdin=stdin, timeout=WAIT_S * 2)
        return Done(done.returncode, done.stdout, done.stderr)

    def begin(
        self, *arguments: str, code: Path = TOP, environ: Mapping[str, str] | None = None
    ) -> Controller:
        """Start `ccmctl` of a tree and go on."""
        directory = self.directory / f"ctl-{len(self._controllers)}"
        directory.mkdir()
        environ = self.environ | dict(environ or {})
        self._controllers.append(Controller(directory, arguments, environ, code))
        return self._controllers[-1]

    def write(self, name: str, text: str) -> str:
        """Write a file beside the fleet; its path."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def open_gates(self, *names: str, gate: str = GATE_OPEN) -> None:
        """Let runs go on that stand at a gate; those of all nodes unless some are named."""
        for name in names or self.agents:
            (self.agents[name].files / gate).write_text("")

    def forget_files(self) -> None:
        """Empty the folders of all nodes."""
        for agent in self.agents.values():
            for path in agent.files.iterdir():
                path.unlink()

    def leader_of(self, stream: str) -> NatsServer:
        """The member of the cluster that leads a stream."""
        return asyncio.run(self._leader_of(stream))

    async def _leader_of(self, stream: str) -> NatsServer:
        async with Connection(settings_for(self.url)) as connection:
            await connection.connect_now()
            info = await call(connection, f"STREAM.INFO.{stream}")
        return next(one for one in self.servers if one.settings.name == info["cluster"]["leader"])

    def stored(self, run: str) -> dict[str, list[int]]:
        """Numbers of the events in the stream, by node, in the order in which they stand there."""
        return asyncio.run(self._stored(run))

    async def _stored(self, run: str) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        async with Connection(settings_for(self.url)) as connection:
            await connection.connect_now()
            for event in await NatsEvents(connection).read(run_pattern(run)):
                found.setdefault(parse_event(event.subject).node, []).append(json.loads(event.body)["number"])
        return found

    def wait_for(self, happened: Callable[[], object], what: str) -> None:
        """Look until something has happened."""
        deadline = time.monotonic() + WAIT_S
        while not happened():
            if time.monotonic() > deadline:
                logs = "\n".join(f"{name}: {agent.log[-1500:]}" for name, agent in self.agents.items())
                raise AssertionError(f"waited in vain for {what}\n{logs}")
            time.sleep(0.1)

    def close(self) -> None:
        """End everything that was started here."""
        for controller in self._controllers:
            if controller.process.poll() is None:
                controller.kill()
        for agent in self.agents.values():
            agent.kill()
            agent.open_gates()
        for server in self.servers:
            server.stop()


def assert_told_once(fleet: Fleet, done: Done) -> None:
    """
    Each event stands in the stream once and in order, and was shown once and in order.

    What was heard is not yet stored where the stream has just lost its leader: the agent publishes it again.
    """
    fleet.wait_for(lambda: _sizes(fleet.stored(done.run)) >= _sizes(done.numbers), "the spools to be drained")
    stored = fleet.stored(done.run)

    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in stored.values()), stored
    assert done.numbers == stored, f"shown {done.numbers}, stored {stored}"


def _sizes(numbers: dict[str, list[int]]) -> int:
    return sum(map(len, numbers.values()))


@contextlib.contextmanager
def fleet(directory: Path, *, servers: int = 1, init: Sequence[str] = ()) -> Iterator[Fleet]:
    """A broker (or a cluster of them), initialised with these options, without agents; all of it ends with the block."""
    if servers == 1:
        made = [NatsServer(ServerSettings(directory=directory / "nats"))]
        made[0].start()
    else:
        made = list(cluster_servers(directory / "nats", servers))
        for server in made:
            server.launch()
        for server in made:
            server.wait_ready()
    built = Fleet(directory, made)
    try:
        done = built.ctl("init", *init)
        assert done.code == 0, done.err
        yield built
    finally:
        built.close()
