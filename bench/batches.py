"""
Batches: a run with `--batch 10%` over 1,000 simulated nodes with a known working time, compared with the sum of its batches.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from bench.applied import AppliedRun, apply_run
from bench.fleet import ccmctl, lay_files, wait_for_nodes
from bench.measure import Line
from bench.node_processes import allow_open_files, node_processes
from ccm_agent.testing.nats_server import temporary_server

NODES, BATCH_PERCENT = 1000, 10
SLOTS = NODES * BATCH_PERCENT // 100
ROUNDS = 3


def runs_over(kind: str, rounds: int) -> list[AppliedRun]:
    """Run rollouts over nodes of a kind."""
    with tempfile.TemporaryDirectory() as name, temporary_server() as server:
        ccmctl(server, "init")
        with node_processes(kind, server, NODES):
            wait_for_nodes(server, NODES)
            manifest = lay_files(Path(name))
            return [apply_run(server, manifest, NODES, "--batch", f"{BATCH_PERCENT}%") for _ in range(rounds)]


def lost_line(kind: str, runs: list[AppliedRun]) -> Line:
    """Return the duration of rollouts as a multiple of the work in their slots."""
    lost = statistics.median(run.seconds * SLOTS / sum(run.worked_s.values()) for run in runs)
    took = statistics.median(run.seconds for run in runs)
    cpu = statistics.median(run.cpu_s for run in runs)
    return Line(
        f"a run with --batch {BATCH_PERCENT}% over {NODES} nodes of kind {kind}",
        lost,
        "times",
        1.1,
        f"{took:.1f} s, of them {cpu:.1f} s of CPU, in {SLOTS} slots",
    )


def measure() -> list[Line]:
    """
    The time in which a slot waits for its next node is lost to orchestration.

    All nodes of a batch end at the same moment, and share two cores with the broker and the driver. So a batch loses the time
    for a hundred nodes' messages, regardless of whether the nodes worked for one second or for five.
    """
    allow_open_files()
    short, longer = runs_over("bare-1s", ROUNDS), runs_over("bare-5s", 1)
    return [lost_line("bare-1s", short), lost_line("bare-5s", longer)]
