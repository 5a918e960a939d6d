"""A trigger has changed and its subscriber has not run: killed, stopped, or failed, the next apply refreshes it, once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes
from tests.support.faults import FaultyAgent, add_faulty
from tests.support.fleet import FILES, TOP, WAIT_S, Fleet, a_file, a_gate, manifest
from tests.support.processes import Process

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

RELOAD = "exec#reload"


def a_reload() -> tuple[str, str, dict[str, Any]]:
    """A command that leaves a line each time that it runs, after the file has changed."""
    command = f'sh -c "echo x >> {FILES}/reloaded"'
    return "exec", "reload", {"command": command, "refreshonly": True, "subscribe": [f"file#{FILES}/file"]}


def reloads(folder: Path) -> int:
    """How many times the command has run."""
    path = folder / "reloaded"
    return len(path.read_text().splitlines()) if path.exists() else 0


def at_gate(fleet: Fleet, agent: FaultyAgent) -> None:
    """Wait until a run stands between the file and the command."""
    fleet.wait_for(lambda: (agent.files / "at-go").exists(), "the run to stand at the gate")


@pytest.fixture
def agent(site: Fleet, name: str) -> FaultyAgent:
    """An agent that is not started yet."""
    return add_faulty(site, name)


@pytest.mark.parametrize("how", ["killed", "stopped by the service manager"])
def test_agent_that_ends_between_trigger_and_subscriber(site: Fleet, agent: FaultyAgent, how: str) -> None:
    agent.wants("1", a_gate(), a_reload())
    agent.start()
    at_gate(site, agent)

    if how == "killed":
        agent.kill()
        site.open_gates(agent.name)
    else:
        site.open_gates(agent.name)
        agent.stop()
    agent.start()

    site.wait_for(lambda: reloads(agent.files) == 1, "the refresh")
    runs = len(agent.ended)
    assert site.ctl("node", "show", agent.name).code == 0
    agent.wants("1", a_reload())
    site.wait_for(lambda: len(agent.ended) > runs, "another run")
    assert reloads(agent.files) == 1


def test_run_that_an_operator_stops(site: Fleet, agent: FaultyAgent) -> None:
    agent.configure(site.url, **{**agent.settings, "manifests": []})
    agent.start()
    site.wait_present([agent.name])
    path = site.write(f"{agent.name}.yaml", manifest(a_file("file"), a_gate(), a_reload()))
    apply = ("apply", path, "-t", f"node={agent.name}", "--yes", "--json")
    controller = site.begin(*apply)
    at_gate(site, agent)

    assert site.ctl("run", "stop", controller.so_far.run).code == 0
    site.open_gates(agent.name)
    stopped = controller.end()
    why = site.ctl("why", agent.name)
    planned = site.ctl("apply", path, "-t", f"node={agent.name}", "--noop", "--json")
    again = site.ctl(*apply)

    assert (stopped.states, reloads(agent.files)) == ({agent.name: "stopped"}, 1)
    (skipped,) = [event for event in stopped.resources if event["name"] == "reload"]
    assert skipped["refresh_pending"] == [f"file#{agent.files}/file"]
    assert f"{RELOAD} (request {agent.name}" in why.out
    (would,) = [event for event in planned.resources if event["name"] == "reload"]
    assert would["noop_message"] == "Would have executed via subscribe"
    assert again.states == {agent.name: "changed"}
    assert RELOAD not in site.ctl("why", agent.name).out
    agent.stop()
    agent.start()
    site.wait_for(lambda: "started" in site.ctl("why", agent.name).out, "the next process")
    assert again.run[:8] in site.ctl("why", agent.name).out


def test_node_has_not_converged_while_a_refresh_is_pending(site: Fleet, agent: FaultyAgent) -> None:
    agent.configure(site.url, **{**agent.settings, "manifests": []})
    agent.start()
    site.wait_present([agent.name])
    path = site.write(f"{agent.name}.yaml", manifest(a_file("file"), a_gate(), a_reload()))
    site.open_gates(agent.name)
    assert site.ctl("assign", "app", path, "-t", f"node={agent.name}", "--yes").code == 0

    def state() -> tuple[str, str]:
        done = site.ctl("assignment", "status", "app", "--json")
        (one,) = [one for one in done.records if one.get("node") == agent.name]
        return one["state"], one.get("reason", "")

    site.wait_for(lambda: state()[0] == "converged", "the node to converge")
    agent.kill()
    close_gate(agent)
    (agent.files / "file").write_text("drift")
    agent.start()
    site.wait_for(lambda: (agent.files / "at-go").exists() and agent.has("x"), "the drift to be corrected")
    agent.kill()
    close_gate(agent)
    before = reloads(agent.files)
    agent.start()
    site.wait_for(lambda: state()[0] == "waiting", "the node to say that a refresh is pending")
    said = state()
    site.open_gates(agent.name)

    site.wait_for(lambda: state()[0] == "converged", "the node to converge again")
    assert said == ("waiting", f"a refresh is pending: {RELOAD}")
    assert reloads(agent.files) == before + 1
    assert site.ctl("unassign", "app", "--yes").code == 0


def close_gate(agent: FaultyAgent) -> None:
    """Let the next run stand at the gate; what stands there ends."""
    for one in ("go", "at-go"):
        (agent.files / one).unlink(missing_ok=True)


class Local:
    """`ccm` in a folder, with a state folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONPATH": str(TOP),
        }

    def begin(self, *arguments: str, environ: Mapping[str, str] | None = None) -> Process:
        """Start it and go on."""
        command = [sys.executable, "-m", "ccm_agent", *arguments]
        variables = self.environ | dict(environ or {})
        with (self.folder / "ccm.log").open("ab") as log:
            return processes.start(
                command, cwd=self.folder, env=variables, stdout=log, stderr=log, start_new_session=True
            )

    def run(self, *arguments: str) -> int:
        """Run it to its end; its status."""
        return self.begin(*arguments).wait(WAIT_S)

    def wait_at_gate(self, process: Process) -> None:
        """Wait until a command stands at its gate."""
        mark = self.folder / "at-go"
        while not mark.exists():
            assert process.poll() is None
            pause(process)


def pause(process: Process) -> None:
    """Give a process a moment to end."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.05)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    """A folder in which `ccm` runs; what stands at a gate afterwards is let go."""
    yield Local(tmp_path)
    (tmp_path / "go").touch()


GATE = "touch at-go; until [ -e go ]; do sleep 0.05; done"


def end(process: Process, number: int) -> None:
    """End a process, and all that it has started."""
    process.send_signal(number)
    process.wait(WAIT_S)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_apply_that_is_ended_between_trigger_and_subscriber(local: Local, number: int) -> None:
    owner = {"owner": str(os.getuid()), "group": str(os.getgid()), "mode": "0644"}
    reload = {"refreshonly": True, "subscribe": [f"file#{local.folder}/file"], "cwd": str(local.folder)}
    gate = {"command": f"sh -c '{GATE}'", "cwd": str(local.folder)}
    command = f"sh -c 'echo x >> {local.folder}/reloaded'"
    text = manifest(
        ("file", f"{local.folder}/file", {"ensure": "present", "content": "x", **owner}),
        ("exec", "gate", gate),
        ("exec", "reload", {"command": command, **reload}),
    )
    (local.folder / "m.yaml").write_text(text)
    process = local.begin("apply", "m.yaml")
    local.wait_at_gate(process)

    end(process, number)
    (local.folder / "go").touch()
    codes = [local.run("apply", "m.yaml", *more) for more in (["--noop"], [], [])]

    assert codes == [0, 0, 0]
    assert reloads(local.folder) == 1
    assert not list((local.folder / "state" / "ccm" / "refresh").glob("*.log"))


def test_ensure_in_a_session_that_is_killed_in_the_subscriber(local: Local) -> None:
    session = str(local.folder / "session")
    assert local.run("session", "new", "--directory", session) == 0
    owner = ("--owner", str(os.getuid()), "--group", str(os.getgid()), "--mode", "0644")
    file = ("ensure", "file", f"{local.folder}/file", "--content", "x", *owner, "--session", session)
    # what outlives the process that was killed ends without a trace once its mark is gone
    waits = "touch at-go; until [ -e go -o ! -e at-go ]; do sleep 0.05; done"
    command = f"sh -c 'cd {local.folder}; {waits}; [ -e go ] && echo x >> reloaded; touch gone'"
    reload = (
        "ensure",
        "exec",
        command,
        "--refresh-only",
        "-S",
        f"file#{local.folder}/file",
        "--session",
        session,
    )
    assert local.run(*file) == 0
    process = local.begin(*reload)
    local.wait_at_gate(process)

    end(process, signal.SIGKILL)
    (local.folder / "at-go").unlink()
    while not (local.folder / "gone").exists():
        pause(process)
    (local.folder / "go").touch()
    codes = [local.run(*one) for one in (file, reload, file, reload)]

    assert codes == [0, 0, 0, 0]
    assert reloads(local.folder) == 1
