"""Memory: an idle agent, compared with a nats-py client that imports the modules that an agent needs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.fleet import ccmctl, wait_for_nodes
from bench.measure import BIN, Line
from ccm_agent.testing.nats_server import temporary_server

SETTLED_S = 5
"""Seconds after its start in which an agent reads data, facts and assignments. After that it is idle."""
CLIENT = """
import asyncio, sys, nats, msgspec, jinja2, yaml
async def main():
    client = await nats.connect(sys.argv[1])
    print("ready", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process, from /proc."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} is gone")


def measure() -> list[Line]:
    """Measure the resident memory of both."""
    with temporary_server() as server, tempfile.TemporaryDirectory() as name:
        ccmctl(server, "init")
        config = Path(name, "agent.yaml")
        config.write_text(
            f"identity: idle\nstate_dir: {name}/state\nconnect_spread: 0s\nnats: {{url: {server.url}}}\n"
        )
        agent = subprocess.Popen(
            [str(BIN / "ccm"), "agent", "--config", str(config)], stderr=subprocess.DEVNULL
        )
        client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, server.url], stdout=subprocess.PIPE, text=True
        )
        try:
            wait_for_nodes(server, 1)
            if client.stdout is None or client.stdout.readline() != "ready\n":
                raise RuntimeError("the client did not connect")
            time.sleep(SETTLED_S)
            ours, theirs = resident_mib(agent.pid), resident_mib(client.pid)
        finally:
            for child in (agent, client):
                child.terminate()
                child.wait(30)
    against = f"{ours:.1f} MiB against {theirs:.1f} MiB of a nats-py client with msgspec, jinja2 and yaml"
    return [Line("an idle agent", ours / theirs, "times", 1.5, against)]
