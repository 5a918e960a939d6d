"""
A storm: all nodes of a fleet connect with credentials, lose their broker at the same time, and then all converge together.

`BENCH_NODES` is the number of simulated agents, 10,000 by default. With `BENCH_TLS=1`, they connect over TLS. If
`BENCH_PLOT` names a file, an SVG graph is written there. It shows connections, attempts per second, and the broker's CPU and
memory over time.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
import os
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.applied import apply_run
from bench.fleet import ccmctl, lay_files, wait_for_nodes
from bench.measure import Line
from bench.node_processes import allow_open_files, cpu_s, node_processes
from bench.secured import secured_server
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.streams import call
from ccm_agent.testing.nats_server import NatsServer, free_ports

AGENTS = int(os.environ.get("BENCH_NODES", "10000"))
SESSIONS = "io.choria.ccm.v1.session."
READY_S, BACK_S, CONVERGED_S = 900.0, 300.0, 600.0
EVERY_S = 0.5
DUE_IN_S = 30.0
"""How long before its time the schedule is stored, in seconds."""
DOWN_S = 3.0
"""How long, in seconds, the broker is away. All agents notice within this time."""

KIB = 1024
BEFORE_LOGIN = "$G"
"""The account of connections that have not logged in yet."""


@dataclass(frozen=True)
class Sample:
    """
    The state of the broker at one moment.

    Attributes:
        at_s: Seconds since the first sample.
        connections: Clients that are logged in. The broker's own number also includes connections that still wait for their
            login.
        attempts: TCP connections that the broker has accepted since its start, with or without a login.
        cpu_percent, memory_kib: The CPU and memory that it uses.
        backlog: Agents that have not finished the assignment or schedule of all.
    """

    at_s: float
    connections: int = 0
    attempts: int = 0
    cpu_percent: float = 0.0
    memory_kib: float = 0.0
    backlog: int = 0


class Watch:
    """Samples of a broker's own figures, twice a second. There are no samples while the broker is away."""

    def __init__(self, port: int) -> None:
        self.samples: list[Sample] = []
        self.marks: list[tuple[float, str]] = []
        self.backlog = 0
        self._url = f"http://127.0.0.1:{port}"
        self._begun = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def mark(self, what: str) -> float:
        """Name this moment, and return it."""
        self.marks.append((time.monotonic() - self._begun, what))
        return self.marks[-1][0]

    def wait_for(self, connections: int, within_s: float) -> float:
        """Return the moment from which this many clients are connected."""
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            if self.samples and self.samples[-1].connections >= connections:
                return self.samples[-1].at_s
            time.sleep(EVERY_S / 5)
        found = self.samples[-1].connections if self.samples else 0
        raise RuntimeError(f"{found} of {connections} connected within {within_s:g} s")

    def most_attempts(self, since_s: float) -> float:
        """Return the maximum number of attempts per second, from a given moment on."""
        late = [one for one in self.samples if one.at_s >= since_s]
        rates = [
            (after.attempts - before.attempts) / (after.at_s - before.at_s)
            for before, after in itertools.pairwise(late)
            if after.attempts >= before.attempts
        ]
        return max(rates, default=0.0)

    def _watch(self) -> None:
        while not self._stop.wait(EVERY_S):
            at_s = time.monotonic() - self._begun
            try:
                found = self._ask("varz")
                accounts = self._ask("accstatz?unused=1")["account_statz"]
            except OSError:
                self.samples.append(Sample(at_s, backlog=self.backlog))
                continue
            logged_in = sum(each["conns"] for each in accounts if each["acc"] != BEFORE_LOGIN)
            self.samples.append(
                Sample(
                    at_s,
                    logged_in,
                    found["total_connections"],
                    found["cpu"],
                    found["mem"] / KIB,
                    self.backlog,
                )
            )

    def _ask(self, what: str) -> Any:
        with urllib.request.urlopen(f"{self._url}/{what}", timeout=10) as answer:
            return json.load(answer)


@contextmanager
def watched_server() -> Iterator[tuple[NatsServer, Watch]]:
    """Start a broker with credentials for all agents, and sample its figures."""
    port = free_ports(1)[0]
    more = f"http: 127.0.0.1:{port}\nmax_connections: {2 * AGENTS + 1000}"
    with secured_server([f"node{i:05}" for i in range(AGENTS)], more) as server, Watch(port) as watch:
        yield server, watch


async def stored_subjects(server: NatsServer, pattern: str) -> dict[str, int]:
    """Return the number of stored events by subject."""
    found: dict[str, int] = {}
    authority = os.environ.get("CCM_CA", "")
    settings = settings_for(server.url, identity="bench", creds=os.environ["CCM_CREDS"], ca=authority)
    async with Connection(settings) as connection:
        await connection.connect_now()
        total = 1
        while len(found) < total:
            question = {"subjects_filter": pattern, "offset": len(found)}
            info = await call(connection, "STREAM.INFO.CCM_EVENTS", question)
            total = info.get("total", 0)
            found |= info["state"].get("subjects") or {}
    return found


def wait_for_runs(server: NatsServer, watch: Watch, each: int) -> None:
    """Return when each agent has published the summaries of this many runs."""
    end = time.monotonic() + CONVERGED_S
    while True:
        by_node: Counter[str] = Counter()
        for subject, count in asyncio.run(stored_subjects(server, f"{SESSIONS}summary.>")).items():
            by_node[subject.rpartition(".")[2]] += count
        watch.backlog = AGENTS - sum(count >= each for count in by_node.values())
        if watch.backlog == 0:
            return
        if time.monotonic() > end:
            raise RuntimeError(f"{watch.backlog} of {AGENTS} agents did not finish within {CONVERGED_S:g} s")
        time.sleep(1)


def wrong_nodes(server: NatsServer, each: int) -> int:
    """Return the number of nodes that do not have exactly this many runs, with one start and one summary for each run."""
    runs: dict[str, dict[str, list[str]]] = {}
    for subject, count in asyncio.run(stored_subjects(server, f"{SESSIONS}>")).items():
        kind, run, node = subject.removeprefix(SESSIONS).split(".")
        runs.setdefault(node, {}).setdefault(run, []).extend([kind] * count)
    right = [
        node
        for node, found in runs.items()
        if len(found) == each and all(sorted(kinds) == ["start", "summary"] for kinds in found.values())
    ]
    return AGENTS - len(right)


def schedule_for_all(server: NatsServer, manifest: Path) -> float:
    """Schedule one run of a manifest on all nodes, and return its time, in seconds since 1970."""
    due = math.ceil(time.time() + DUE_IN_S)
    at = datetime.fromtimestamp(due, UTC).isoformat()
    ccmctl(server, "schedule", "add", "storm", str(manifest), "--at", at, "--all", "--yes")
    return due


def agents_cpu(processes: Sequence[subprocess.Popen[str]]) -> float:
    """Return the CPU time of all simulated agents so far, in seconds."""
    return sum(cpu_s(each.pid) for each in processes)


def plot(watch: Watch, path: Path) -> None:
    """Draw the samples: one row for each figure, with the named moments."""
    last = watch.samples[-1].at_s
    rates = [0.0] + [
        max(0.0, (after.attempts - before.attempts) / (after.at_s - before.at_s))
        for before, after in itertools.pairwise(watch.samples)
    ]
    rows = {
        "connections": [float(one.connections) for one in watch.samples],
        "agents that have not finished the assignment or schedule": [
            float(one.backlog) for one in watch.samples
        ],
        "attempts a second": rates,
        "CPU of the broker, %": [one.cpu_percent for one in watch.samples],
        "memory of the broker, MiB": [one.memory_kib / KIB for one in watch.samples],
    }
    width, height, gap, left = 900, 90, 44, 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 2 * left}" height="{len(rows) * (height + gap) + gap}" '
        'font-family="sans-serif" font-size="11">'
    ]
    for number, (name, values) in enumerate(rows.items()):
        top, most = gap + number * (height + gap), max(values) or 1.0
        points = " ".join(
            f"{left + width * one.at_s / last:.1f},{top + height * (1 - value / most):.1f}"
            for one, value in zip(watch.samples, values, strict=True)
        )
        lines.append(f'<text x="{left}" y="{top - 6}">{name} (at most {most:.0f})</text>')
        lines.append(f'<polyline points="{points}" fill="none" stroke="#1f6feb"/>')
    for number, (at_s, what) in enumerate(watch.marks):
        x = left + width * at_s / last
        lines.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{gap}" y2="100%" stroke="#999" stroke-dasharray="3"/>'
        )
        y, anchor = 12 + 12 * (number % 2), "start" if x < 0.9 * width else "end"
        lines.append(f'<text x="{x + 2:.1f}" y="{y}" text-anchor="{anchor}">{what}</text>')
    path.write_text("\n".join([*lines, "</svg>", ""]))


def measure() -> list[Line]:
    """Measure a broker and its fleet when all nodes do the same at the same time."""
    allow_open_files()
    # With TLS, asyncio warns of each connection that ends.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as name, watched_server() as (server, watch):
        manifest = lay_files(Path(name))
        time.sleep(2 * EVERY_S)
        empty_kib, begun = watch.samples[-1].memory_kib, watch.mark("start")
        with node_processes("ours", server, AGENTS) as children:
            connected_s = watch.wait_for(AGENTS, READY_S) - begun
            connect_cpu_s = cpu_s(server.pid)
            wait_for_nodes(server, AGENTS, READY_S)
            each_kib = (watch.samples[-1].memory_kib - empty_kib) / AGENTS
            watch.mark("run")
            first = apply_run(server, manifest, AGENTS)
            lost_at = watch.mark("restart")
            server.stop()
            time.sleep(DOWN_S)
            server.start()
            up_at, agents_cpu_s = watch.mark("up"), agents_cpu(children)
            most_back_s = watch.wait_for(math.ceil(0.9 * AGENTS), BACK_S) - up_at
            back_s = watch.wait_for(AGENTS, BACK_S) - up_at
            agents_cpu_s = agents_cpu(children) - agents_cpu_s
            attempts, back_cpu_s = watch.samples[-1].attempts / AGENTS, cpu_s(server.pid)
            wait_for_nodes(server, AGENTS, READY_S)
            watch.mark("run")
            second = apply_run(server, manifest, AGENTS)
            assigned_at = watch.mark("assignment")
            ccmctl(server, "assign", "site", str(manifest), "--all", "--yes")
            wait_for_runs(server, watch, 3)
            converged_s = watch.mark("converged") - assigned_at
            due = schedule_for_all(server, manifest)
            watch.mark("schedule stored")
            wait_for_runs(server, watch, 4)
            scheduled_s = time.time() - due
            watch.mark("schedule done")
            wrong = wrong_nodes(server, 4)
            peak_kib = (max(one.memory_kib for one in watch.samples) - empty_kib) / AGENTS
        if target := os.environ.get("BENCH_PLOT"):
            plot(watch, Path(target))
    called_gone = len(first.gone) + len(second.gone)
    return [
        Line(f"{AGENTS} agents with credentials until all are connected", connected_s, "s"),
        Line("CPU time of the broker for each of these logins", 1000 * connect_cpu_s / AGENTS, "ms"),
        Line(
            "memory of the broker for each connection",
            each_kib,
            "KiB",
            80,
            f"{peak_kib:.0f} KiB at the peak of all that follows",
        ),
        Line("a restarted broker, until all are back", back_s, "s", 30, f"90 % after {most_back_s:.0f} s"),
        Line("attempts of an agent meanwhile", attempts, "attempts", 2),
        Line("the most attempts in a second", watch.most_attempts(lost_at), "attempts", 5000),
        Line(
            "CPU time of the broker for each agent that returns",
            1000 * back_cpu_s / AGENTS,
            "ms",
            None,
            f"{1000 * agents_cpu_s / AGENTS:.1f} ms of the agent itself, on the same cores",
        ),
        Line(
            "a run over all of them, before and after the restart",
            second.seconds,
            "s",
            None,
            f"{first.seconds:.1f} s before",
        ),
        Line("of them called lost or unreachable in between", called_gone, "nodes", 0),
        Line("a new assignment for all, until each has applied it", converged_s, "s"),
        Line("a schedule that is due for all, until each has run it", scheduled_s, "s"),
        Line("nodes that have not run all four once, with each event stored once", wrong, "nodes", 0),
    ]
