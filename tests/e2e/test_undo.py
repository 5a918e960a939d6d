"""A run is undone on real agents: what it changed comes back, what has changed since does not, and the rest is named."""

from __future__ import annotations

import pytest

from tests.support.faults import FaultyAgent, add_faulty
from tests.support.fleet import Fleet, a_file, a_gate, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


def test_content_and_mode_come_back_and_what_cannot_be_undone_is_named(trio: Fleet) -> None:
    mine, other = (trio.agents[name].files / "undone" for name in ("web1", "web2"))
    for number, path in enumerate((mine, other)):
        path.write_text(f"old {number}\n")
        path.chmod(0o600)
    path = trio.write(
        "undone.yaml", manifest(a_file("undone", "new\n"), a_file("fresh"), ("exec", "true", {}))
    )
    applied = trio.ctl("apply", path, "-t", "role=web", "--yes", "--json")
    run = applied.run

    planned = trio.ctl("undo", run, "--noop")
    kept = mine.read_text()
    other.write_text("edited\n")
    undone = trio.ctl("undo", run, "--yes", "--json")
    shown = trio.ctl("run", "show", undone.run)
    refused = trio.ctl("undo", undone.run, "-t", "node=web1", "--yes")
    kept_by_refusal = mine.read_text()
    again = trio.ctl("undo", undone.run, "-t", "node=web1", "--yes", "--json", "--redo")

    assert applied.code == 0, applied.err
    assert planned.code == 0, planned.err
    assert kept == "new\n"
    assert "not undone on web[1-2]: exec#true (changes of the type `exec` are not recorded)\n" in planned.err
    assert undone.states == {"web1": "changed", "web2": "changed"}, undone.out + undone.err
    assert (other.read_text(), oct(other.stat().st_mode & 0o777)) == ("edited\n", "0o644")
    assert not (trio.agents["web2"].files / "fresh").exists()
    left = {one["code"] for one in undone.resources if one["skipped"] and one["node"] == "web2"}
    assert left == {"undo.changed_since", "undo.impossible"}
    assert f"undo {run[:8]} by " in shown.out
    assert f"changed since the run {run[:8]}: its content" in shown.err
    # the undo of the undo
    assert (refused.code, refused.out, kept_by_refusal) == (1, "", "old 0\n")
    assert f"this run is an undo; --redo applies the changes of {run[:8]} again" in refused.err
    assert again.states == {"web1": "changed"}, again.out + again.err
    assert (mine.read_text(), oct(mine.stat().st_mode & 0o777)) == ("new\n", "0o644")


def test_a_run_whose_agent_was_killed_is_undone_as_far_as_it_came(trio: Fleet) -> None:
    agent = trio.agents["web1"]
    before, after = agent.files / "before", agent.files / "after"
    before.write_text("old\n")
    after.write_text("old\n")
    gate = "undo-gate"
    path = trio.write(
        "killed.yaml", manifest(a_file("before", "new\n"), a_gate(gate), a_file("after", "new\n"))
    )
    trio.begin("apply", path, "-t", "node=web1", "--yes", "--json")
    trio.wait_for(lambda: (agent.files / f"at-{gate}").exists(), "the run stands at its gate")
    agent.kill()
    (agent.files / gate).touch()
    agent.start()
    trio.wait_present(["web1"])
    run = trio.ctl("run", "list", "--node", "web1", "--json").named("run")[0]["run"]
    trio.ctl("run", "watch", run)

    undone = trio.ctl("undo", run, "--yes", "--json")

    assert (before.read_text(), after.read_text()) == ("old\n", "old\n"), undone.out + undone.err


def test_a_run_that_a_node_does_not_know_fails_there_and_says_so(trio: Fleet) -> None:
    path = trio.write("forgotten.yaml", manifest(a_file("forgotten")))
    applied = trio.ctl("apply", path, "-t", "node=web2", "--yes", "--json")
    agent = trio.agents["web2"]
    agent.stop()
    for record in (agent.directory / "state" / "undo" / "runs").iterdir():
        record.unlink()
    agent.start()
    trio.wait_present(["web2"])

    undone = trio.ctl("undo", applied.run, "--yes", "--json")

    assert (undone.code, undone.states) == (2, {"web2": "failed"})
    assert "this node has no record of the run" in undone.reasons["web2"]
    assert (agent.files / "forgotten").exists()


def test_the_run_of_an_assignment_is_undone_with_a_warning_that_names_it(trio: Fleet) -> None:
    path = trio.write("assigned.yaml", manifest(a_file("assigned")))
    mine = trio.agents["web1"].files / "assigned"
    trio.ctl("assign", "undo-me", path, "-t", "node=web1", "--yes")
    assigned = trio.ctl("assignment", "status", "undo-me", "--wait", "60s")
    runs = trio.ctl("run", "list", "--assignment", "undo-me", "--json").named("run")

    undone = trio.ctl("undo", runs[0]["run"], "--yes")
    trio.ctl("unassign", "undo-me", "--yes")

    assert assigned.code == 0, assigned.err
    assert undone.code == 0, undone.out + undone.err
    assert not mine.exists()
    assert (
        "web1: the assignment undo-me applies this again at the next interval; to prevent that, "
        in undone.err
    )


OLD, NEW = "old\n" * 100_000, "new\n" * 100_000
POINTS = ["after begun", "before resource", "after resource", "before summary"]
"""An agent each: before anything comes back; the last file is back and that is not told; it is told; both are back."""


def test_agents_killed_during_the_undo_leave_whole_files_and_the_next_undo_completes_it(site: Fleet) -> None:
    agents = [add_faulty(site, f"undo{number}", manifests=[]) for number in range(len(POINTS))]
    for agent in agents:
        agent.files.mkdir(parents=True, exist_ok=True)
        for name in ("first", "last"):
            (agent.files / name).write_text(OLD)
        agent.start()
    site.wait_present(agent.name for agent in agents)
    path = site.write("killed-undo.yaml", manifest(a_file("first", NEW), a_file("last", NEW)))
    mine = f"node in ({','.join(agent.name for agent in agents)})"
    applied = site.ctl("apply", path, "-t", mine, "--yes", "--json")
    for agent, point in zip(agents, POINTS, strict=True):
        agent.die(point)

    killed = site.begin("undo", applied.run, "--yes", "--json")
    for agent in agents:
        agent.wait_killed(site)
    between = [contents(agent) for agent in agents]
    for agent in agents:
        agent.start()
    done = killed.end()
    told = [site.ctl("why", agent.name).out for agent in agents]
    site.ctl("exec", "-t", mine, "--yes", "--", "true")
    later = [site.ctl("why", agent.name).out for agent in agents]
    completed = site.ctl("undo", applied.run, "--yes", "--json")

    assert applied.code == 0, applied.err
    assert between == [(NEW, NEW), (NEW, OLD), (NEW, OLD), (OLD, OLD)]
    assert (done.code, done.states) == (2, {agent.name: "failed" for agent in agents}), done.err
    assert set(done.reasons.values()) == {"interrupted"}
    for agent, one in zip(agents, told, strict=True):
        assert one.startswith(f"{agent.name} has failed"), one
        assert "its last run failed: interrupted" in " ".join(one.split())
    incomplete = f"undo of run {applied.run[:8]} has not completed; `ccmctl undo {applied.run[:8]} "
    assert all("is in the desired state" in one for one in later), (
        "a later run hides the failure, and not this"
    )
    # of the first one nothing had come back, and of the last one everything
    assert [incomplete in " ".join(one.split()) for one in later] == [False, True, True, False]
    for agent in agents:
        site.wait_for(
            lambda name=agent.name: "has not completed" not in site.ctl("why", name).out,
            f"the record of {agent.name} to say that the undo is complete",
        )
    assert [contents(agent) for agent in agents] == [(OLD, OLD)] * 4
    states = [completed.states[agent.name] for agent in agents]
    assert (completed.code, states) == (0, ["changed", "changed", "changed", "stable"]), completed.err


def contents(agent: FaultyAgent) -> tuple[str, str]:
    return (agent.files / "first").read_text(), (agent.files / "last").read_text()
