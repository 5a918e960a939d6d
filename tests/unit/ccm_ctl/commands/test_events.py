"""`ccmctl events`: what agents said, each once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from tests.support.controller import NOW, Desk, FakeNode, event


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """One run of two nodes has been."""
    path = tmp_path / "motd.yaml"
    path.write_text("ccm:\n  resources:\n    - exec: [{'true': {}}]\n")
    fails = event("x", 2, type="exec", failed=True, error=["exit code 3", "and more"])
    desk = Desk(
        FakeNode("web1", {"role": "web"}, [event("/etc/motd", 2)]), FakeNode("web2", {"role": "web"}, [fails])
    )
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


def test_events_are_chosen_by_a_condition(desk: Desk) -> None:
    failed = desk.ccmctl("events", "--run", "last", "--no-follow", "--where", 'failed && type == "exec"')
    ended = desk.ccmctl("events", "--run", "last", "--no-follow", "-w", 'kind == "summary"', "--json")

    assert failed.screen == "12:00:00 web2  exec#x failed: exit code 3; and more (Nms)\n"
    assert [record["node"] for record in ended.records] == ["web1", "web2"]


def test_condition_that_does_not_parse_is_an_error(desk: Desk) -> None:
    said = desk.ccmctl("events", "--run", "last", "--no-follow", "--where", "faild")

    assert said.code == 1
    assert said.err.startswith("ccmctl: --where faild: ")


def test_condition_that_cannot_be_evaluated_is_reported_once(desk: Desk) -> None:
    said = desk.ccmctl("events", "--run", "last", "--no-follow", "--where", "failed > 1")

    assert (said.code, said.out) == (0, "")
    assert said.err.count("--where cannot be evaluated for some events, which are left out: ") == 1


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


@pytest.fixture
def day(desk: Desk) -> Desk:
    """The six events were stored an hour apart, the first one six hours ago."""
    for place, write in enumerate(desk.broker.events):
        write.time = NOW - timedelta(hours=6 - place)
    return desk


def sequences(desk: Desk, *options: str) -> list[tuple[str, str]]:
    said = desk.ccmctl("events", *options, "--json")
    assert (said.code, said.err) == (0, "")
    return [(one["node"], one["event"]["protocol"].split(".")[-1]) for one in said.records]


ALL_OF_THEM = [(node, kind) for node in ("web1", "web2") for kind in ("start", "event", "summary")]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--since", "1d", "--no-follow"], ALL_OF_THEM),
        (["--since", "3h", "--no-follow"], ALL_OF_THEM[3:]),
        (["--until", "5h"], ALL_OF_THEM[:2]),
        (["--since", "5h", "--until", "2h"], ALL_OF_THEM[1:5]),
        (["--since", "2026-11-21T07:00Z", "--until", "2026-11-21 10:00:00Z"], ALL_OF_THEM[1:5]),
        (["--since", "1d", "--no-follow", "-t", "node=web2"], ALL_OF_THEM[3:]),
        (["--since", "5h", "--until", "2h", "-t", "role=web", "--type", "resource"], [("web1", "event"), ("web2", "event")]),
    ],
)  # fmt: skip
def test_stored_events_of_a_period_are_shown_in_order(
    day: Desk, options: list[str], shown: list[tuple[str, str]]
) -> None:
    assert sequences(day, *options) == shown


def test_events_of_a_period_have_their_dates(day: Desk) -> None:
    assert day.ccmctl("events", "--since", "6h", "--until", "6h").out == (
        "2026-11-21 12:00:00Z web1  applies motd: 1 resource\n"
    )


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--follow", "--until", "1h"], "--follow and --until are mutually exclusive"),
        (["--no-follow"], "all stored events are too many; use --run, --node or --since"),
        (["--node", "web1", "-t", "role=web"], "--node and --targets both select the nodes; use one of them"),
        (
            ["--since", "soon"],
            "invalid value for '--since': `soon` is not a time: write a duration such as 30m, or a time such as "
            "2026-12-01T02:00Z; see `ccmctl events --help`",
        ),
        (
            ["--verify", "--until", "1h"],
            "--verify can be combined only with --node, --targets and --since; "
            "`ccmctl run show` verifies one run",
        ),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_together_are_refused(desk: Desk, options: list[str], error: str) -> None:
    said = desk.ccmctl("events", *options)

    assert (said.code, said.err) == (1, f"ccmctl: {error}\n")


def test_selector_that_matches_no_node_is_an_error(desk: Desk) -> None:
    said = desk.ccmctl("events", "-t", "role=nope", "--since", "1h", "--no-follow")

    assert (said.code, said.out) == (1, "")


def test_a_quiet_fleet_is_told_apart_from_a_command_that_hangs(desk: Desk) -> None:
    none = desk.ccmctl("events", "--node", "web1", "--no-follow", "--where", "false")
    record = desk.ccmctl("events", "--node", "web1", "--no-follow", "--where", "false", "--json")
    some = desk.ccmctl("events", "--node", "web1", "--no-follow")

    assert (none.code, none.out, none.err) == (0, "", "no stored events match\n")
    assert (record.out, record.err) == ("", "")
    assert (some.err, some.out != "") == ("", True)


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (
            (),
            "no events yet; waiting for new events; `--since 1h` shows earlier ones; Ctrl-C ends the command\n",
        ),
        (
            ("--since", "1s", "--where", "false"),
            "no events yet; waiting for new events; Ctrl-C ends the command\n",
        ),
        (("--run", "last"), "waiting for new events; Ctrl-C ends the command\n"),
    ],
)
def test_following_a_quiet_fleet_reports_that_it_waits(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], note: str
) -> None:
    waiting = AsyncMock(side_effect=asyncio.CancelledError)
    monkeypatch.setattr(asyncio.Event, "wait", waiting)

    said = desk.ccmctl("events", *words)

    assert (said.code, said.err, waiting.await_count) == (0, note, 1)
