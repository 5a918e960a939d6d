"""
What can go wrong around an agent, and the one thing that must come of it: it converges again, and everything is told once.

`FaultyAgent` is an agent process whose clock can be turned, that can be killed at a point of an apply, and whose folders can be
small disks of their own. `assert_converges` is how every test of a fault ends.
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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.events import NatsEvents
from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY
from ccm_agent.model.wire import PROTOCOL
from ccm_agent.storage.journal import read_records
from ccm_agent.storage.spool_segment import Spooled, decoder
from tests.support.faulty_agent import Offsets
from tests.support.fleet import WAIT_S, AgentProcess, Fleet, a_file, manifest

MINUTES_5 = 300.0
FILLER = "filler"
OWNER_ALONE = "mode=0700"
MAKE_DISKS = 'for folder in $DISKS; do mount -t tmpfs -o "$SIZE" tmpfs "$folder" || exit 1; done; exec "$@"'


@dataclass
class FaultyAgent(AgentProcess):
    """
    One agent with its own manifest `site.yaml`.

    Attributes:
        offsets: By how much its clocks are ahead of the host's.
        disks: Folders that are small disks of its own, for each process anew.
        settings: What its configuration holds beside what all agents of tests have.
    """

    offsets: Offsets = field(default_factory=Offsets)
    disks: Sequence[Path] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def command(self) -> list[str]:
        """See `AgentProcess.command`."""
        config = str(self.directory / "agent.yaml")
        agent = [sys.executable, "-m", "tests.support.faulty_agent", "--config", config]
        return [*on_disks(self.disks), *agent] if self.disks else agent

    @property
    def manifest(self) -> Path:
        """Its own manifest."""
        return self.directory / "site.yaml"

    def wants(self, content: str, *more: tuple[str, str, dict[str, Any]]) -> None:
        """Its manifest is a file of this content, and what else is named."""
        self.manifest.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.directory / "site.new"
        fresh.write_text(manifest(a_file("file", content), *more))
        fresh.replace(self.manifest)

    def has(self, content: str, name: str = "file") -> bool:
        """A managed file is there with this content."""
        try:
            return (self.files / name).read_text() == content
        except FileNotFoundError:
            return False

    def pass_time(self, seconds: float) -> None:
        """So much time passes for it, at once."""
        self.turn(wall_s=seconds, steady_s=seconds)

    def turn(self, *, wall_s: float = 0, steady_s: float = 0) -> None:
        """Turn its clocks on by so many seconds, or back."""
        self.offsets = Offsets(self.offsets.wall_s + wall_s, self.offsets.steady_s + steady_s)
        fresh = self.directory / "clock.new"
        fresh.write_bytes(msgspec.json.encode(self.offsets))
        fresh.replace(self.directory / "clock")

    def die(self, point: str) -> None:
        """
        The next process that comes to this point kills itself there.

        Args:
            point: `before` or `after`, then what is written: to the ledger `taken`, `begun` or `ended`; to the spool `start`,
                `resource` or `summary`, or `sent` for that a summary was acknowledged. A run id may follow.
        """
        (self.directory / "die").write_text(point)

    def wait_killed(self, fleet: Fleet) -> None:
        """Wait until the process has come to the point."""
        process, self.process = self.process, None
        assert process is not None
        fleet.wait_for(lambda: process.poll() is not None, f"{self.name} to die")
        assert process.returncode == -signal.SIGKILL, self.log
        (self.directory / "died").unlink()

    def logged(self, message: str) -> list[dict[str, Any]]:
        """The lines of its log that say this."""
        lines = (json.loads(line) for line in self.log.splitlines() if line.startswith("{"))
        return [line for line in lines if line["message"] == message]

    @property
    def ended(self) -> list[str]:
        """The runs that ended, as its log says."""
        return [line["run"] for line in self.logged("a run has ended")]

    @property
    def spooled(self) -> list[Spooled]:
        """What was put into its spool, as far as the files of that go back."""
        folder = self.directory / "state" / "spool"
        is_on_disk = any(disk in (folder, *folder.parents) for disk in self.disks)
        found = []
        for path in sorted((self._inside(folder) if is_on_disk else folder).glob("*.log")):
            records = (decoder.decode(payload) for _, payload in read_records(path.read_bytes()).records)
            found += [record for record in records if isinstance(record, Spooled)]
        return found

    @property
    def begun(self) -> set[str]:
        """The runs of which something was put into its spool."""
        return {record.run for record in self.spooled if record.run}

    def fill(self, disk: Path) -> None:
        """Leave no room on one of its disks."""
        with (self._inside(disk) / FILLER).open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            for size in (4096, 1):
                with contextlib.suppress(OSError):
                    while filler.write(b"\0" * size):
                        pass

    def make_room(self, disk: Path) -> None:
        """Undo `fill`."""
        (self._inside(disk) / FILLER).unlink()

    def _inside(self, disk: Path) -> Path:
        assert self.process is not None
        return Path(f"/proc/{self.process.pid}/root{disk}")


def on_disks(disks: Sequence[Path], size: str = "512k") -> list[str]:
    """The beginning of a command that sees these folders as small disks: in a mount namespace, for which nobody must be root."""
    words = " ".join(map(str, disks))
    options = ["env", f"DISKS={words}", f"SIZE=size={size},mode=0700", "unshare", "--mount"]
    if os.getuid() == 0:
        return [*options, "sh", "-c", MAKE_DISKS, "sh"]
    back = ["unshare", "--user", f"--map-user={os.getuid()}", f"--map-group={os.getgid()}"]
    return [*options, "--user", "--map-root-user", "sh", "-c", MAKE_DISKS, "sh", *back]


def why_no_disks(folder: Path) -> str:
    """Why no process here can have small disks, or ""."""
    done = subprocess.run([*on_disks([folder]), "true"], capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def add_faulty(fleet: Fleet, name: str, *, disks: Sequence[str] = (), **settings: Any) -> FaultyAgent:
    """An agent that is configured and not started; `disks` are folders of its own."""
    directory = fleet.directory / name
    agent = FaultyAgent(name, directory, {**fleet.environ, "FAULTS": str(directory)})
    agent.disks = [directory / disk for disk in disks]
    quick = {
        "interval": "1h",
        "watch_interval": "1s",
        "change_pause": "0s",
        "manifests": [str(agent.manifest)],
    }
    agent.settings = {**quick, **settings}
    agent.configure(fleet.url, **agent.settings)
    for disk in agent.disks:
        disk.mkdir(parents=True)
    fleet.agents[name] = agent
    return agent


def told(fleet: Fleet, node: str) -> list[dict[str, Any]]:
    """What the stream holds of the runs of a node, oldest first."""
    return asyncio.run(_read(fleet, f"{PROTOCOL}.*.*.*.{node}"))


def said(fleet: Fleet, node: str, protocol: str = f"{PROTOCOL}.agent.*") -> list[dict[str, Any]]:
    """What a node has said about itself: all, or what is of one protocol."""
    return asyncio.run(_read(fleet, f"{protocol}.{node}"))


async def _read(fleet: Fleet, subject: str) -> list[dict[str, Any]]:
    async with Connection(settings_for(fleet.url)) as connection:
        await connection.connect_now()
        return [json.loads(event.body) for event in await NatsEvents(connection).read(subject)]


def by_run(events: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Events of each run, in the order in which they stand in the stream."""
    found: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        found.setdefault(event["run"], []).append(event)
    return found


def gaps(known: Collection[str], runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[int]]:
    """
    The runs whose events are not all there, in order and once, with the numbers that are there.

    A run is whole when its numbers are 1 to n without a gap or a double, the first is its start and the last its summary, and
    that says n. Of a run that was killed before its start was told the summary is all.

    Args:
        known: Runs that others know; each must have left a trace.
        runs: Events of each run, in the order of the stream.
    """
    broken: dict[str, list[int]] = {run: [] for run in known if run not in runs}
    for run, events in runs.items():
        numbers = [event["number"] for event in events]
        kinds = [event["protocol"] for event in events]
        ends = [event["events_sent"] for event in events if event["protocol"] == SESSION_SUMMARY]
        is_framed = kinds[0] in (SESSION_START, SESSION_SUMMARY) and kinds[-1] == SESSION_SUMMARY
        if not is_framed or numbers != list(range(1, len(numbers) + 1)) or ends != [len(numbers)]:
            broken[run] = numbers
    return broken


def assert_converges(fleet: Fleet, agent: FaultyAgent, content: str, name: str = "file") -> None:
    """The node comes to what it should be by itself, and the stream tells every run of it completely and once."""
    fleet.wait_for(lambda: agent.has(content, name), f"{name} to be {content!r}")
    deadline = time.monotonic() + WAIT_S
    while True:
        # what is told of a run begins before the run changes anything
        known = agent.begun | set(agent.ended)
        runs = by_run(told(fleet, agent.name))
        broken = gaps(known, runs)
        if not broken or time.monotonic() > deadline:
            break
        # what is under way is not whole yet
        time.sleep(0.1)

    numbers = [(event["run"], agent.name, event["number"]) for events in runs.values() for event in events]
    assert broken == {}, agent.log
    assert len(numbers) == len(set(numbers))
    assert known, "nothing was applied"
    assert agent.has(content, name)


def corrected(
    fleet: Fleet, agent: FaultyAgent, content: str, name: str = "file", *, interval_s: float = MINUTES_5
) -> None:
    """Somebody removes a file, the interval passes, and it is there again."""
    (agent.files / name).unlink()
    runs = len(agent.ended)
    agent.pass_time(interval_s)
    fleet.wait_for(lambda: agent.has(content, name) and len(agent.ended) > runs, f"{name} to be brought back")
