"""`ccmctl disable`, `enable` and `run-now`, as an operator sees them."""

from __future__ import annotations

from typing import Any

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

    assert (without.code, "missing option '--why'" in without.err) == (1, True)
    assert unasked.err.endswith('cannot ask "disable 1 node?" without a terminal; use --yes\n')
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
