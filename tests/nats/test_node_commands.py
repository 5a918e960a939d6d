"""Nodes are disabled, enabled and converged from afar: real agents, credentials for all, and who may not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import a_file, manifest
from tests.support.secured import Secured, secured_fleet

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """web1 with role=web; bob may apply there, sam may maintain it, and lou may look."""
    with secured_fleet(tmp_path_factory.mktemp("secured")) as one:
        one.give("operator", "sam", "--maintain", "role=web")
        one.give("operator", "lou")
        one.fleet.wait_for(
            lambda: one.as_("sam", "enable", "-t", "role=web", "--yes").code == 0, "the node to know sam"
        )
        yield one


def test_operator_with_maintain_disables_a_node_and_the_node_reports_operator_and_reason(
    secured: Secured,
) -> None:
    path = secured.fleet.write("site.yaml", manifest(a_file("motd")))
    apply = ("apply", path, "-t", "role=web", "--yes", "--json")

    disabled = secured.as_("sam", "disable", "-t", "role=web", "--for", "8h", "--why", "new disk", "--yes")
    refused = secured.as_("bob", *apply)
    refused_now = secured.as_("sam", "run-now", "-t", "role=web", "--yes")
    why = secured.as_("lou", "why", "web1")
    enabled = secured.as_("sam", "enable", "-t", "role=web", "--why", "it is in", "--yes")
    applied = secured.as_("bob", *apply)
    told = secured.as_("lou", "events", "--node", "web1", "--type", "agent", "--no-follow")

    assert (disabled.code, disabled.out) == (0, "disabled: web1\n"), disabled.err
    assert (refused.code, refused.states) == (2, {"web1": "refused"})
    assert refused.reasons["web1"].endswith(" by sam: new disk")
    assert (refused_now.code, "by sam: new disk" in refused_now.out) == (2, True)
    assert "ccmctl enable -t node=web1" in why.out
    assert (enabled.code, applied.code) == (0, 0), (enabled.err, applied.err)
    assert "by sam: new disk" in told.out
    assert "enabled by sam: it is in" in told.out


def test_locked_resource_is_skipped_until_it_is_unlocked_and_the_rest_is_applied(secured: Secured) -> None:
    files = secured.fleet.agents["web1"].files
    path = secured.fleet.write("locked.yaml", manifest(a_file("held"), a_file("free")))
    resource = ("--resource", f"file#{files}/held")

    locked = secured.as_(
        "sam", "lock", "web1", "-t", "role=web", *resource, "--for", "8h", "--why", "new disk", "--yes"
    )
    plan = secured.as_("bob", "apply", path, "-t", "role=web", "--noop")
    applied = secured.as_("bob", "apply", path, "-t", "role=web", "--yes", "--json")
    held, free = (files / "held").exists(), (files / "free").exists()
    why = secured.as_("lou", "why", "web1")
    listed = secured.as_("lou", "lock", "list")
    unlocked = secured.as_("sam", "unlock", "web1", "-t", "role=web", *resource, "--yes")
    after = secured.as_("bob", "apply", path, "-t", "role=web", "--yes", "--json")

    assert (locked.code, locked.out) == (0, "locked: web1\n"), locked.err
    assert f"skipped on web1: file#{files}/held (locked until " in plan.err
    assert (applied.code, applied.states, held, free) == (0, {"web1": "changed"}, False, True)
    assert " by sam: new disk" in why.out
    assert "new disk" in listed.out
    assert (unlocked.code, after.code, (files / "held").exists()) == (0, 0, True), unlocked.err


@pytest.mark.parametrize("who", ["bob", "lou", "web1"])
def test_others_do_not_disable_enable_or_converge_a_node(secured: Secured, who: str) -> None:
    """An operator who may apply, one who may look, and the holder of a node's stolen key."""
    there = ("-t", "role=web")
    lock = ("lock", "web1", *there, "--resource", "file#/x", "--for", "1h", "--why", "x")
    for words in (("disable", "--why", "x", *there), ("enable", *there), ("run-now", *there), lock):
        done = secured.as_(who, *words, "--yes")

        assert done.code == 1, done.out
        assert "the broker does not allow" in done.err
    assert secured.as_("lou", "why", "web1", "--json").named("why")[0]["state"] != "disabled"


def test_others_do_not_release_a_lock_and_an_operator_with_maintain_does(secured: Secured) -> None:
    resource = ("-t", "role=web", "--resource", "file#/locked", "--yes")
    locked = secured.as_("sam", "lock", "web1", *resource, "--for", "8h", "--why", "by sam")

    refused = [secured.as_(who, "unlock", "web1", *resource) for who in ("bob", "lou", "web1")]
    kept = secured.as_("lou", "lock", "list").out
    control = secured.as_("sam", "unlock", "web1", *resource)

    assert locked.code == 0, locked.err
    assert [(one.code, "the broker does not allow" in one.err) for one in refused] == [(1, True)] * 3
    assert "file#/locked" in kept
    assert (control.code, control.out) == (0, "unlocked: web1\n"), control.err


def test_operator_with_maintain_cannot_change_nodes(secured: Secured) -> None:
    path = secured.fleet.write("never.yaml", manifest(a_file("never")))

    done = secured.as_("sam", "apply", path, "-t", "role=web", "--yes")
    assert secured.as_("tester", "facts", "set", "db1", "role=db", "--new").code == 0
    elsewhere = secured.as_("sam", "disable", "-t", "node=db1", "--why", "x", "--yes")

    assert (done.code, elsewhere.code) == (1, 1)
    assert "it lacks the right `--maintain node=db1`" in elsewhere.err
    assert not (secured.fleet.agents["web1"].files / "never").exists()


def test_node_converges_now_and_the_operator_sees_the_result(secured: Secured) -> None:
    web1 = secured.fleet.agents["web1"]
    path = secured.fleet.write("kept/manifest.yaml", manifest(a_file("kept")))
    assigned = secured.as_("bob", "assign", "kept", str(Path(path).parent), "-t", "role=web", "--yes")
    assert secured.as_("bob", "assignment", "status", "kept", "--wait", "60s").code == 0
    (web1.files / "kept").unlink()

    done = secured.as_("sam", "run-now", "-t", "role=web", "--why", "drift", "--yes", "--json")
    told = secured.as_("lou", "events", "--node", "web1", "--type", "agent", "--no-follow")

    assert (assigned.code, done.code) == (0, 0), done.err
    [reply] = done.named("reply")
    assert (reply["state"], [one["name"] for one in reply["body"]["ended"]]) == ("changed", ["kept"])
    assert (web1.files / "kept").exists()
    assert "converges now, requested by sam: drift" in told.out
