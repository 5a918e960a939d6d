"""Diffs: a run over 5,000 simulated agents that send one, beside a bare program; what they cost a controller and a plan."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.applied import AppliedRun, apply_run
from bench.fleet import ccmctl, lay_files, wait_for_nodes
from bench.measure import BIN, Line, ratio, seconds, side_by_side
from bench.node_processes import allow_open_files, node_processes
from ccm_agent.testing.nats_server import temporary_server

AGENTS = 5000
PLANNED_FILES = 1000


def our_run(kind: str, folder: Path, agents: int) -> AppliedRun:
    """A run of `ccmctl apply --diff` over agents of a kind."""
    with temporary_server() as server:
        ccmctl(server, "init")
        with node_processes(kind, server, agents):
            wait_for_nodes(server, agents)
            return apply_run(server, lay_files(folder), agents, "--diff")


def bare_seconds() -> float:
    """Seconds until a bare program holds the summaries of bare nodes that send the same messages."""
    with temporary_server() as server:
        ccmctl(server, "init")
        with node_processes("bare-changed", server, AGENTS):
            command = [sys.executable, "-m", "bench.simulated", "controller", server.url, str(AGENTS)]
            return float(subprocess.check_output(command, text=True))


def lay_many(folder: Path) -> Path:
    """A thousand files that are right, and their manifest."""
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
    """The same plan of files that are right, with diffs and without, in turns."""
    plan = [str(BIN / "ccm"), "apply", str(lay_many(folder)), "--noop", "--no-report"]
    with_diffs, without = side_by_side(5, lambda: seconds([*plan, "--diff"]), lambda: seconds(plan))
    name = f"a plan of {PLANNED_FILES} files that are right, with diffs"
    return [ratio(name, with_diffs, without, 1.05, "the plan without them")]


def measure() -> list[Line]:
    """The budgets of diffs."""
    allow_open_files()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        planned = plan_lines(folder)
        bare = bare_seconds()
        changed, stable = our_run("ours-changed", folder, AGENTS), our_run("ours", folder, AGENTS)
        single = our_run("ours", folder, 2)
    kept = (changed.peak_kib - stable.peak_kib) / AGENTS
    every = (stable.peak_kib - single.peak_kib) / AGENTS
    return [
        *planned,
        Line(
            f"a run over {AGENTS} agents with a diff of 2 KiB each",
            changed.seconds / bare,
            "times",
            1.5,
            f"{changed.seconds:.1f} s against {bare:.1f} s of a bare program",
        ),
        Line(
            "memory of the controller for each node's diff",
            kept,
            "KiB",
            1,
            f"peak {changed.peak_kib >> 10} MiB",
        ),
        Line(
            "memory of the controller for each node without one",
            every,
            "KiB",
            None,
            f"peak {stable.peak_kib >> 10} MiB",
        ),
    ]
