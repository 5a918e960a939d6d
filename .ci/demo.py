#!/usr/bin/env python3
"""
The main job, on this machine: a nats-server, three agents, one manifest to the web nodes.

    demo.py            show it, then stop what was started
    KEEP=1 demo.py     leave it running, and print what to type
    SECURE=1 demo.py   with keys: each node and the operator has credentials of its own

Everything runs as the calling user, on loopback, in a new folder below the system's temporary one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))

from ccm_agent.testing.nats_server import NatsServer, ServerSettings  # noqa: E402 -- the checkout, installed or not

BROKER_VARIABLES = ("CCM_SERVER", "CCM_CONTEXT", "NATS_CONTEXT", "CCM_CREDS", "NATS_CREDS")
"""The demo uses its own broker, whatever these say."""

NODES = {"web1": "web", "web2": "web", "db1": "db"}
PRESENT_S = 30
"""Three agents start within a second or two; on a machine that is busy it takes longer."""

MANIFEST = """\
# All three nodes live on one machine here: each has a folder of its own.
ccm:
  resources:
    - file:
        - "{{ lookup('facts.demo') }}/motd":
            ensure: present
            content: "{{ lookup('facts.name') }} has role={{ lookup('facts.role') }}\\n"
            owner: OWNER
            group: GROUP
            mode: "0644"
"""


def main() -> int:
    """Run the demo; its exit status."""
    directory = Path(tempfile.mkdtemp(prefix="ccm-demo-"))
    server = NatsServer(ServerSettings(directory=directory / "nats"))
    agents: list[subprocess.Popen[bytes]] = []
    done = 1
    try:
        done = show(directory, server, agents)
    finally:
        if os.environ.get("KEEP") and done == 0:
            keep(directory, server, agents)
        else:
            stop(directory, server, agents)
    return done


def start_dashboard(directory: Path, environ: dict[str, str]) -> tuple[subprocess.Popen[bytes], str]:
    """A dashboard on a free port, and the address that opens once; "" when it did not start."""
    with (directory / "dashboard.out").open("wb") as out, (directory / "dashboard.err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "ccm_ctl", "dashboard", "--port", "0", "--allow-actions"],
            env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + PRESENT_S
    while time.monotonic() < deadline and process.poll() is None:
        if address := (directory / "dashboard.out").read_text().strip():
            return process, address
        time.sleep(0.1)
    return process, ""


def show(directory: Path, server: NatsServer, agents: list[subprocess.Popen[bytes]]) -> int:
    """The demo itself."""
    environ = os.environ | {"PYTHONPATH": str(TOP), "CCM_KEYS": str(directory / "keys")}
    for name in BROKER_VARIABLES:
        environ.pop(name, None)
    security = ["--security"] if os.environ.get("SECURE") else []
    if security:
        environ["CCM_OPERATOR"] = "demo"
        say("making keys")
        command(environ, "init", *security)
        extra = (directory / "keys" / "nats-security.conf").read_text()
        server.settings = msgspec.structs.replace(server.settings, extra=extra)
        environ["CCM_CREDS"] = str(directory / "keys" / "demo.creds")
    say("starting a nats-server with JetStream")
    server.start()
    environ["NATS_URL"] = server.url
    say("making streams and buckets")
    command(environ, "init", *security)
    say(f"starting {len(NODES)} agents: {', '.join(NODES)}")
    for name in NODES:
        creds = give_credentials(directory, environ, name) if security else ""
        agents.append(start_agent(directory, name, server.url, creds))
    wait_present(directory, environ, agents)
    for role in ("web", "db"):
        command(
            environ, "facts", "set", *(name for name, one in NODES.items() if one == role), f"role={role}"
        )
    command(environ, "nodes")
    manifest = directory / "motd.yaml"
    manifest.write_text(MANIFEST.replace("OWNER", f'"{os.getuid()}"').replace("GROUP", f'"{os.getgid()}"'))
    say("one manifest, to the web nodes")
    print(manifest.read_text())
    command(environ, "apply", str(manifest), "--targets", "role=web", "--noop")
    command(environ, "apply", str(manifest), "--targets", "role=web", "--yes")
    say("the same again: nothing is left to do")
    command(environ, "apply", str(manifest), "--targets", "role=web", "--yes")
    say("what is on the nodes")
    for name in NODES:
        motd = directory / name / "files" / "motd"
        print(f"  {name}: {motd.read_text().strip() if motd.exists() else '(untouched)'}")
    if security:
        say("is the fleet secure and healthy?")
        command(environ, "doctor")
    return check(directory)


def check(directory: Path) -> int:
    """The demo shows what it says, or fails."""
    there = {name for name in NODES if (directory / name / "files" / "motd").exists()}
    return 0 if there == {name for name, role in NODES.items() if role == "web"} else 1


def say(text: str) -> None:
    """What comes next."""
    bold = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else ("", "")
    print(f"{bold[0]}== {text}{bold[1]}", flush=True)


def command(environ: dict[str, str], *words: str) -> None:
    """Run `ccmctl` as a person would, and show it."""
    print(f"$ ccmctl {shlex.join(words)}", flush=True)
    ended = subprocess.run([sys.executable, "-m", "ccm_ctl", *words], env=environ, check=False).returncode
    if ended:
        raise SystemExit(f"ccmctl {words[0]} ended with {ended}")
    print(flush=True)


def give_credentials(directory: Path, environ: dict[str, str], name: str) -> str:
    """Make a node's credentials as a person would; the file."""
    path = directory / f"{name}.creds"
    print(f"$ ccmctl node add {name} > {name}.creds", flush=True)
    with path.open("wb") as out:
        words = [sys.executable, "-m", "ccm_ctl", "node", "add", name]
        subprocess.run(words, env=environ, stdout=out, check=True)
    return str(path)


def start_agent(directory: Path, name: str, url: str, creds: str = "") -> subprocess.Popen[bytes]:
    """One agent, with state of its own."""
    home = directory / name
    (home / "files").mkdir(parents=True)
    (home / "facts.json").write_text(json.dumps({"name": name, "demo": str(home / "files")}))
    config = {
        "identity": name,
        "nats": {"url": url} | ({"creds": creds} if creds else {}),
        "state_dir": str(home / "state"),
        "facts_file": str(home / "facts.json"),
        "heartbeat": "5s",
        "connect_spread": "0s",
    }
    (home / "agent.yaml").write_text(json.dumps(config, indent=2))
    with (home / "agent.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "ccm_agent", "agent", "--config", str(home / "agent.yaml")],
            env=os.environ | {"PYTHONPATH": str(TOP)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def wait_present(directory: Path, environ: dict[str, str], agents: list[subprocess.Popen[bytes]]) -> None:
    """Wait until the broker knows of every agent."""
    deadline = time.monotonic() + PRESENT_S
    while time.monotonic() < deadline:
        asked = subprocess.run(
            [sys.executable, "-m", "ccm_ctl", "nodes", "--json"],
            env=environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        found = [json.loads(line) for line in asked.stdout.splitlines()]
        if {one.get("node") for one in found if one.get("state") == "present"} >= set(NODES):
            return
        if any(agent.poll() is not None for agent in agents):
            break
        time.sleep(0.1)
    tails = [f"{name}: {(directory / name / 'agent.log').read_text()[-500:]}" for name in NODES]
    raise SystemExit(f"the agents are not present after {PRESENT_S} s; they said\n" + "\n".join(tails))


def keep(directory: Path, server: NatsServer, agents: list[subprocess.Popen[bytes]]) -> None:
    """Leave everything running, and say how to use and how to end it."""
    ids = " ".join(str(process) for process in (server.pid, *(agent.pid for agent in agents)))
    ccmctl = Path(sys.executable).with_name("ccmctl")
    shown = ccmctl if ccmctl.exists() else f"{sys.executable} -m ccm_ctl"
    creds = (
        f" CCM_KEYS={directory}/keys CCM_CREDS={directory}/keys/demo.creds"
        if os.environ.get("SECURE")
        else ""
    )
    environ = {name: value for name, value in os.environ.items() if name not in BROKER_VARIABLES}
    environ |= {"PYTHONPATH": str(TOP), "NATS_URL": server.url}
    if creds:
        environ |= {"CCM_KEYS": f"{directory}/keys", "CCM_CREDS": f"{directory}/keys/demo.creds"}
    dashboard, address = start_dashboard(directory, environ)
    ids += f" {dashboard.pid}"
    say("all of it is still running; open the dashboard, or try")
    print(f"""\
  {address or "(the dashboard did not start)"}
  export NATS_URL={server.url}{creds}
  alias ccmctl={shown}
  ccmctl node list
  ccmctl apply {directory}/motd.yaml --targets role=db
  ccmctl events
and when you have seen enough
  kill {ids}; rm -r {directory}""")


def stop(directory: Path, server: NatsServer, agents: list[subprocess.Popen[bytes]]) -> None:
    """End what was started here, and only that, by its process id."""
    if agents or server.pid:
        say("stopping what was started")
    for agent in agents:
        with contextlib.suppress(ProcessLookupError):
            agent.send_signal(signal.SIGTERM)
    for agent in agents:
        try:
            agent.wait(10)
        except subprocess.TimeoutExpired:
            agent.kill()
            agent.wait()
    server.stop()
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
