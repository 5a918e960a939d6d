"""The processes of the demo. Each process has its own folder and is ended by its process ID."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from ccm_agent.model.errors import BusSetupError, BusUnavailableError
from ccm_agent.testing.nats_server import NatsServer, ServerSettings, find_server
from ccm_ctl.demo.server_download import VERSION, download_server

READY_S = 30
"""The time limit for the start of the agents, in seconds. They usually need a second or two, but longer on a busy machine."""

LOOK_AGAIN_S = 0.1
END_S = 10


def server_program() -> tuple[Path, bool]:
    """Return the nats-server program of this machine, and whether it has just been downloaded."""
    try:
        return find_server(), False
    except BusSetupError:
        if os.environ.get("NATS_SERVER"):
            raise
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    path = Path(home) / "ccm" / f"nats-server-{VERSION}"
    if os.access(path, os.X_OK):
        return path, False
    download_server(path)
    return path, True


def broker(directory: Path, program: Path, extra: str) -> NatsServer:
    """Start a broker and return it. `extra` is additional configuration."""
    server = NatsServer(ServerSettings(directory=directory / "nats", extra=extra), program)
    server.start()
    return server


def start_agent(directory: Path, name: str, nats: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start an agent with its own configuration, facts and state."""
    home = directory / name
    (home / "files").mkdir(parents=True)
    (home / "facts.json").write_text(json.dumps({"name": name, "demo": str(home / "files")}))
    config = {
        "identity": name,
        "nats": dict(nats),
        "state_dir": str(home / "state"),
        "facts_file": str(home / "facts.json"),
        "heartbeat": "5s",
        "connect_spread": "0s",
    }
    (home / "agent.yaml").write_text(json.dumps(config, indent=2))
    with (home / "agent.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "ccm_agent", "agent", "--config", str(home / "agent.yaml")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def start_dashboard(directory: Path, environ: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], str]:
    """Start a dashboard on a free port, and return its one-time address; "" if it did not start."""
    out = directory / "dashboard.out"
    with out.open("wb") as printed, (directory / "dashboard.err").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ccm_ctl", "dashboard", "--port", "0", "--allow-actions"],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        if (address := out.read_text()).endswith("\n"):
            return process, address.strip()
        time.sleep(LOOK_AGAIN_S)
    return process, ""


def show_ccmctl(environ: Mapping[str, str], *words: str) -> None:
    """
    Run a command of `ccmctl` that writes to the standard output of this process.

    Raises:
        BusUnavailableError: The command failed.
    """
    done = subprocess.run([sys.executable, "-m", "ccm_ctl", *words], env=environ, check=False)
    if done.returncode:
        raise BusUnavailableError(f"ccmctl {words[0]} ended with {done.returncode}; see its output")


def run_ccmctl(environ: Mapping[str, str], *words: str) -> str:
    """
    Return the output of a command of `ccmctl`.

    Raises:
        BusUnavailableError: The command failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", "ccm_ctl", *words], env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BusUnavailableError(
            f"ccmctl {words[0]} ended with {done.returncode}: {done.stdout}{done.stderr}"
        )
    return done.stdout


def wait_present(
    directory: Path, environ: Mapping[str, str], agents: Mapping[str, subprocess.Popen[bytes]]
) -> None:
    """
    Wait until all agents are present on the broker.

    Raises:
        BusUnavailableError: An agent ended, or is not present within READY_S. The message contains the ends of the logs.
    """
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and all(agent.poll() is None for agent in agents.values()):
        found = [json.loads(line) for line in run_ccmctl(environ, "node", "list", "--json").splitlines()]
        if {one.get("node") for one in found if one.get("state") == "present"} >= set(agents):
            return
        time.sleep(LOOK_AGAIN_S)
    tails = [f"{name}: {(directory / name / 'agent.log').read_text()[-500:]}" for name in agents]
    raise BusUnavailableError(f"the agents did not connect within {READY_S} s:\n" + "\n".join(tails))


def end(*processes: subprocess.Popen[bytes]) -> None:
    """End processes, and wait until they have ended."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
