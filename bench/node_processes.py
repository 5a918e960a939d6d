"""Simulated nodes in a few processes, and the CPU time and file limits of those processes."""

from __future__ import annotations

import math
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ccm_agent.testing.nats_server import NatsServer

PROCESSES = 2
FILES_OF_NODE = 4
"""The number of files that a simulated agent keeps open, its connection included."""
END_S = 120


@contextmanager
def node_processes(
    kind: str, server: NatsServer, count: int, module: str = "bench.simulated"
) -> Iterator[list[subprocess.Popen[str]]]:
    """
    Start nodes of a kind, and return when all of them are subscribed. They end with the context.

    Args:
        kind: The first argument of the module.
        server: The broker they connect to.
        count: The number of nodes.
        module: The module to run. It prints the line `ready`, and ends when its input ends.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    processes = max(PROCESSES, math.ceil(count * FILES_OF_NODE / (0.9 * limit)))
    with ExitStack() as stack:
        children = []
        for i in range(processes):
            first, after = i * count // processes, (i + 1) * count // processes
            command = [sys.executable, "-m", module, kind, server.url, str(first), str(after - first)]
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            stack.callback(_end, child)
            children.append(child)
        for child in children:
            if child.stdin is None or child.stdout is None:
                raise RuntimeError("no pipes")
            stack.callback(child.stdin.close)  # close all inputs before the first wait
        for child in children:
            if child.stdout is None or child.stdout.readline() != "ready\n":
                raise RuntimeError(f"nodes of kind {kind} did not come up")
        yield children


def _end(child: subprocess.Popen[str]) -> None:
    """Wait until a process has ended. One that takes too long is killed, because the measurement is complete."""
    try:
        child.wait(END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def allow_open_files() -> None:
    """Raise the connection limit of this process and its children to the machine's maximum."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far. Source: proc_pid_stat(5), fields 14 and 15, in hundredths of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
