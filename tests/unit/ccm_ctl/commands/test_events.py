"""`ccmctl events`: what agents said, each once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.controller import Desk, FakeNode, event


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """One run of two nodes has been."""
    path = tmp_path / "motd.yaml"
    path.write_text("ccm:\n  resources:\n    - exec: [{'true': {}}]\n")
    fails = event("x", 2, type="exec", failed=True, error=["exit code 3", "and more"])
    desk = Desk(FakeNode("web1", {}, [event("/etc/motd", 2)]), FakeNode("web2", {}, [fails]))
    desk.ccmctl("apply", str(path), "--all", "--yes")
    return desk


def test_the_stored_events_of_a_run_are_shown(desk: Desk) -> None:
    said = desk.ccmctl("events", "--run", "last", "--no-follow")

    assert (said.code, said.screen) == (
        0,
        "12:00:00 web1  applies motd: 1 resource\n"
        "12:00:00 web1  file#/etc/motd changed (Nms)\n"
        "12:00:00 web1  ended changed: 1 changed in T\n"
        "12:00:00 web2  applies motd: 1 resource\n"
        "12:00:00 web2  exec#x failed: exit code 3; and more (Nms)\n"
        "12:00:00 web2  ended failed: 1 failed in T\n",
    )


def test_events_are_chosen_by_node_and_kind(desk: Desk) -> None:
    one = desk.ccmctl("events", "--node", "web2", "--no-follow", "--type", "resource", "--type", "start")
    other = desk.ccmctl(
        "events", "--run", "last", "--node", "web1", "--no-follow", "--type", "summary", "--json"
    )

    assert one.screen == (
        "12:00:00 web2  applies motd: 1 resource\n12:00:00 web2  exec#x failed: exit code 3; and more (Nms)\n"
    )
    assert [(record["record"], record["node"], record["event"]["state"]) for record in other.records] == [
        ("event", "web1", "changed")
    ]


def test_events_of_a_node_stand_in_the_order_in_which_they_came(desk: Desk, tmp_path: Path) -> None:
    desk.ccmctl("apply", str(tmp_path / "motd.yaml"), "--all", "--yes")

    said = desk.ccmctl("events", "--node", "web1", "--no-follow", "--json")

    kinds = [record["event"]["protocol"].split(".")[-2:] for record in said.records]
    assert kinds == [["session", "start"], ["transaction", "event"], ["session", "summary"]] * 2


def test_an_event_that_is_stored_twice_is_shown_once(desk: Desk) -> None:
    stored = desk.broker.events
    for write in list(stored):
        desk.broker.store("CCM_EVENTS", stored, write.subject, write.body)

    assert len(desk.ccmctl("events", "--run", "last", "--no-follow").out.splitlines()) == 6


def test_a_node_that_cannot_be_one_is_refused(desk: Desk) -> None:
    said = desk.ccmctl("events", "--node", "Web*", "--no-follow")

    assert said.code == 1
    assert said.err.startswith("ccmctl: 'Web*': not a valid node name")


def test_a_node_without_records_does_not_count_as_silent(desk: Desk) -> None:
    said = [desk.ccmctl("events", "--node", name, "--no-follow") for name in ("wbe1", "web1")]

    assert [(one.code, one.err) for one in said] == [
        (1, "ccmctl: wbe1: there is no such node, did you mean web1?\n"),
        (0, ""),
    ]
