"""`ccmctl undo`: which nodes are asked to undo a run, and what is refused before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ccm_agent.model.records.undo import CHANGED_SINCE, NOT_UNDONE
from tests.support.controller import Desk, FakeNode, Said, event

CAN_UNDO = {"undo": True}


class Site:
    """A fleet of three on which a manifest was applied: web1 changed, web2 was stable, db1 failed."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "motd.yaml"
        self.path.write_text("ccm:\n  resources:\n    - exec: [{'true': {}}]\n")
        self.web1 = FakeNode("web1", {"role": "web"}, [event("/etc/motd", 2)], record=CAN_UNDO)
        self.web2 = FakeNode("web2", {"role": "web"}, [], record=CAN_UNDO)
        failed = event("/etc/issue", 2, failed=True, changed=False, error=["disk full"])
        self.db1 = FakeNode("db1", {"role": "db"}, [failed], record=CAN_UNDO)
        self.desk = Desk(self.web1, self.web2, self.db1)

    def apply(self, *more: str) -> str:
        said = self.desk.ccmctl("apply", str(self.path), "--all", "--yes", "--json", *more)
        for node in self.desk.nodes:
            node.heard.clear()
        return str(said.records[0]["run"])

    def undo(self, *arguments: str) -> Said:
        return self.desk.ccmctl("undo", *arguments)

    def asked(self) -> dict[str, list[dict[str, Any]]]:
        """The requests that each node got."""
        return {node.name: node.heard for node in self.desk.nodes if node.heard}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_only_nodes_on_which_the_run_may_have_changed_something_are_asked(site: Site) -> None:
    run = site.apply()

    said = site.undo(run, "--yes")

    assert said.code == 2, said.err
    asked = site.asked()
    assert sorted(asked) == ["db1", "web1"]
    request = asked["web1"][-1]
    assert request["protocol"].endswith("manifest.apply.request")
    assert (request["undo"], request["name"]) == (run, f"undo of {run[:8]}")
    assert "manifest" not in request
    assert request["targets"] == ["node in (db1,web1)"]


def test_targets_limit_the_undo(site: Site) -> None:
    run = site.apply()

    said = site.undo(run, "-t", "role=web", "--yes")

    assert said.code == 0, said.err
    assert sorted(site.asked()) == ["web1"]


def test_a_noop_sends_a_plan_with_diffs(site: Site) -> None:
    run = site.apply()

    said = site.undo(run, "-t", "node=web1", "--noop")

    assert said.code == 0, said.err
    request = site.asked()["web1"][-1]
    assert request["protocol"].endswith("manifest.plan.request")
    assert (request["undo"], request["diff"]) == (run, True)


def test_last_is_the_newest_run_that_was_not_a_plan(site: Site) -> None:
    run = site.apply()
    site.apply("--noop")

    said = site.undo("last", "-t", "node=web1", "--noop")

    assert said.code == 0, said.err
    assert site.asked()["web1"][-1]["undo"] == run
    assert said.err.startswith(f"run {run[:8]}: apply motd by op, ")


def test_what_is_not_undone_is_named(site: Site) -> None:
    run = site.apply()
    site.web1.does = [
        event("/etc/motd", 2, changed=False, skipped=True, error=["changed since"], code=CHANGED_SINCE),
        event("/a", 3, changed=False, skipped=True, error=["not kept"], code=NOT_UNDONE),
    ]

    said = site.undo(run, "-t", "node=web1", "--yes")

    assert "not undone on web1: file#/etc/motd (changed since); file#/a (not kept)\n" in said.err


def test_undo_of_an_unknown_run_names_the_run_before_it_requires_an_answer(site: Site) -> None:
    said = site.undo("3Nowhere")

    assert (said.code, said.err) == (
        1,
        "ccmctl: there is no run `3Nowhere`; `ccmctl run list` lists the newest runs\n",
    )


def test_without_a_terminal_an_undo_must_be_agreed_to_beforehand(site: Site) -> None:
    run = site.apply()

    said = site.undo(run)

    assert (said.code, site.asked()) == (1, {})
    assert "cannot ask for confirmation without a terminal; use --yes, or --noop for the plan" in said.err


@pytest.mark.parametrize(
    ("before", "arguments", "why"),
    [
        (["--noop"], [], "a plan changes nothing, so there is nothing to undo"),
        (["--monitor-only"], [], "a check changes nothing, so there is nothing to undo"),
        (
            [],
            ["-t", "node=web2"],
            "it changed nothing on the selected nodes; it may have changed ",
        ),
    ],
)
def test_what_cannot_be_undone_is_refused_before_anything_is_sent(
    site: Site, before: list[str], arguments: list[str], why: str
) -> None:
    run = site.apply(*before)

    said = site.undo(run, "--yes", *arguments)

    assert (said.code, site.asked()) == (1, {})
    assert why in said.err


def test_a_run_that_changed_nothing_is_not_undone(site: Site) -> None:
    site.web1.does = site.db1.does = []
    run = site.apply()

    said = site.undo(run, "--yes")

    assert (said.code, site.asked()) == (1, {})
    assert "it changed nothing on any node" in said.err


def test_older_agents_are_named(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.web1.record = {}
    run = site.apply()

    said = site.undo(run, "--yes")

    assert (said.code, site.asked()) == (1, {})
    assert "web1: the agent is too old to undo runs; upgrade it, or select other nodes" in said.err


def test_what_a_plan_with_a_failure_would_change_can_be_undone(site: Site) -> None:
    run = site.apply()
    failed = event("/etc/issue", 3, failed=True, changed=False, error=["it is a directory"])
    site.web1.does = [event("/etc/motd", 2), failed]

    said = site.desk.ccmctl("undo", run, "-t", "node=web1", typed="y\n")

    assert {request["protocol"].split(".")[-2] for request in site.web1.heard} == {"plan", "apply"}
    assert "there is nothing to undo" not in said.err


def test_a_plan_that_every_node_refused_does_not_say_that_nothing_is_to_be_undone(site: Site) -> None:
    run = site.apply()
    site.web1.does = "refused: disabled"

    said = site.desk.ccmctl("undo", run, "-t", "node=web1", typed="y\n")

    assert said.code == 2
    assert {request["protocol"].split(".")[-2] for request in site.web1.heard} == {"plan"}
    assert "there is nothing to undo" not in said.err
    assert "the plan did not succeed, so nothing is undone" in said.err


def test_an_undo_that_did_not_succeed_is_retried_as_an_undo(site: Site) -> None:
    run = site.apply()
    site.web1.does = "refused: disabled"
    first = site.undo(run, "-t", "node=web1", "--yes")
    assert first.code == 2
    site.web1.does = []
    site.web1.heard.clear()

    said = site.desk.ccmctl("run", "retry", "last", "--yes")

    assert said.code == 0, said.err
    assert {request["undo"] for request in site.web1.heard} == {run}


def test_undo_and_retry_have_a_message_of_their_own(site: Site) -> None:
    run = site.apply("--message", "new banner")
    site.web1.does = "refused: disabled"
    site.undo(run, "-t", "node=web1", "--yes", "-m", "breaks logins")
    undone = {request["message"] for request in site.web1.heard}
    site.web1.heard.clear()
    site.desk.ccmctl("run", "retry", "last", "--yes")
    retried = {request.get("message") for request in site.web1.heard}
    site.web1.heard.clear()
    site.desk.ccmctl("run", "retry", "last", "--yes", "-m", "web1 is enabled")

    assert (undone, retried) == ({"breaks logins"}, {None})
    assert {request["message"] for request in site.web1.heard} == {"web1 is enabled"}
    listed = site.desk.ccmctl("run", "list", "--json").records
    assert [one.get("message") for one in listed] == ["web1 is enabled", None, "breaks logins", "new banner"]
