"""`ccmctl run diff`: what came out differently in two runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.controller import Desk, FakeNode, event


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Desk, str, str]:
    """web1 changed and then failed, web2 changed both times, web3 was away and then refused, db1 came later."""
    path = tmp_path / "motd.yaml"
    path.write_text("ccm:\n  resources:\n    - exec: [{'true': {}}]\n")
    web1, web2 = (FakeNode(name, {}, [event("/etc/motd", 2)]) for name in ("web1", "web2"))
    web3 = FakeNode("web3", {}, is_present=False)
    desk = Desk(web1, web2, web3)
    first = desk.ccmctl("apply", str(path), "--all", "--yes", "--json").records[0]["run"]
    web1.does = [event("/etc/issue", 2, failed=True, error=["disk full"])]
    web3.is_present, web3.does = True, "refused: disabled"
    desk.nodes.append(FakeNode("db1", {}))
    second = desk.ccmctl("apply", str(path), "--all", "--yes", "--json").records[0]["run"]
    return desk, first, second


def test_nodes_and_resources_that_came_out_differently_are_named(runs: tuple[Desk, str, str]) -> None:
    desk, first, second = runs

    said = desk.ccmctl("run", "diff", first, second)

    assert (said.code, said.screen) == (
        0,
        "A: run RUN: apply motd by op, 2026-11-21 12:00:00Z (just now)\n"
        "B: run RUN: apply motd by op, 2026-11-21 12:00:00Z (just now)\n\n"
        "NODES  A        B        WHAT\n"
        "db1    absent   stable\n"
        "web1   changed  failed   file#/etc/issue: no event → failed, file#/etc/motd: changed → no event\n"
        "web3   offline  refused  B: disabled\n\n"
        "3 nodes differ, 1 alike\n",
    )


def test_difference_is_told_to_programs(runs: tuple[Desk, str, str]) -> None:
    desk, first, second = runs

    found = desk.ccmctl("run", "diff", first, second, "--json").named("difference")

    assert {one["node"]: (one["a"]["state"], one["b"]["state"]) for one in found} == {
        "db1": ("absent", "stable"),
        "web1": ("changed", "failed"),
        "web3": ("offline", "refused"),
    }
    assert found[1]["resources"] == [
        {"resource": "file#/etc/issue", "a": "no event", "b": "failed"},
        {"resource": "file#/etc/motd", "a": "changed", "b": "no event"},
    ]


def test_run_does_not_differ_from_itself(runs: tuple[Desk, str, str]) -> None:
    desk, first, _ = runs

    assert desk.ccmctl("run", "diff", first, first).out.endswith("0 nodes differ, 3 alike\n")


def test_both_runs_must_be_there(runs: tuple[Desk, str, str]) -> None:
    desk, first, _ = runs

    said = desk.ccmctl("run", "diff", first, "nope")

    assert (said.code, said.err) == (
        1,
        "ccmctl: there is no run `nope`; `ccmctl run list` lists the newest runs\n",
    )


def test_without_any_run_the_last_one_is_not_on_record() -> None:
    said = Desk().ccmctl("run", "diff", "last", "last")

    assert said.err == "ccmctl: no run is on record here yet; `ccmctl apply` and `ccmctl plan` start one\n"
