"""
An agent's long life, shortened: 3,000 applies of one agent, the memory that they leave behind, and the CPU cost of 1,000 files.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.fleet import ccmctl, wait_for_nodes
from bench.local import lay_files
from bench.measure import Line
from ccm_agent.testing.nats_server import NatsServer, free_ports, temporary_server

APPLIES, WARM = 3000, 300
FILES, MANY_FILES = 20, 1000
CONVERGES = 30
DRIFT_EVERY = 50
"""A file is changed from outside after this many applies, so that some applies have work to do."""
INTERVAL_S, SLOW_INTERVAL_S = 0.01, 1.0
PATIENCE_S = 900
AGENT = """
import sys
from pathlib import Path
from msgspec.structs import replace
from ccm_agent import app_agent
read = app_agent.read_config
app_agent.read_config = lambda path: replace(
    read(path), interval_s=float(sys.argv[2]), heartbeat_s=1.0, log_level="error"
)
app_agent.run_agent(sys.argv[1])
"""


class Readings:
    """The values of an agent's `/metrics`. Reading them often costs the agent more than its work."""

    def __init__(self, port: int, pause_s: float) -> None:
        self._pause_s = pause_s
        self._url = f"http://127.0.0.1:{port}/metrics"

    def now(self) -> dict[str, float]:
        """Return all series and their values."""
        with urllib.request.urlopen(self._url, timeout=30) as answer:
            text = answer.read().decode()
        return {name: float(value) for name, value in re.findall(r"^([^#].*) (\S+)$", text, re.MULTILINE)}

    def after(self, applies: int, between: Callable[[int], None] = lambda _: None) -> dict[str, float]:
        """Return the values after this many applies. `between` is called at intervals with the current number."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                found = self.now()
            except OSError:
                found = {}
            done = int(sum(found[name] for name in found if name.startswith("choria_ccm_agent_runs_total")))
            if done >= applies:
                return found
            between(done)
            time.sleep(self._pause_s)
        raise RuntimeError(f"{applies} applies did not end in {PATIENCE_S} s")


@contextmanager
def agent(folder: Path, server: NatsServer, manifest: Path, interval_s: float) -> Iterator[Readings]:
    """Run an agent that applies a manifest at a shorter interval than a configuration allows."""
    (port,) = free_ports(1)
    config = folder / "agent.yaml"
    config.write_text(
        f"identity: old\nstate_dir: {folder}/state\nconnect_spread: 0s\nnats: {{url: {server.url}}}\n"
        f"manifests: [{manifest}]\nmonitor_port: {port}\nexternal_data_url: kv://CCM_DATA/common\n"
    )
    child = subprocess.Popen([sys.executable, "-c", AGENT, str(config), str(interval_s)])
    try:
        wait_for_nodes(server, 1)
        yield Readings(port, max(0.1, interval_s * CONVERGES))
    finally:
        child.terminate()
        child.wait(60)


def drifting(file: Path) -> Callable[[int], None]:
    """Return a function that changes a file at intervals without the agent."""
    right, last = file.read_bytes(), [0]

    def change(done: int) -> None:
        if done - last[0] >= DRIFT_EVERY:
            last[0] = done
            file.write_bytes(right + b"drift\n")

    return change


def floor(files: Path) -> float:
    """Return the CPU seconds of a warm loop that stats, reads and hashes files."""
    taken = []
    for _ in range(CONVERGES):
        begun = time.process_time()
        for entry in os.scandir(files):
            entry.stat()
            with open(entry.path, "rb") as file:
                hashlib.sha256(file.read()).hexdigest()
        taken.append(time.process_time() - begun)
    return sorted(taken)[len(taken) // 2]


def measure() -> list[Line]:
    """Measure memory, descriptors and tasks after a long life, and the CPU time of a converge."""
    with temporary_server() as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ccmctl(server, "init")
        data = folder / "common.yaml"
        data.write_text("data: {greeting: hello}\n")
        ccmctl(server, "data", "put", "common", str(data))
        manifest, _ = lay_files(folder, FILES)
        with agent(folder, server, manifest, INTERVAL_S) as readings:
            change = drifting(folder / f"files{FILES}" / "7")
            young = readings.after(WARM, change)
            old = readings.after(APPLIES, change)
        (folder / "many").mkdir()
        manifest, _ = lay_files(folder / "many", MANY_FILES)
        with agent(folder / "many", server, manifest, SLOW_INTERVAL_S) as readings:
            before = readings.after(3)
            after = readings.after(3 + CONVERGES)
        ours = (after["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]) / CONVERGES
        theirs = floor(folder / "many" / f"files{MANY_FILES}")
    grown = old["process_resident_memory_bytes"] / young["process_resident_memory_bytes"] - 1
    mib = [one["process_resident_memory_bytes"] / (1 << 20) for one in (young, old)]
    files, tasks = (old[key] - young[key] for key in ("process_open_fds", "choria_ccm_agent_tasks"))
    return [
        Line(
            f"memory grown from apply {WARM} to {APPLIES}",
            grown * 100,
            "%",
            2,
            f"{mib[0]:.1f} to {mib[1]:.1f} MiB",
        ),
        Line("file descriptors more", files, "descriptors", 3),
        Line("tasks more", tasks, "tasks", 3),
        Line(
            f"CPU of a converge of {MANY_FILES} right files in the agent",
            ours / theirs,
            "times",
            5,
            f"{ours * 1000:.1f} ms against {theirs * 1000:.1f} ms of a loop that stats, reads and hashes",
        ),
    ]
