"""Prune on real agents: what an assignment created goes with its resource, what was there stays, and an undo restores."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.fleet import Done, Fleet, a_file, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


def pruning(*resources: tuple[str, str, dict[str, Any]], **fields: Any) -> str:
    document = json.loads(manifest(*resources))
    document["ccm"] |= {"prune": "apply", **fields}
    return json.dumps(document)


def assign(fleet: Fleet, text: str, *more: str) -> Done:
    path = fleet.write("pruned.yaml", text)
    done = fleet.ctl("assign", "pruned", path, "--targets", "node=web1", "--yes", *more)
    assert done.code == 0, done.err
    return fleet.ctl("assignment", "status", "pruned", "--wait", "60s", "--json")


def test_what_left_an_assignment_is_removed_and_an_undo_restores_it(trio: Fleet) -> None:
    box = trio.agents["web1"].files
    created, old = box / "created", box / "old"
    old.write_text("old\n")
    assign(trio, pruning(a_file("stays"), a_file("created", "made here\n"), a_file("old", "new\n")))
    assert (created.read_text(), old.read_text()) == ("made here\n", "new\n")

    trio.wait_present(["web1"])
    refused = trio.ctl(
        "apply", trio.write("pruned.yaml", pruning(a_file("stays"))), "-t", "node=web1", "--yes"
    )
    assign(trio, pruning(a_file("stays"), max_prune=0))
    [blocked] = trio.ctl("assignment", "status", "pruned", "--json").named("standing")
    is_kept = created.exists()
    converged = assign(trio, pruning(a_file("stays")))

    assert refused.code == 2
    assert "`prune` compares a manifest with its earlier runs" in refused.out + refused.err
    assert (blocked["state"], is_kept) == ("failed", True)
    assert "nothing was removed: 1 resource is no longer in the manifest" in blocked["reason"]
    assert converged.code == 0, converged.err
    assert (created.exists(), old.read_text()) == (False, "new\n")
    [run] = [one["run"] for one in converged.named("standing")]
    events = trio.ctl("run", "show", run, "--json").resources
    assert [(one["name"].rpartition("/")[2], one["changed"], one.get("code", "")) for one in events] == [
        ("old", False, "prune.released"),
        ("created", True, ""),
    ]

    undone = trio.ctl("undo", run, "--yes", "--json")
    trio.ctl("assign", "pruned", "--refresh", "--yes")

    assert undone.states == {"web1": "changed"}, undone.out + undone.err
    assert created.read_text() == "made here\n"
    assert trio.ctl("unassign", "pruned", "--yes").code == 0


def test_what_another_assignment_manages_is_not_removed(trio: Fleet) -> None:
    box = trio.agents["web1"].files
    moved, gone = box / "moved", box / "gone"
    assign(trio, pruning(a_file("stays"), a_file("moved", "mine\n"), a_file("gone", "mine\n")))
    assert (moved.read_text(), gone.read_text()) == ("mine\n", "mine\n")

    # until the first one lets go of the file, this one is refused
    other = trio.write("other.yaml", manifest(a_file("moved", "mine\n")))
    assert trio.ctl("assign", "other", other, "-t", "node=web1", "--yes").code == 0
    converged = assign(trio, pruning(a_file("stays")))
    taken = trio.ctl("assignment", "status", "other", "--wait", "60s", "--json")

    assert (converged.code, taken.code) == (0, 0), converged.err + taken.err
    assert (moved.exists(), gone.exists()) == (True, False)
    [run] = [one["run"] for one in converged.named("standing")]
    [event] = [one for one in trio.ctl("run", "show", run, "--json").resources if one["name"] == str(moved)]
    assert event["code"] == "prune.released"
    assert "another manifest of this node manages it" in event["error"][0]

    for name in ("pruned", "other"):
        assert trio.ctl("unassign", name, "--yes").code == 0


def test_more_removals_than_allowed_pause_a_rollout_and_nothing_is_removed(trio: Fleet) -> None:
    path = trio.write("pruned.yaml", pruning(a_file("stays"), a_file("created")))
    to_all = ["assign", "pruned", path, "--all", "--yes", "--json"]
    assert trio.ctl(*to_all).code == 0
    assert trio.ctl("assignment", "status", "pruned", "--wait", "60s").code == 0
    boxes = [agent.files / "created" for agent in trio.agents.values()]

    trio.write("pruned.yaml", pruning(a_file("stays"), max_prune=0))
    paused = trio.ctl(*to_all, "--batch", "1")
    assert trio.ctl("run", "abort", paused.run).code == 0
    is_kept = [one.exists() for one in boxes]
    assert trio.ctl("rollback", "pruned", "--yes").code == 0

    trio.write("pruned.yaml", pruning(a_file("stays"), max_prune=1))
    allowed = trio.ctl(*to_all, "--batch", "1")

    assert (paused.code, list(paused.states.values())) == (2, ["failed"]), paused.err
    assert "paused: 1 node failed; the limit is 0" in paused.err
    assert is_kept == [True] * 3
    assert allowed.code == 0, allowed.err
    assert not any(one.exists() for one in boxes)
    assert trio.ctl("unassign", "pruned", "--yes").code == 0
