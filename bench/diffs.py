"""
Diffs: a run over 5,000 simulated agents that send one, compared with a bare program; their cost for a controller and a plan.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from bench.applied import AppliedRun, apply_run, beside_bare
from bench.fleet import ccmctl, lay_files, wait_for_nodes
from bench.measure import BIN, Line, ratio, seconds, side_by_side
from bench.node_processes import allow_open_files, node_processes
from ccm_agent.testing.nats_server import temporary_server

AGENTS = 5000
ROUNDS = 3
PLANNED_FILES = 1000


def our_run(kind: str, folder: Path, agents: int) -> AppliedRun:
    """Run `ccmctl apply --diff` over nodes of a kind."""
    with temporary_server() as server:
        ccmctl(server, "init")
        with node_processes(kind, server, agents):
            wait_for_nodes(server, agents)
            return apply_run(server, lay_files(folder), agents, "--diff")


def with_diffs(folder: Path) -> tuple[list[AppliedRun], list[AppliedRun]]:
    """Return runs of the bare program, and runs of `ccmctl`, over nodes that send a diff."""
    with temporary_server() as server:
        ccmctl(server, "init")
        with node_processes("bare-changed", server, AGENTS):
            wait_for_nodes(server, AGENTS)
            return beside_bare(server, lay_files(folder), AGENTS, ROUNDS, "--diff")


def lay_many(folder: Path) -> Path:
    """Write a thousand files in the desired state, and their manifest."""
    lines = ["ccm:", "  resources:", "    - file:"]
    owner = f"owner: '{os.getuid()}', group: '{os.getgid()}'"
    for i in range(PLANNED_FILES):
        path = folder / f"right{i}"
        path.write_text("right\n" * 40)
        path.chmod(0o644)
        text = "right\\n" * 40
        lines.append(f'        - {path}: {{ensure: present, content: "{text}", {owner}, mode: "0644"}}')
    manifest = folder / "many.yaml"
    manifest.write_text("\n".join(lines) + "\n")
    return manifest


def plan_lines(folder: Path) -> list[Line]:
    """Measure the same plan of unchanged files with and without diffs, in turn."""
    plan = [str(BIN / "ccm"), "apply", str(lay_many(folder)), "--noop", "--no-report"]
    with_diffs, without = side_by_side(5, lambda: seconds([*plan, "--diff"]), lambda: seconds(plan))
    name = f"a plan of {PLANNED_FILES} files that are right, with diffs"
    return [ratio(name, with_diffs, without, 1.05, "the plan without them")]


def measure() -> list[Line]:
    """Measure the budgets of diffs."""
    allow_open_files()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        planned = plan_lines(folder)
        bare_runs, runs = with_diffs(folder)
        stable, single = our_run("bare", folder, AGENTS), our_run("bare", folder, 2)
        agents = our_run("ours-changed", folder, AGENTS)
    bare, ours = (statistics.median(run.seconds for run in some) for some in (bare_runs, runs))
    peak = statistics.median(run.peak_kib for run in runs)
    cpu = statistics.median(run.cpu_s for run in runs)
    return [
        *planned,
        Line(
            f"a run over {AGENTS} nodes with a diff of 2 KiB each",
            ours / bare,
            "times",
            1.5,
            f"{ours:.1f} s, of them {cpu:.1f} s of CPU, against {bare:.1f} s of a bare program over the same nodes",
        ),
        Line(
            f"the same with {AGENTS} real agents on the two cores",
            agents.seconds / bare,
            "times",
            None,
            f"{agents.seconds:.1f} s",
        ),
        Line(
            "memory of the controller for each node's diff",
            (peak - stable.peak_kib) / AGENTS,
            "KiB",
            1,
            f"peak {peak / 1024:.0f} MiB",
        ),
        Line(
            "memory of the controller for each node without one",
            (stable.peak_kib - single.peak_kib) / AGENTS,
            "KiB",
            None,
            f"peak {stable.peak_kib >> 10} MiB",
        ),
    ]
