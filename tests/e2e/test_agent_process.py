"""The agent as a process: signals, the service manager, and what outlives it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.buckets import put_data
from tests.support.faults import add_faulty, assert_converges
from tests.support.fleet import FILES, TOP, WAIT_S, AgentProcess, Done, Fleet, a_file, a_gate, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A broker and the node web1."""
    with fleet(tmp_path_factory.mktemp("fleet")) as built:
        built.add("web1")
        yield built


@pytest.fixture(autouse=True)
def running_and_clean(one: Fleet) -> None:
    """Each test begins with the agent up and its folder empty."""
    agent = one.agents["web1"]
    agent.configure(one.url)
    if agent.process is None or agent.process.poll() is not None:
        agent.start()
        one.wait_for(
            lambda: agent.log.count("the agent has started") > agent.log.count("has stopped"), "the agent"
        )
        one.wait_present(["web1"])
    one.forget_files()


def begun(fleet: Fleet, *resources: tuple[str, str, dict[str, object]]) -> tuple[AgentProcess, str]:
    """A run that stands at a gate; its id."""
    agent = fleet.agents["web1"]
    path = fleet.write("gate.yaml", manifest(a_file("before"), *resources))
    controller = fleet.begin("apply", path, "--targets", "node=web1", "--yes", "--json")
    fleet.wait_for(lambda: (agent.files / "before").exists(), "the run to begin")
    fleet.wait_for(lambda: controller.so_far.named("run"), "the id of the run")
    return agent, controller.so_far.run


def exit_code(agent: AgentProcess, number: signal.Signals) -> int:
    """Signal the process and wait for its end."""
    process, agent.process = agent.process, None
    assert process is not None
    process.send_signal(number)
    return process.wait(WAIT_S)


def result(fleet: Fleet, run: str) -> dict[str, object]:
    """What the controller says of web1 in a run."""
    shown: Done = fleet.ctl("run", "show", run, "--json")
    return shown.named("result")[0]


def test_sigterm_finishes_the_resource_in_progress_closes_the_session_and_sends_a_goodbye(one: Fleet) -> None:
    agent, run = begun(one, a_gate(), a_file("after"))
    process = agent.process
    assert process is not None

    process.send_signal(signal.SIGTERM)
    one.wait_for(lambda: "stopping" in agent.log, "the agent to hear of it")
    one.open_gates()

    assert process.wait(WAIT_S) == 0
    agent.process = None
    told = result(one, run)
    assert (told["state"], told["reason"]) == ("failed", "interrupted: the agent was stopped")
    assert not (agent.files / "after").exists()
    states = {record["node"]: record["state"] for record in one.ctl("nodes", "--json").named("node")}
    assert states == {"web1": "offline"}


def test_a_program_that_outlasts_the_drain_is_left_alone_and_can_still_write(one: Fleet) -> None:
    agent = one.agents["web1"]
    agent.stop()
    agent.configure(one.url, drain="0s")
    agent.start()
    one.wait_present(["web1"])
    # more than a pipe holds, after the agent has gone: without a reader this ends by SIGPIPE
    waits = f"touch {FILES}/begun; until [ -e {FILES}/go ]; do sleep 0.05; done"
    words = f"{waits}; seq 100000 && echo done > {FILES}/finished"
    agent, run = begun(one, ("exec", "long", {"command": f'sh -c "{words}"', "timeout": "60s"}))
    one.wait_for(lambda: (agent.files / "begun").exists(), "the program to begin")

    code = exit_code(agent, signal.SIGTERM)
    one.open_gates()

    one.wait_for(lambda: (agent.files / "finished").exists(), "the program to end by itself")
    assert code == 0
    agent.start()
    one.wait_for(lambda: result(one, run)["state"] == "failed", "the run's end")
    assert result(one, run)["reason"] == "interrupted at exec#long, which continues to run"


def test_kill_9_in_mid_run_is_reported_after_the_restart(one: Fleet) -> None:
    agent, run = begun(one, a_gate(), a_file("after"))
    one.wait_for(lambda: (agent.files / "at-go").exists(), "the run to stand at the gate")

    agent.kill()
    agent.start()

    one.wait_for(lambda: result(one, run)["state"] == "failed", "the run's end")
    assert result(one, run)["reason"] == "interrupted"
    assert one.stored(run) == {"web1": [1, 2, 3]}
    assert not (agent.files / "after").exists()
    one.open_gates()


def test_sighup_reloads_valid_settings_and_keeps_the_old_ones_of_an_invalid_file(one: Fleet) -> None:
    agent = one.agents["web1"]
    process = agent.process
    assert process is not None
    agent.configure(one.url, routed_facts=["name"], queue_limit=3, log_format="text")

    process.send_signal(signal.SIGHUP)
    one.wait_for(lambda: "the configuration was reloaded" in agent.log, "the reload")
    routed = lambda: one.ctl("node", "show", "web1", "--json").out  # noqa: E731
    one.wait_for(lambda: '"name":"web1"' in routed().replace(" ", ""), "the new route")
    (agent.directory / "agent.yaml").write_text("heartbaet: 5s\n")
    process.send_signal(signal.SIGHUP)
    one.wait_for(lambda: "the configuration was not reloaded" in agent.log, "the refusal")

    assert "did you mean `heartbeat`?" in agent.log
    assert '"keys":"queue_limit"' in agent.log
    # it was said in the new format, so no quotes stand around it
    assert '"the configuration was reloaded"' not in agent.log
    assert process.poll() is None


def test_sighup_takes_over_another_url_of_data(site: Fleet, name: str) -> None:
    for key in ("before", "after"):
        put_data(site, f"{name}/{key}", f"data: {{greeting: {key}}}")
    agent = add_faulty(site, name, external_data_url=f"kv://CCM_DATA/{name}/before")
    agent.wants("{{ lookup('data.greeting') }}")
    agent.start()
    assert_converges(site, agent, "before")

    agent.configure(site.url, **{**agent.settings, "external_data_url": f"kv://CCM_DATA/{name}/after"})
    assert agent.process is not None
    agent.process.send_signal(signal.SIGHUP)

    assert_converges(site, agent, "after")
    put_data(site, f"{name}/after", "data: {greeting: later}")
    assert_converges(site, agent, "later")


def test_systemd_is_notified_of_start_watchdog_and_stop(one: Fleet, tmp_path: Path) -> None:
    directory = tmp_path / "told"
    directory.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(WAIT_S)
        environ = one.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        agent = AgentProcess("told", directory, environ)
        agent.configure("nats://127.0.0.1:1")
        agent.start()

        said = [manager.recv(1000).decode() for _ in range(4)]
        while "READY=1\nSTATUS=node told" not in said:
            said.append(manager.recv(1000).decode())
        assert agent.process is not None
        agent.process.send_signal(signal.SIGHUP)
        reload: list[str] = []
        while said[-1] != "READY=1\nSTATUS=node told" or not reload:
            said.append(manager.recv(1000).decode())
            reload += [said[-1]] if said[-1] != "WATCHDOG=1" else []
        agent.stop()
        while "STOPPING=1" not in said:
            said.append(manager.recv(1000).decode())

    assert "READY=1\nSTATUS=node told" in said
    assert said.count("WATCHDOG=1") >= 2
    assert [one.partition("\n")[0] for one in reload] == ["RELOADING=1", "READY=1"]


def test_a_second_agent_on_a_state_folder_ends_and_names_the_first(one: Fleet) -> None:
    agent = one.agents["web1"]
    assert agent.process is not None

    done = subprocess.run(
        [sys.executable, "-m", "ccm_agent", "agent", "--config", str(agent.directory / "agent.yaml")],
        cwd=TOP,
        env=one.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )

    state = agent.directory / "state"
    assert done.returncode == 1
    assert done.stderr.endswith(
        f"ccm: {state}: the agent of process {agent.process.pid} uses this state folder; "
        "give each agent its own `state_dir`\n"
    )


@pytest.mark.parametrize(
    ("document", "code", "said"),
    [
        ({"identity": "web1"}, 0, "the configuration is valid\n"),
        ({"idendity": "web1"}, 1, "unknown key `idendity`, did you mean `identity`?"),
        ({"identity": "Web 1"}, 1, "set `identity` in the agent's configuration\n"),
    ],
    ids=["right", "a typo", "an identity that is none"],
)
def test_a_configuration_is_checked_without_starting_anything(
    tmp_path: Path, document: dict[str, str], code: int, said: str
) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text(json.dumps(document | {"state_dir": str(tmp_path / "state")}))

    done = subprocess.run(
        [sys.executable, "-m", "ccm_agent", "agent", "--config", str(config), "--check-config"],
        cwd=TOP,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(TOP)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done
    assert not (tmp_path / "state").exists()
