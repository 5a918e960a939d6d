"""A plan is saved, and exactly that is applied, or nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.fleet import Fleet, a_file, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


def test_a_saved_plan_is_applied_where_nothing_has_changed_since(trio: Fleet) -> None:
    path = trio.write("planned.yaml", manifest(a_file("planned", "new\n"), ("exec", "true", {})))
    saved = str(Path(path).with_name("web.plan"))
    mine, other = (trio.agents[name].files / "planned" for name in ("web1", "web2"))

    planned = trio.ctl("plan", path, "-t", "role=web", "--out", saved)
    other.write_text("of another user\n")
    applied = trio.ctl("apply", "--plan", saved, "--yes", "--json")
    again = trio.ctl("apply", "--plan", saved, "--yes", "--json")

    assert planned.code == 0, planned.err
    assert f"apply it with: ccmctl apply --plan {saved}\n" in planned.err + planned.out
    assert Path(saved).stat().st_mode & 0o777 == 0o600
    assert (applied.code, applied.states) == (2, {"web1": "changed", "web2": "failed"}), applied.out
    (refused,) = [one for one in applied.records if one["record"] == "result" and one["node"] == "web2"]
    assert refused["reason"].endswith(f"these have changed: file#{other}; plan again")
    assert (mine.read_text(), other.read_text()) == ("new\n", "of another user\n")
    assert again.states == {"web1": "failed", "web2": "failed"}


def test_a_plan_that_was_edited_or_comes_with_other_targets_sends_nothing(trio: Fleet) -> None:
    path = trio.write("planned.yaml", manifest(a_file("other-plan", "new\n")))
    saved = Path(path).with_name("any.plan")
    planned = trio.ctl("plan", path, "-t", "node=web1", "--out", str(saved))
    runs = trio.ctl("run", "list", "--json").records
    plan = json.loads(saved.read_text())

    saved.write_text(json.dumps(plan | {"name": "something else"}))
    edited = trio.ctl("apply", "--plan", str(saved), "--yes")
    both = trio.ctl("apply", path, "--plan", str(saved), "-t", "role=web", "--yes")

    assert planned.code == 0, planned.err
    assert (edited.code, edited.err.rstrip()) == (
        1,
        f"ccmctl: {saved}: the plan was edited or damaged; plan again",
    )
    assert "--plan already defines the manifest and the nodes; omit FILE|DIR, --targets" in both.err
    assert trio.ctl("run", "list", "--json").records == runs


def test_an_agent_that_was_restarted_applies_the_plan_and_one_that_is_offline_keeps_it_from_all(
    trio: Fleet,
) -> None:
    path = trio.write("planned.yaml", manifest(a_file("restarted", "new\n")))
    saved = str(Path(path).with_name("restarted.plan"))
    mine, other = (trio.agents[name] for name in ("web1", "web2"))
    planned = trio.ctl("plan", path, "-t", "role=web", "--out", saved)
    runs = len(trio.ctl("run", "list", "--json").named("run"))

    mine.kill()
    mine.start()
    other.stop()
    offline = trio.ctl("apply", "--plan", saved, "--yes")
    unsent = len(trio.ctl("run", "list", "--json").named("run"))
    other.start()
    trio.wait_present(["web1", "web2"])
    applied = trio.ctl("apply", "--plan", saved, "--yes", "--json")

    assert planned.code == 0, planned.err
    assert (offline.code, unsent) == (1, runs)
    assert "cannot be applied, because these nodes are offline: web2; plan again\n" in offline.err
    assert applied.states == {"web1": "changed", "web2": "changed"}, applied.out
