"""
Signatures: a run over bare nodes that sign, compared with a bare program that verifies the same messages. `BENCH_NODES` is their
number, 2,000 by default.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.applied import AppliedRun, apply_run, beside_bare
from bench.fleet import lay_files, wait_for_nodes
from bench.measure import Line
from bench.node_processes import allow_open_files, node_processes
from bench.secured import secured_server
from ccm_agent.testing.nats_server import NatsServer

AGENTS = int(os.environ.get("BENCH_NODES", "2000"))
ROUNDS = 3
READY_S = 900.0


@contextmanager
def signing_nodes(count: int) -> Iterator[NatsServer]:
    """Start a broker with credentials, and bare nodes that sign."""
    names = [f"node{i:05}" for i in range(count)]
    with secured_server(names) as server, node_processes("bare", server, count):
        wait_for_nodes(server, count, READY_S)
        yield server


def medians(runs: list[AppliedRun]) -> tuple[float, float, float]:
    """Return the medians of the seconds, the CPU time in seconds, and the peak memory in KiB."""
    return (
        statistics.median(run.seconds for run in runs),
        statistics.median(run.cpu_s for run in runs),
        statistics.median(run.peak_kib for run in runs),
    )


def measure() -> list[Line]:
    """Measure runs over all nodes, in turns with the bare program, and one run over two nodes."""
    allow_open_files()
    with tempfile.TemporaryDirectory() as name:
        manifest = lay_files(Path(name))
        with signing_nodes(AGENTS) as server:
            bare_runs, runs = beside_bare(server, manifest, AGENTS, ROUNDS)
        with signing_nodes(2) as server:
            base = apply_run(server, manifest, 2)
    (bare_s, bare_cpu_s, _), (our_s, our_cpu_s, peak_kib) = medians(bare_runs), medians(runs)
    return [
        Line(
            f"a run over {AGENTS} nodes that sign",
            our_s / bare_s,
            "times",
            1.5,
            f"{our_s:.2f} s ({our_cpu_s:.1f} s of CPU) against {bare_s:.2f} s ({bare_cpu_s:.1f} s) of a bare program over the "
            "same nodes",
        ),
        Line(
            "memory of the controller for each of them",
            (peak_kib - base.peak_kib) / AGENTS,
            "KiB",
            1,
            f"peak {peak_kib / 1024:.0f} MiB",
        ),
        Line("of them called lost or unreachable in between", sum(len(run.gone) for run in runs), "nodes", 0),
    ]
