"""Commands to the agent on its own host, with a real agent process and a broker that gets the events."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.support import processes
from tests.support.ccm_json import checked
from tests.support.fleet import TOP, WAIT_S, AgentProcess, Done, Fleet, a_file, a_gate, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A broker, and web1 with a manifest of its own."""
    with fleet(tmp_path_factory.mktemp("fleet")) as built:
        path = built.write("site.yaml", manifest(a_file("own")))
        built.add("web1", manifests=[path], interval="1h", change_pause="0s")
        built.wait_for((built.agents["web1"].files / "own").exists, "the first convergence")
        yield built


@pytest.fixture(autouse=True)
def running_and_enabled(one: Fleet) -> None:
    """Each test begins with the agent up, enabled, and at rest."""
    agent = one.agents["web1"]
    if agent.process is None:
        agent.start()
        one.wait_present(["web1"])
    assert ccm(agent, "enable").code == 0
    one.wait_for((agent.files / "own").exists, "the convergence")
    one.wait_for(lambda: not status(agent)["run"], "the end of the run")


def ccm(agent: AgentProcess, *arguments: str) -> Done:
    """`ccm agent …` at the agent's host."""
    config = str(agent.directory / "agent.yaml")
    command = [sys.executable, "-m", "ccm_agent", "agent", "--config", config, *arguments]
    done = processes.run(command, cwd=TOP, env=agent.environ, timeout=WAIT_S)
    return Done(done.returncode, done.stdout, done.stderr)


def status(agent: AgentProcess) -> dict[str, object]:
    found: dict[str, object] = checked("ccm_agent_status", ccm(agent, "status", "--json").out)
    return found


def test_a_disabled_node_refuses_reports_it_and_converges_when_enabled(one: Fleet) -> None:
    agent = one.agents["web1"]
    path = one.write("asked.yaml", manifest(a_file("asked")))

    said = ccm(agent, "disable", "--for", "4h", "--why", "the disk is replaced")
    applied = one.ctl("apply", path, "--targets", "node=web1", "--yes", "--json")
    planned = one.ctl("apply", path, "--targets", "node=web1", "--noop", "--json")
    (agent.files / "own").unlink()
    agent.stop()
    agent.start()
    one.wait_present(["web1"])
    once = ccm(agent, "run-once")
    [node] = one.ctl("nodes", "--json").named("node")
    enabled = ccm(agent, "enable")
    one.wait_for((agent.files / "own").exists, "the convergence of an enabled node")

    assert said.out.endswith(": the disk is replaced\nthe agent has been notified\n")
    assert (applied.code, applied.states) == (2, {"web1": "refused"})
    assert applied.reasons["web1"].startswith("disabled until ")
    assert applied.reasons["web1"].endswith(": the disk is replaced")
    assert (planned.code, planned.states) == (0, {"web1": "changed"})
    assert not (agent.files / "asked").exists()
    assert (
        once.code,
        "disabled until " in once.err,
        once.err.endswith("; enable it with `ccm agent enable`\n"),
    ) == (1, True, True)
    assert node["disabled"]["why"] == "the disk is replaced"
    assert enabled.out == "enabled\nthe agent has been notified\n"


def test_the_agent_converges_once_when_it_is_asked_and_tells_how_it_ended(one: Fleet) -> None:
    agent = one.agents["web1"]
    (agent.files / "own").unlink()

    done = ccm(agent, "run-once", "--json")

    [ended] = checked("ccm_agent_run_once", done.out)
    assert (done.code, ended["state"], ended["changed"]) == (0, "changed", 1)
    assert (agent.files / "own").exists()
    one.wait_for(lambda: one.stored(ended["run"]) == {"web1": [1, 2, 3]}, "its events")


def test_where_no_agent_runs_the_command_is_the_agent_for_as_long_as_it_takes(one: Fleet) -> None:
    agent = one.agents["web1"]
    agent.stop()
    (agent.files / "own").unlink()
    one.write("site.yaml", manifest(a_file("own"), ("exec", "/bin/false", {})))

    done = ccm(agent, "run-once", "--json")
    left = ccm(agent, "status", "--json")
    one.write("site.yaml", manifest(a_file("own")))

    [ended] = checked("ccm_agent_run_once", done.out)
    assert (done.code, ended["state"], ended["changed"], ended["failed"]) == (2, "failed", 1, 1)
    assert ended["resources"][0]["resource"] == "exec#/bin/false"
    assert (agent.files / "own").exists()
    one.wait_for(
        lambda: one.stored(ended["run"]) == {"web1": [1, 2, 3, 4]}, "its events, now or by the next agent"
    )
    found = checked("ccm_agent_status", left.out)
    assert (found["running"], found["holder"], found["node"]) == (False, 0, "web1")


def test_a_run_in_progress_is_shown_with_its_place_and_continues_when_the_node_is_disabled(
    one: Fleet,
) -> None:
    agent = one.agents["web1"]
    path = one.write("gate.yaml", manifest(a_file("before"), a_gate(), a_file("after")))
    controller = one.begin("apply", path, "--targets", "node=web1", "--yes", "--json")
    one.wait_for((agent.files / "before").exists, "the run to begin")

    one.wait_for(lambda: "at exec#gate-go, 2 of 3" in ccm(agent, "status").out, "the run to be at the gate")
    ccm(agent, "disable", "--why", "x")
    one.open_gates()
    done = controller.end()

    assert (done.code, done.states) == (0, {"web1": "changed"})
    assert (agent.files / "after").exists()
