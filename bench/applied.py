"""Measure one `ccmctl apply` by its own records, and the bare program for the same nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from bench.measure import BIN
from ccm_agent.testing.nats_server import NatsServer

GONE = ("lost", "unreachable")


@dataclass
class AppliedRun:
    """
    The measurements of a run.

    Attributes:
        seconds: From the request until the last result.
        ends: The end state of each node.
        worked_s: The working time of each node, by its own clock.
        gone: Nodes that were reported as lost or unreachable, even if they ended in another state.
        peak_kib: The peak memory of the controller.
        cpu_s: CPU time of the controller, from its start to its end.
    """

    seconds: float = 0.0
    ends: dict[str, str] = field(default_factory=dict)
    worked_s: dict[str, float] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    peak_kib: int = 0
    cpu_s: float = 0.0


def apply_run(server: NatsServer, manifest: Path, count: int, *options: str) -> AppliedRun:
    """Apply a manifest on all nodes. All `count` nodes must end, and without a failure unless some were reported as gone."""
    command = [str(BIN / "ccmctl"), "--server", server.url, "--json", "apply", str(manifest)]
    command += ["--targets", "node=*", "--yes", *options]
    applied, begun, last = AppliedRun(), 0.0, 0.0
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout or ():
            record = json.loads(line)
            if record["record"] == "run":
                begun = datetime.fromisoformat(record["time"]).timestamp()
            elif record["record"] == "result":
                last = time.time()
                applied.ends[record["node"]] = record["state"]
                if summary := record.get("summary"):
                    applied.worked_s[record["node"]] = summary["total_duration"] / 1e9
                if record["state"] in GONE:
                    applied.gone.add(record["node"])
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if len(applied.ends) != count or (child.returncode and not applied.gone):
        raise RuntimeError(f"{len(applied.ends)} of {count} nodes ended, exit status {child.returncode}")
    applied.seconds, applied.peak_kib = last - begun, usage.ru_maxrss
    applied.cpu_s = usage.ru_utime + usage.ru_stime
    return applied


def bare_run(server: NatsServer, count: int) -> AppliedRun:
    """Let the bare program send a request to bare nodes, and wait until it has all summaries. It reports no ends."""
    command = [sys.executable, "-m", "bench.simulated", "controller", server.url, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        took = child.stdout.read() if child.stdout else ""
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"the bare program ended with {child.returncode}")
    return AppliedRun(seconds=float(took), peak_kib=usage.ru_maxrss, cpu_s=usage.ru_utime + usage.ru_stime)


def beside_bare(
    server: NatsServer, manifest: Path, count: int, rounds: int, *options: str
) -> tuple[list[AppliedRun], list[AppliedRun]]:
    """Return runs of the bare program over bare nodes, and runs of `ccmctl` over the same nodes, in turns."""
    bare, ours = [], []
    for _ in range(rounds):
        bare.append(bare_run(server, count))
        ours.append(apply_run(server, manifest, count, *options))
    return bare, ours
