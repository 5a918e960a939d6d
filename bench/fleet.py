"""
A fleet: a run over 1,000 simulated agents, compared with a bare nats-py program, and a complete `ccmctl apply` over 20 real
ones.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.applied import apply_run, bare_run
from bench.measure import BIN, Line, side_by_side
from bench.node_processes import node_processes
from bench.secured import credentials_of
from ccm_agent.testing.nats_server import NatsServer, temporary_server

AGENTS, ROUNDS = 1000, 5
REAL_AGENTS, REAL_FILES = 20, 20
READY_S = 180
SETTLED_S = 3
"""Seconds after a run in which agents store its results."""


def ccmctl(server: NatsServer, *arguments: str) -> str:
    """Return the output of `ccmctl`, which must succeed."""
    command = [str(BIN / "ccmctl"), "--server", server.url, "--json", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-500:]}{done.stdout[-500:]}"
        )
    return done.stdout


@contextmanager
def initialized_fleet() -> Iterator[tuple[NatsServer, dict[str, str], Path]]:
    """Start a broker with all streams and buckets, and return it with the environment and the home for commands."""
    with temporary_server() as server, tempfile.TemporaryDirectory() as home:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("NATS_", "CCM_"))}
        environ = {
            **kept,
            "NATS_URL": server.url,
            "HOME": home,
            "XDG_STATE_HOME": home,
            "TERM": "xterm-256color",
        }
        ccmctl(server, "init")
        yield server, environ, Path(home)


def run_times(manifest: Path) -> tuple[float, float]:
    """
    Return the median seconds from the request until `ccmctl`, and until the bare controller, has every summary.

    The two alternate, so that other load affects both. Between a phase of one and a phase of the other, the load can change
    threefold.
    """
    with temporary_server() as server, temporary_server() as other:
        ccmctl(server, "init")
        ccmctl(other, "init")
        with node_processes("ours", server, AGENTS), node_processes("bare", other, AGENTS):
            wait_for_nodes(server, AGENTS)

            def ours() -> float:
                seconds = apply_run(server, manifest, AGENTS).seconds
                time.sleep(SETTLED_S)
                return seconds

            def bare() -> float:
                return bare_run(other, AGENTS).seconds

            our_s, bare_s = side_by_side(ROUNDS, ours, bare)
    return our_s, bare_s


def wait_for_nodes(server: NatsServer, count: int, within_s: float = READY_S) -> None:
    """Return when this many nodes are present."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            if ccmctl(server, "nodes").count('"state":"present"') >= count:
                return
        except RuntimeError:
            pass  # no node has connected yet
        time.sleep(0.5)
    raise RuntimeError(f"{count} nodes did not come up within {within_s:g} s")


@contextmanager
def real_agents(server: NatsServer, folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start twenty agents as users start them."""
    children: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:
        for i in range(REAL_AGENTS):
            config = folder / f"agent{i}.yaml"
            home = folder / f"state{i}"
            home.mkdir()
            creds = credentials_of(f"real{i}")
            nats = f"{{url: {server.url}, creds: {creds}}}" if creds else f"{{url: {server.url}}}"
            config.write_text(f"identity: real{i}\nstate_dir: {home}\nconnect_spread: 0s\nnats: {nats}\n")
            child = subprocess.Popen(
                [str(BIN / "ccm"), "agent", "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(child.wait, 30)
            stack.callback(child.terminate)
            children.append(child)
        yield children


def lay_files(folder: Path) -> Path:
    """Write twenty files in the desired state, and their manifest."""
    lines = ["ccm:", "  resources:", "    - file:"]
    for i in range(REAL_FILES):
        path = folder / f"file{i}"
        path.write_text("right\n")
        path.chmod(0o644)
        owner = f"owner: '{os.getuid()}', group: '{os.getgid()}'"
        lines.append(f'        - {path}: {{ensure: present, content: "right\\n", {owner}, mode: "0644"}}')
    manifest = folder / "files.yaml"
    manifest.write_text("\n".join(lines) + "\n")
    return manifest


def measure() -> list[Line]:
    """Measure the budgets of the fleet."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manifest = lay_files(folder)
        ours, bare = run_times(manifest)
        with temporary_server() as server:
            ccmctl(server, "init")
            with real_agents(server, folder):
                wait_for_nodes(server, REAL_AGENTS)
                whole = []
                for _ in range(ROUNDS):
                    begin = time.perf_counter()
                    ccmctl(server, "apply", str(manifest), "--targets", "node=real*", "--yes")
                    whole.append(time.perf_counter() - begin)
    return [
        Line(
            f"a run over {AGENTS} agents until every summary is here", ours / bare, "times", 2,
            f"{ours:.2f} s against {bare:.2f} s of a bare nats-py program",
        ),
        Line(f"ccmctl apply of {REAL_FILES} right files on {REAL_AGENTS} agents", statistics.median(whole), "s", 0.65,
             "a tenth of Salt 3008's 6.5 s on such a machine"),
    ]  # fmt: skip
