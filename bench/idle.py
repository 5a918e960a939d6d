"""An idle agent that signs its stored data, compared with the same agent without signatures: messages and CPU time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from bench.fleet import wait_for_nodes
from bench.measure import BIN, Line
from bench.secured import credentials_of, secured_server
from ccm_agent.testing.nats_server import free_ports

SIGNS, PLAIN = "signs", "plain"
SETTLED_S = 20
"""Seconds after its start in which an agent reads data, facts and assignments. After that it is idle."""
SECONDS = int(os.environ.get("BENCH_SECONDS", "540"))
HEARTBEAT_S = int(os.environ.get("BENCH_HEARTBEAT_S", "60"))
"""The default heartbeat interval of an agent."""
LIMIT = 1.05
_TRUST = re.compile(r"-+BEGIN CCM TRUST-+.*-+END CCM TRUST-+\n?", re.DOTALL)


class Use(Struct, frozen=True):
    """The messages and CPU time of an agent since its start."""

    messages: int
    sent: int
    cpu_s: float

    def since(self, before: Use) -> Use:
        """Return the difference from an earlier moment."""
        return Use(self.messages - before.messages, self.sent - before.sent, self.cpu_s - before.cpu_s)


def measure() -> list[Line]:
    """Measure both agents at the same time on one broker, so that other load affects both."""
    (port,) = free_ports(1)
    with (
        secured_server([SIGNS, PLAIN], f"http: 127.0.0.1:{port}") as server,
        tempfile.TemporaryDirectory() as name,
        _agent(Path(name), SIGNS, server.url) as ours,
        _agent(Path(name), PLAIN, server.url) as theirs,
    ):
        wait_for_nodes(server, 2)
        time.sleep(SETTLED_S)
        before = [
            _use_at_heartbeat(port, node, child.pid) for node, child in ((SIGNS, ours), (PLAIN, theirs))
        ]
        time.sleep(SECONDS - HEARTBEAT_S / 2)
        after = [_use_at_heartbeat(port, node, child.pid) for node, child in ((SIGNS, ours), (PLAIN, theirs))]
    signs, plain = (now.since(then) for now, then in zip(after, before, strict=True))
    what = f"of one that signs nothing, in {SECONDS} s with a heartbeat each {HEARTBEAT_S} s"
    return [
        Line(
            "messages of an idle agent that signs",
            signs.messages / plain.messages,
            "times",
            LIMIT,
            f"{signs.messages} ({signs.sent} sent) against {plain.messages} ({plain.sent} sent) {what}",
        ),
        Line(
            "its CPU time",
            signs.cpu_s / plain.cpu_s,
            "times",
            LIMIT,
            f"{signs.cpu_s:.3f} s against {plain.cpu_s:.3f} s {what}",
        ),
    ]


@contextmanager
def _agent(folder: Path, node: str, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start an agent as users start it. PLAIN has credentials without the fleet's trust, so it neither signs nor verifies."""
    text = Path(credentials_of(node)).read_text()
    creds = folder / f"{node}.creds"
    creds.write_text(text if node == SIGNS else _TRUST.sub("", text))
    creds.chmod(0o600)
    config = folder / f"{node}.yaml"
    config.write_text(
        f"identity: {node}\nstate_dir: {folder}/{node}\nconnect_spread: 0s\nheartbeat: {HEARTBEAT_S}s\n"
        f"nats: {{url: {url}, creds: {creds}}}\n"
    )
    child = subprocess.Popen([str(BIN / "ccm"), "agent", "--config", str(config)], stderr=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.terminate()
        child.wait(30)


def _use_at_heartbeat(port: int, node: str, pid: int) -> Use:
    """Return an agent's use just after it stored its presence, so that both are measured over whole heartbeats."""
    before = _use(port, node, pid)
    while (now := _use(port, node, pid)).sent == before.sent:
        time.sleep(0.2)
    return now


def _use(port: int, node: str, pid: int) -> Use:
    """Return messages as counted by the broker for the agent's connections, and CPU time as measured by the kernel."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/connz?subs=0&auth=1", timeout=30) as answer:
        found = [one for one in json.load(answer)["connections"] if node in one.get("name", "")]
    if not found:
        raise RuntimeError(f"{node}: the broker names no connection of it")
    sent = sum(one["in_msgs"] for one in found)
    threads = (Path(f"/proc/{pid}/task/{task}/schedstat") for task in os.listdir(f"/proc/{pid}/task"))
    cpu_ns = sum(int(one.read_text().split()[0]) for one in threads)
    return Use(sent + sum(one["out_msgs"] for one in found), sent, cpu_ns / 1e9)
