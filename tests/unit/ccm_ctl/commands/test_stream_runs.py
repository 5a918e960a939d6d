"""Runs of schedules, assignments and the nodes' own manifests, in `ccmctl run` and `ccmctl schedule status`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
import pytest

from ccm_agent.bus.subjects import assignment_key, event_subject, request_subject, schedule_subject
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.ids import derive_id, new_id
from ccm_agent.model.outcome import SESSION_START, SessionStart
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import AGENT_REFUSED, MANIFEST_APPLY, AgentEvent, Assignment, ManifestRequest
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.runs import stream_runs
from ccm_ctl.fleet.schedules.stored_schedule import Schedule
from tests.support.controller import NOW, Desk, FakeNode, event

MOTD = "ccm:\n  resources:\n    - exec:\n        - /bin/true: {}\n"
DUE = NOW - timedelta(hours=9)


def run_at(moment: datetime) -> str:
    """The id of a run of that time."""
    return derive_id(int(moment.timestamp()), os.urandom(16))


def a_schedule(name: str, run: str = "", **fields: object) -> Schedule:
    """A schedule for role=web that was due nine hours ago if it has a run."""
    values: dict[str, object] = {
        "name": name,
        "subject": schedule_subject(MANIFEST_APPLY, "fact.role.web", name),
        "protocol": MANIFEST_APPLY,
        "scope": "fact.role.web",
        "target": request_subject(MANIFEST_APPLY, "fact.role.web"),
        "when": "0 0 3 * * *",
        "stored": NOW - timedelta(days=3),
        "last": DUE if run else None,
        "last_run": run,
        "request": ManifestRequest(protocol=MANIFEST_APPLY, name="site", targets=["role=web"]),
    }
    return Schedule(**(values | fields))  # type: ignore[arg-type]


def converge(desk: Desk, run: str, nodes: Sequence[FakeNode], cause: str, origin: str) -> None:
    """Let nodes carry out a run before the next command."""

    async def begin(broker: MemoryBroker) -> None:
        desk.hooks.remove(begin)
        for node in nodes:
            await node.converge(broker, run, cause, origin)

    desk.hooks.append(begin)


def publish(desk: Desk, node: str, protocol: str, said: msgspec.Struct, run: str = "") -> None:
    """Let a node say something before the next command."""

    async def say(broker: MemoryBroker) -> None:
        desk.hooks.remove(say)
        subject = event_subject(protocol, node, run)
        await MemoryBus(broker, node).events.publish(subject, new_id(), msgspec.json.encode(said))

    desk.hooks.append(say)


@pytest.fixture
def night() -> tuple[Desk, str]:
    """Last night `nightly` was due: web1 changed, web2 refused, web3 was away; db1 is not meant."""
    web1, web2 = FakeNode("web1", {"role": "web"}, [event("/etc/motd", 2)]), FakeNode("web2", {"role": "web"})
    away, other = FakeNode("web3", {"role": "web"}, is_present=False), FakeNode("db1", {"role": "db"})
    desk = Desk(web1, web2, away, other)
    run = run_at(DUE)
    desk.schedules = [a_schedule("nightly", run)]
    converge(desk, run, [web1], "schedule", "nightly")
    refusal = AgentEvent(
        protocol=AGENT_REFUSED,
        event_id=new_id(),
        timestamp=DUE,
        node="web2",
        message="disabled by anna",
        details={"refused": "x", "run": run},
    )
    publish(desk, "web2", AGENT_REFUSED, refusal)
    return desk, run


HEADING = """\
run RUN: apply motd by schedule nightly, 2026-11-21 03:00:00Z (9h ago)
for role=web: 3 nodes
nodes without a session are those that match `nightly` now

"""


def test_one_command_shows_whether_last_nights_schedule_succeeded_and_which_nodes_were_away(
    night: tuple[Desk, str],
) -> None:
    desk, _ = night

    said = desk.ccmctl("schedule", "status", "nightly")

    assert (said.code, said.screen) == (
        2,
        f"{HEADING}"
        "NODES  STATE    WHAT                     TIME\n"
        "web1   changed  file#/etc/motd           12ms\n"
        "web3   offline  no session; offline now\n"
        "web2   refused  disabled by anna\n\n"
        "apply motd: 3 nodes: 1 changed, 1 offline, 1 refused in 9h (run RUN)\n",
    )


def test_run_of_a_schedule_is_shown_and_watched_by_its_id(night: tuple[Desk, str]) -> None:
    desk, run = night

    shown, watched = desk.ccmctl("run", "show", run[:9], "--json"), desk.ccmctl("run", "watch", run)

    [told] = shown.named("run")
    assert (told["cause"], told["origin"], told["nodes"], told["state"]) == ("schedule", "nightly", 3, "done")
    assert {one["node"]: one["state"] for one in shown.named("result")} == {
        "web1": "changed",
        "web2": "refused",
        "web3": "offline",
    }
    assert watched.code == 2
    assert not desk.broker.buckets.get("CCM_RUNS")


def test_run_of_a_schedule_is_retried_and_its_events_shown_by_the_beginning_of_its_id(
    night: tuple[Desk, str],
) -> None:
    desk, run = night
    request = ManifestRequest(
        protocol=MANIFEST_APPLY,
        name="site",
        targets=["role=web"],
        manifest=MOTD,
        cause="schedule",
        catch_up=True,
        deadline_s=60,
    )
    desk.schedules = [a_schedule("nightly", run, request=request)]

    events = desk.ccmctl("events", "--run", run[:12], "--no-follow", "--json")
    retried = desk.ccmctl("run", "retry", run[:12], "--only", "refused", "--yes", "--json")

    assert {one["node"] for one in events.named("event")} == {"web1"}
    assert (retried.code, [one["node"] for one in retried.named("result")]) == (0, ["web2"])
    sent = next(one for one in desk.nodes[1].heard if one["run"] == retried.named("run")[0]["run"])
    assert (sent["manifest"], sent["targets"], sent["requester"]) == (MOTD, ["role=web,node in (web2)"], "op")
    assert not {"cause", "catch_up", "deadline_s"} & set(sent)


def test_run_is_not_retried_when_its_request_is_not_known(night: tuple[Desk, str]) -> None:
    desk, run = night
    own = run_at(NOW - timedelta(minutes=5))
    failing = desk.nodes[3]
    failing.does = [event("/etc/motd", 2, failed=True)]
    converge(desk, own, [failing], "interval", "base")
    desk.schedules = [a_schedule("nightly", run, stored=NOW)]

    of_node = desk.ccmctl("run", "retry", own, "--yes").err
    desk.nodes[0].does = ()

    assert of_node == (
        f"ccmctl: {own[:8]}: it was not started by a request, so it cannot be retried; to converge now, use `ccmctl run-now`\n"
    )
    assert desk.ccmctl("run", "retry", run, "motd.yaml", "--yes").code == 1


def test_run_that_no_node_began_is_shown_as_missed(night: tuple[Desk, str]) -> None:
    desk, _ = night
    desk.schedules = [a_schedule("weekly", run_at(DUE))]

    said = desk.ccmctl("schedule", "status", "weekly", "--json")

    assert said.code == 3
    assert [one["reason"] for one in said.named("result")] == [
        "no session; present now",
        "no session; present now",
        "no session; offline now",
    ]


def test_schedule_that_was_not_due_yet_or_is_missing_is_reported() -> None:
    desk = Desk()
    desk.schedules = [a_schedule("nightly")]

    assert desk.ccmctl("schedule", "status", "nightly").err == (
        "ccmctl: nightly: has not been due yet; `ccmctl schedule list` shows when it is\n"
    )
    assert desk.ccmctl("schedule", "status", "nihgtly").err == (
        "ccmctl: nihgtly: there is no such schedule, did you mean `nightly`?\n"
    )


def test_list_has_runs_of_schedules_and_the_newest_run_of_each_node_of_an_assignment(
    night: tuple[Desk, str],
) -> None:
    desk, _ = night
    for node, minutes in ((desk.nodes[0], 50), (desk.nodes[0], 20), (desk.nodes[3], 10)):
        converge(desk, run_at(NOW - timedelta(minutes=minutes)), [node], "interval", "base")

    said = desk.ccmctl("run", "list")
    single = desk.ccmctl("run", "list", "--assignment", "base", "--json").records

    assert [line.split(None, 1)[1] for line in said.out.splitlines()] == [
        "WHEN     BY                WHAT        NODES  OUTCOME",
        "+2  10m ago  assignment base   apply motd      2  1 stable, 1 changed",
        "9h ago   schedule nightly  apply motd      3  1 changed, 1 offline, 1 refused",
    ]
    assert [(one["cause"], one["origin"], one["nodes"]) for one in single] == [("assignment", "base", 1)] * 3


@pytest.mark.parametrize(
    ("options", "origins"),
    [
        (["--cause", "schedule"], ["nightly"]),
        (["--schedule", "nightly"], ["nightly"]),
        (["--schedule", "other"], []),
        (["--cause", "request"], []),
        (["--by", "op"], []),
        (["--node", "web1"], ["nightly"]),
        (["--node", "db1"], []),
        (["--state", "offline"], ["nightly"]),
        (["--state", "refused"], ["nightly"]),
        (["--state", "failed"], []),
        (["--since", "2h"], []),
    ],
)
def test_runs_of_schedules_are_filtered(
    night: tuple[Desk, str], options: list[str], origins: list[str]
) -> None:
    desk, _ = night

    listed = desk.ccmctl("run", "list", "--json", *options)

    assert (listed.code, [one["origin"] for one in listed.records]) == (0, origins)


def test_list_shows_how_far_back_it_is_complete(
    night: tuple[Desk, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, _ = night
    monkeypatch.setattr(stream_runs, "FIRST_WINDOW_S", 1.0)
    monkeypatch.setattr("ccm_ctl.fleet.runs.run_list.READ_LIMIT", 1)

    assert desk.ccmctl("run", "list").err == (
        "runs of schedules and assignments: complete since 2026-11-21 12:00:00Z, because of many events; "
        "--since reads further back\n"
    )
    assert desk.ccmctl("run", "list", "--since", "60d").err == (
        "runs of schedules and assignments: the stream of events begins at 2026-11-21 12:00:00Z; "
        "older events are removed\n"
    )


def test_node_that_lies_about_a_run_changes_nothing_but_its_own_part(night: tuple[Desk, str]) -> None:
    desk, run = night
    desk.nodes[0].does = ()
    converge(desk, run, [desk.nodes[0], desk.nodes[1]], "schedule", "nightly")
    lie = SessionStart(
        protocol=SESSION_START,
        event_id=new_id(),
        timestamp=NOW - timedelta(days=400),
        node="db1",
        run=run,
        number=1,
        manifest="harmless\x1b[2J",
        cause="assignment",
        origin="other",
    )
    publish(desk, "db1", SESSION_START, lie, run)

    [listed] = desk.ccmctl("run", "list", "--json").records

    assert (listed["cause"], listed["origin"], listed["name"]) == ("schedule", "nightly", "motd")


def invent(desk: Desk, node: str, count: int) -> None:
    """Let a node report so many runs of the last minutes that nothing started."""

    async def say(broker: MemoryBroker) -> None:
        desk.hooks.remove(say)
        events = MemoryBus(broker, node).events
        for number in range(count):
            run = run_at(NOW - timedelta(seconds=number))
            start = SessionStart(
                protocol=SESSION_START, event_id=new_id(), timestamp=NOW, node=node, run=run, number=1, manifest=f"m{number}",
                cause=("schedule", "assignment", "interval")[number % 3], origin=f"o{number}",
            )  # fmt: skip
            await events.publish(
                event_subject(SESSION_START, node, run), new_id(), msgspec.json.encode(start)
            )

    desk.hooks.append(say)


def test_node_that_invents_runs_does_not_push_the_others_out_of_the_list(night: tuple[Desk, str]) -> None:
    desk, _ = night
    converge(desk, run_at(NOW - timedelta(minutes=50)), [desk.nodes[1]], "interval", "base")
    invent(desk, "db1", 200)

    listed = desk.ccmctl("run", "list", "--limit", "10", "--json")

    origins = [one["origin"] for one in listed.records]
    assert {"base", "nightly"} <= set(origins)
    assert len(origins) == 10
    assert origins[:2] == ["o0", "o1"]
    marked = [one["cause"] for one in listed.records if one.get("reported_by") == "db1"]
    assert marked == [*["schedule", "assignment", "assignment"] * 2, "schedule", "assignment"]
    assert (
        listed.err == "left out: runs that only db1 reported, to leave room for others; --node lists them\n"
    )
    assert len(desk.ccmctl("run", "list", "--limit", "30", "--node", "db1", "--json").records) == 30
    shown = desk.ccmctl("run", "list").out
    assert ("schedule o0 (reported by db1)" in shown, "assignment o1 (reported by db1)" in shown) == (
        True,
        True,
    )


def test_run_of_a_stored_assignment_is_not_marked_as_the_word_of_one_node(night: tuple[Desk, str]) -> None:
    desk, _ = night
    converge(desk, run_at(NOW - timedelta(minutes=5)), [desk.nodes[0]], "interval", "base")
    desk.hooks.append(store_base)
    converge(desk, run_at(NOW - timedelta(minutes=4)), [desk.nodes[1]], "interval", "invented")

    listed = desk.ccmctl("run", "list", "--cause", "assignment", "--json").records

    assert [(one["origin"], one.get("reported_by")) for one in listed] == [
        ("invented", "web2"),
        ("base", None),
    ]


async def store_base(broker: MemoryBroker) -> None:
    key = assignment_key("fact.role.web", "base")
    bundle = Bundle(digest="0" * 64, size_bytes=1)
    body = Assignment(name="base", scope="fact.role.web", bundle=bundle, targets=["role=web"])
    stamped = Stamped(bucket="CCM_ASSIGNMENTS", key=key, number=1, body=body, time=NOW)
    await MemoryBus(broker, "op").bucket("CCM_ASSIGNMENTS").put(key, msgspec.json.encode(stamped))


def test_node_that_invents_runs_does_not_use_up_what_is_read(
    night: tuple[Desk, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, _ = night
    invent(desk, "db1", 60)
    monkeypatch.setattr(stream_runs, "NODE_SHARE", 5)
    monkeypatch.setattr("ccm_ctl.fleet.runs.run_list.READ_LIMIT", 20)

    shared = desk.ccmctl("run", "list", "--json")
    monkeypatch.setattr(stream_runs, "SURPLUS", 2)
    cut = desk.ccmctl("run", "list", "--json")

    assert "nightly" in [one["origin"] for one in shared.records]
    assert (
        shared.err == "left out: runs that only db1 reported, to leave room for others; --node lists them\n"
    )
    assert "complete since" in cut.err


def test_run_of_a_schedule_is_stopped_where_it_was_sent(night: tuple[Desk, str]) -> None:
    desk, run = night
    start = SessionStart(
        protocol=SESSION_START, event_id=new_id(), timestamp=NOW, node="web2", run=run, number=1, manifest="motd",
        cause="schedule", origin="nightly",
    )  # fmt: skip
    publish(desk, "web2", SESSION_START, start, run)

    said = desk.ccmctl("run", "stop", run)

    assert said.screen.startswith("run RUN (apply motd by schedule nightly): ")
    assert [one.subject for one in desk.broker.sent if ".run.stop." in one.subject][:1] == [
        "io.choria.ccm.v1.run.stop.request.fact.role.web"
    ]
