"""A crowd: a run over 5,000 simulated agents that share two cores with their broker and their controller."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import datetime
from pathlib import Path

from bench.fleet import BIN, ccmctl, lay_files, wait_for_nodes
from bench.measure import Line
from ccm_agent.testing.nats_server import NatsServer, temporary_server

AGENTS, PROCESSES = 5000, 2
GONE = ("lost", "unreachable")


def start(server: NatsServer) -> list[subprocess.Popen[str]]:
    """The agents, in a few processes, as soon as they listen."""
    each = AGENTS // PROCESSES
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.simulated", "ours", server.url, str(i * each), str(each)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for i in range(PROCESSES)
    ]
    for child in children:
        if child.stdout is None or child.stdout.readline() != "ready\n":
            raise RuntimeError("simulated agents did not come up")
    return children


def stop(children: list[subprocess.Popen[str]]) -> tuple[int, int]:
    """End the agents; how often they published, and how often that was not acknowledged in time."""
    attempts = failures = 0
    for child in children:
        out, _ = child.communicate()
        numbers = out.split()
        attempts, failures = attempts + int(numbers[0]), failures + int(numbers[1])
    return attempts, failures


def one_run(server: NatsServer, manifest: Path) -> tuple[float, Counter[str], set[str]]:
    """Seconds until the last result, the end states, and the nodes that were called gone in between."""
    command = [str(BIN / "ccmctl"), "--server", server.url, "--json"]
    command += ["apply", str(manifest), "--targets", "node=*", "--yes"]
    begun, last, ends, gone = 0.0, 0.0, dict[str, str](), set[str]()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout or ():
            record = json.loads(line)
            if record["record"] == "run":
                begun = datetime.fromisoformat(record["time"]).timestamp()
            elif record["record"] == "result":
                last = time.time()
                ends[record["node"]] = record["state"]
                if record["state"] in GONE:
                    gone.add(record["node"])
    return last - begun, Counter(ends.values()), gone


def measure() -> list[Line]:
    """What becomes of a run when everything waits for the broker."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as name, temporary_server() as server:
        ccmctl(server, "init")
        children = start(server)
        try:
            wait_for_nodes(server, AGENTS)
            took, ends, gone = one_run(server, lay_files(Path(name)))
        finally:
            attempts, failures = stop(children)
    words = ", ".join(f"{count} {state}" for state, count in ends.most_common())
    return [
        Line(f"a run over {AGENTS} agents until every end is known", took, "s", None, words),
        Line("of them called lost or unreachable in between", len(gone), "nodes", 0),
        Line("published in vain, from the start of the agents on", failures, "times", None, f"of {attempts}"),
    ]
