"""Overload: a run over 5,000 simulated agents that share two cores with their broker and their controller."""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from bench.applied import apply_run
from bench.fleet import ccmctl, lay_files, wait_for_nodes
from bench.measure import Line
from bench.node_processes import allow_open_files, node_processes
from ccm_agent.testing.nats_server import temporary_server

AGENTS = 5000


def published(ended: list[subprocess.Popen[str]]) -> tuple[int, int]:
    """Return how often agents published, and how often the acknowledgment was late."""
    attempts = failures = 0
    for child in ended:
        numbers = child.stdout.read().split() if child.stdout else []
        attempts, failures = attempts + int(numbers[0]), failures + int(numbers[1])
    return attempts, failures


def measure() -> list[Line]:
    """Measure a run in which everything waits for the broker."""
    allow_open_files()
    with tempfile.TemporaryDirectory() as name, temporary_server() as server:
        ccmctl(server, "init")
        with node_processes("ours", server, AGENTS) as children:
            wait_for_nodes(server, AGENTS)
            applied = apply_run(server, lay_files(Path(name)), AGENTS)
        attempts, failures = published(children)
    words = ", ".join(f"{count} {state}" for state, count in Counter(applied.ends.values()).most_common())
    return [
        Line(f"a run over {AGENTS} agents until every end is known", applied.seconds, "s", None, words),
        Line("of them called lost or unreachable in between", len(applied.gone), "nodes", 0),
        Line("published in vain, from the start of the agents on", failures, "times", None, f"of {attempts}"),
    ]
