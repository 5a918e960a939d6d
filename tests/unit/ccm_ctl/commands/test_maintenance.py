"""`ccmctl disable`, `enable` and `run-now`, as an operator sees them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.support.controller import NOW, Desk, FakeNode


def a_desk(**nodes: dict[str, Any] | None) -> Desk:
    """Nodes with role=web, what each answers, and one that is offline."""
    found = [FakeNode(name, {"role": "web"}, status=status) for name, status in nodes.items()]
    return Desk(*found, FakeNode("web9", {"role": "db"}, is_present=False))


def asked(desk: Desk) -> list[dict[str, Any]]:
    return [one for node in desk.nodes for one in node.heard]


def test_nodes_are_disabled_for_a_time_and_for_a_reason() -> None:
    desk = a_desk(web1={}, web2={})

    done = desk.ccmctl("disable", "-t", "role=web", "--for", "8h", "--why", "new disk", "--yes")

    assert (done.code, done.screen) == (0, "disabled: web[1-2] (2 nodes)\n")
    request = asked(desk)[0]
    assert (request["protocol"], request["why"]) == ("io.choria.ccm.v1.node.disable.request", "new disk")
    assert request["until"] == NOW.replace(hour=20).isoformat().replace("+00:00", "Z")


def test_disabling_needs_a_reason_and_is_confirmed() -> None:
    desk = a_desk(web1={})

    without = desk.ccmctl("disable", "-t", "role=web", "--yes")
    unasked = desk.ccmctl("disable", "-t", "role=web", "--why", "x")
    for_hours = desk.ccmctl("disable", "-t", "role=web", "--why", "x", "--for", "8h")

    assert (without.code, "missing option '--why'" in without.err) == (1, True)
    assert unasked.err.endswith('cannot ask "disable 1 node?" without a terminal; use --yes\n')
    assert '"until 2026-11-21 20:00:00Z, disable 1 node?"' in for_hours.err
    assert asked(desk) == []


def test_nodes_that_were_not_reached_are_named() -> None:
    desk = a_desk(web1={}, web2=None)

    done = desk.ccmctl("enable", "--all", "--yes")
    records = a_desk(web1={}, web2=None).ccmctl("enable", "--all", "--yes", "--json").records

    assert (done.code, done.screen) == (
        3,
        "enabled: web1\noffline: web9; not reached\nunreachable: web2; no answer\n",
    )
    assert {one["node"]: one["state"] for one in records} == {
        "web1": "enabled",
        "web2": "unreachable",
        "web9": "offline",
    }


CONVERGED = {"name": "base", "state": "changed", "changed": 2, "total": 9, "run": "3" * 27}
FAILED = {
    "name": "app",
    "state": "failed",
    "failed": 1,
    "total": 4,
    "reason": "exec#migrate: no",
    "run": "4" * 27,
}


def test_nodes_converge_now_and_failures_are_named_as_they_happen() -> None:
    desk = a_desk(web1={"ended": [CONVERGED]}, web2={"ended": [CONVERGED, FAILED]}, web3={"ended": []})

    done = desk.ccmctl("run-now", "-t", "role=web", "--yes")

    assert (done.code, done.err) == (2, "web2: failed: app 1 failed: exec#migrate: no, base 2 changed\n")
    assert done.out == (
        "NODE  STATE    WHAT                                            RUN\n"
        "web1  changed  base 2 changed                                  33333333\n"
        "web3  nothing\n"
        "web2  failed   app 1 failed: exec#migrate: no, base 2 changed  33333333 44444444\n"
        "1 changed, 1 failed, 1 nothing\n"
    )


def test_programs_get_a_record_for_each_node_as_it_ends() -> None:
    desk = a_desk(web1={"ended": [CONVERGED]})

    done = desk.ccmctl("run-now", "--all", "--yes", "--json")

    assert done.code == 3
    assert [(one["node"], one["state"]) for one in done.records] == [("web1", "changed"), ("web9", "offline")]
    assert done.records[0]["body"] == {"ended": [CONVERGED | {"reason": "", "failed": 0}]}


# -- locks

LOCK = {
    "resource": "service#nginx",
    "since": NOW,
    "until": NOW + timedelta(hours=8),
    "why": "disk",
    "by": "op",
}
KNOWS = {"resource_locks": True}


def test_resource_is_locked_so_that_older_agents_refuse_the_request() -> None:
    desk = Desk(FakeNode("web1", record=KNOWS))

    done = desk.ccmctl("lock", "web1", "--resource", "service#nginx", "--for", "8h", "--why", "disk", "--yes")

    assert (done.code, done.screen) == (0, "locked: web1\n")
    [request] = asked(desk)
    assert (request["protocol"], request["lock"], "why" in request) == (
        "io.choria.ccm.v1.node.disable.request",
        {"resources": ["service#nginx"], "why": "disk"},
        False,
    )
    assert request["until"] == NOW.replace(hour=20).isoformat().replace("+00:00", "Z")


def test_whole_node_is_locked_by_disabling_it() -> None:
    desk = Desk(FakeNode("web1"))

    done = desk.ccmctl("lock", "web1", "--for", "8h", "--why", "disk", "--yes")

    assert (done.code, done.screen) == (0, "disabled: web1\n")
    assert [(one["why"], one.get("lock")) for one in asked(desk)] == [("disk", None)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--why", "x"), "a lock requires --for (a duration) and --why (a reason)"),
        (("--for", "8h"), "a lock requires --for (a duration) and --why (a reason)"),
        (("--for", "31d", "--why", "x"), "--for: a lock can last at most 30d"),
        (
            ("--for", "8h", "--why", "x", "--resource", "nginx"),
            "--resource nginx: not a resource; write type#name, such as service#nginx",
        ),
        (
            ("--for", "8h", "--why", "x", "--resource", "service#nginx"),
            "web1: the agent is too old to lock single resources; upgrade it, or lock the whole node",
        ),
    ],
)
def test_lock_that_cannot_be_made_is_not_sent(words: tuple[str, ...], message: str) -> None:
    desk = Desk(FakeNode("web1"))

    done = desk.ccmctl("lock", "web1", *words, "--yes")

    assert (done.code, done.err) == (1, f"ccmctl: {message}\n")
    assert asked(desk) == []


def test_unlock_ends_all_locks_and_enables_a_disabled_node() -> None:
    disabled = {"disabled": {"since": NOW, "why": "disk", "by": "op"}}
    desk = Desk(
        FakeNode("web1", record={**KNOWS, "locks": [LOCK]}), FakeNode("web2", record={**KNOWS, **disabled})
    )

    one = desk.ccmctl("unlock", "web1", "--resource", "service#nginx", "--yes")
    two = desk.ccmctl("unlock", "web2", "--yes")

    assert (one.code, one.screen) == (0, "unlocked: web1\n")
    assert (two.code, two.screen) == (0, "unlocked: web2\nenabled: web2\n")
    assert desk.nodes[0].heard[0]["lock"] == {"resources": ["service#nginx"], "release": True}
    kinds = dict.fromkeys(heard["protocol"].split(".")[-2] for heard in desk.nodes[1].heard)
    assert list(kinds) == ["disable", "enable"]


@pytest.mark.parametrize(
    ("body", "screen"),
    [
        ({"unlocked": ["service#nginx", "file#/x"]}, "unlocked: web1\n"),
        ({"unlocked": ["file#/x"]}, "unlocked: web1; not locked: service#nginx\n"),
        (
            {"unlocked": []},
            "not locked: web1; no lock names service#nginx or file#/x; see `ccmctl lock list`\n",
        ),
        ({"unlocked": "\x1b[2J"}, "unlocked: web1\n"),
        ({}, "unlocked: web1\n"),
    ],
)
def test_unlock_names_resources_that_were_not_locked(body: dict[str, Any], screen: str) -> None:
    desk = Desk(FakeNode("web1", record=KNOWS, status=body))

    done = desk.ccmctl("unlock", "web1", "--resource", "service#nginx", "--resource", "file#/x", "--yes")

    assert (done.code, done.screen) == (0, screen)


def test_locks_are_listed_and_those_that_have_ended_are_not() -> None:
    ended = LOCK | {"resource": "file#/x", "until": NOW - timedelta(seconds=1)}
    desk = Desk(FakeNode("web1", record={**KNOWS, "locks": [LOCK, ended]}), FakeNode("web2"))

    listed = desk.ccmctl("lock", "list")
    why = desk.ccmctl("why", "web1")
    records = desk.ccmctl("lock", "list", "--json").records

    assert (listed.code, [line.split() for line in listed.screen.splitlines()]) == (
        0,
        [
            ["NODE", "RESOURCE", "UNTIL", "BY", "WHY"],
            ["web1", "service#nginx", "2026-11-21", "20:00:00Z", "op", "disk"],
        ],
    )
    assert "service#nginx, until 2026-11-21 20:00:00Z by op: disk" in why.screen
    assert "file#/x" not in why.screen
    assert [(one["node"], one["resource"]) for one in records] == [("web1", "service#nginx")]
    assert Desk(FakeNode("web1")).ccmctl("lock", "list").screen == "nothing is locked\n"
