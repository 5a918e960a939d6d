"""Schedules that a node was away for, on a broker in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.agent.requests.missed_schedules import MissedSchedules
from ccm_agent.agent.runs.admission import disable
from ccm_agent.bus.schedule_index import INDEX_SUBJECT
from ccm_agent.bus.subjects import fact_scope, own_subject, request_subject, schedule_subject
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import (
    AGENT_REFUSED,
    MANIFEST_APPLY,
    MANIFEST_PLAN,
    NODE_PING,
    Disabled,
    ManifestRequest,
    Request,
)
from ccm_agent.storage.state_file import StateFile
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.memory_bus import MemoryBroker
from tests.support.agent import (
    Controller,
    FakeEngine,
    Running,
    agent_ports,
    agent_settings,
    memory_bus,
    running,
    until,
)

NODE = "web1.example.net"
WEB = fact_scope("role", "web")
DAY_S = 86_400.0


class Fleet:
    """A broker with schedules, and one node that comes and goes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock(datetime(2026, 11, 21, 12, 0, tzinfo=UTC))
        self.broker = MemoryBroker(now=self.clock.now)
        self.engine = FakeEngine()
        self.controller = Controller(memory_bus(self.broker, "op"))

    @asynccontextmanager
    async def node(self) -> AsyncIterator[Running]:
        """The node, once it has seen what there is for it."""
        ports = agent_ports(memory_bus(self.broker, NODE), self.engine, self.clock)
        async with running(agent_settings(self.folder, NODE), ports) as one:
            await self.settled(one)
            yield one

    async def settled(self, one: Running) -> None:
        """Wait until it is known what was due, and whatever came of it has ended."""
        await until(lambda: one.agent._services.missed.is_settled and one.agent._services.requests.is_empty)
        await self.answered()
        await until(lambda: not one.agent.is_busy)

    async def answered(self) -> None:
        """Everything that came before has been looked at."""
        ping = await self.controller.ask(Request(protocol=NODE_PING))
        await self.controller.answer(ping, NODE)

    def fire(self, name: str = "nightly", scope: str = "all", *, own: str = "", **fields: Any) -> None:
        """A schedule is due; one whose requests arrive on a subject of its own if `own` names it."""
        values: dict[str, Any] = {"protocol": MANIFEST_APPLY, "catch_up": True, **fields}
        request = ManifestRequest(name=name, manifest="stable /a", cause="schedule", **values)
        self.clock_on(60)
        subject = request_subject(request.protocol, scope)
        if own:
            subject = own_subject(schedule_subject(request.protocol, scope, own))
        self.broker.fire(subject, msgspec.json.encode(request))

    def clock_on(self, seconds: float) -> None:
        """Let time pass without any activity."""
        self.clock._pass(seconds)

    async def assign(self, role: str, number: int) -> None:
        """Give the node a role; "" takes it away."""
        facts = {"role": role} if role else {}
        document = Stamped(bucket="CCM_FACTS", key=NODE, number=number, body=facts)
        await self.controller.bus.bucket("CCM_FACTS").put(NODE, msgspec.json.encode(document))

    @property
    def refused(self) -> list[str]:
        """What the node said that it refused."""
        return [subject for subject, _ in self.controller.heard if subject.startswith(f"{AGENT_REFUSED}.")]

    @property
    def applied(self) -> list[str]:
        """The manifests that were applied, in order."""
        return [source.name for source, _ in self.engine.applied]


@pytest.fixture
async def fleet(tmp_path: Path) -> Fleet:
    one = Fleet(tmp_path)
    await one.controller.listen()
    return one


async def test_a_node_that_was_off_takes_the_last_due_request_once(fleet: Fleet) -> None:
    async with fleet.node():
        pass
    fleet.fire("first")
    fleet.fire("second")

    async with fleet.node():
        pass
    async with fleet.node():
        pass

    assert fleet.applied == ["second"]


async def test_node_catches_up_when_its_broker_is_back(fleet: Fleet) -> None:
    async with fleet.node() as one:
        fleet.broker.stop()
        fleet.fire()
        before = list(fleet.applied)
        fleet.broker.start()
        await until(lambda: len(fleet.applied) == 1)
        await fleet.settled(one)

    assert (before, fleet.applied) == ([], ["nightly"])


async def test_a_node_that_was_there_does_not_take_it_again_however_late_it_restarts(fleet: Fleet) -> None:
    async with fleet.node() as one:
        fleet.fire()
        await until(lambda: len(fleet.applied) == 1)
        await fleet.settled(one)
    # the ledger has forgotten it, and the schedule is a monthly one
    fleet.clock_on(10 * DAY_S)

    async with fleet.node():
        pass

    assert fleet.applied == ["nightly"]
    assert fleet.refused == []


async def test_node_that_was_off_for_days_catches_up(fleet: Fleet) -> None:
    async with fleet.node():
        pass
    fleet.fire()
    fleet.clock_on(10 * DAY_S)

    async with fleet.node():
        pass

    assert fleet.applied == ["nightly"]
    assert fleet.refused == []


async def test_an_older_request_that_is_delivered_again_does_not_bring_the_last_one_back(
    fleet: Fleet,
) -> None:
    async with fleet.node() as one:
        fleet.fire("old")
        old = fleet.broker.due[request_subject(MANIFEST_APPLY, "all")]
        fleet.fire("new")
        await until(lambda: len(fleet.applied) == 2)
        fleet.broker.inject(old.subject, old.body, dict(old.headers))
        await fleet.settled(one)
    fleet.clock_on(10 * DAY_S)

    async with fleet.node():
        pass

    assert fleet.applied == ["old", "new"]


async def test_catch_up_has_no_effect_on_requests_without_a_schedule(fleet: Fleet) -> None:
    async with fleet.node() as one:
        for name in ("first", "second"):
            await fleet.controller.ask(
                ManifestRequest(protocol=MANIFEST_APPLY, name=name, manifest="stable /a", catch_up=True)
            )
        await until(lambda: len(fleet.applied) == 2)
        await fleet.settled(one)

    assert fleet.applied == ["first", "second"]


async def test_missed_schedule_is_not_repeated_after_the_ledger_was_trimmed(
    fleet: Fleet,
) -> None:
    async with fleet.node():
        pass
    fleet.fire()
    async with fleet.node():
        pass
    fleet.clock_on(10 * DAY_S)

    async with fleet.node():
        pass

    assert fleet.applied == ["nightly"]


async def test_a_schedule_that_does_not_say_so_is_not_caught_up_with(fleet: Fleet) -> None:
    async with fleet.node():
        pass
    fleet.fire(catch_up=False)

    async with fleet.node():
        pass

    assert fleet.applied == []


async def test_a_node_that_is_new_has_missed_nothing(fleet: Fleet) -> None:
    fleet.fire()

    async with fleet.node():
        pass
    before = list(fleet.applied)
    fleet.fire("next")
    async with fleet.node():
        pass

    assert (before, fleet.applied) == ([], ["next"])


async def test_role_assigned_later_catches_up_only_from_then_on(
    fleet: Fleet,
) -> None:
    async with fleet.node() as one:
        fleet.fire("before", WEB)
        await fleet.assign("web", 1)
        await until(lambda: WEB in one.agent.scopes)
        await fleet.settled(one)
    fleet.fire("after", WEB)

    async with fleet.node():
        pass

    assert fleet.applied == ["after"]


async def test_a_role_that_was_taken_while_the_node_was_away_is_not_caught_up_with(fleet: Fleet) -> None:
    await fleet.assign("web", 1)
    async with fleet.node() as one:
        await until(lambda: WEB in one.agent.scopes)
        await fleet.settled(one)
    fleet.fire(scope=WEB)
    await fleet.assign("", 2)

    async with fleet.node() as one:
        await until(lambda: WEB not in one.agent.scopes)
        await fleet.settled(one)

    assert fleet.applied == []


async def test_a_role_that_was_lost_and_came_back_begins_again(fleet: Fleet) -> None:
    await fleet.assign("web", 1)
    async with fleet.node() as one:
        await until(lambda: WEB in one.agent.scopes)
        await fleet.settled(one)
        await fleet.assign("", 2)
        await until(lambda: WEB not in one.agent.scopes)
        await fleet.settled(one)
        fleet.fire(scope=WEB)
        await fleet.assign("web", 3)
        await until(lambda: WEB in one.agent.scopes)
        await fleet.settled(one)

    assert fleet.applied == []


async def test_each_scope_and_action_is_caught_up_with_by_itself(fleet: Fleet) -> None:
    async with fleet.node():
        pass
    fleet.fire("everybody")
    fleet.fire("plan", protocol=MANIFEST_PLAN)
    fleet.fire("mine", f"node.{NODE}")
    fleet.fire("others", "node.db1")

    async with fleet.node():
        await until(lambda: len(fleet.applied) == 3)

    assert sorted(fleet.applied) == ["everybody", "mine", "plan"]


async def test_targets_are_looked_at_when_it_is_caught_up_with(fleet: Fleet) -> None:
    async with fleet.node():
        pass
    fleet.fire(targets=["role=db"])

    async with fleet.node():
        pass

    assert fleet.applied == []


@pytest.mark.parametrize(("deadline_s", "applied"), [(0, ["nightly"]), (3600, [])], ids=["none", "an hour"])
async def test_a_deadline_says_how_late_a_node_may_catch_up(
    fleet: Fleet, deadline_s: float, applied: list[str]
) -> None:
    async with fleet.node():
        pass
    fleet.fire(deadline_s=deadline_s)
    fleet.clock_on(2 * 3600)

    async with fleet.node():
        pass

    assert fleet.applied == applied


async def test_schedule_refused_while_disabled_is_not_repeated_when_enabled(fleet: Fleet) -> None:
    async with fleet.node():
        pass
    fleet.fire()
    now = fleet.clock.now()
    await asyncio.to_thread(
        disable, fleet.folder, Disabled(since=now, until=now + timedelta(hours=1), why="x", by="maria")
    )
    async with fleet.node():
        pass
    fleet.clock_on(2 * 3600)

    async with fleet.node():
        pass

    assert fleet.applied == []


async def test_a_due_request_that_is_delivered_and_found_at_once_is_one_run(fleet: Fleet) -> None:
    async with fleet.node() as one:
        fleet.broker.stop()
        fleet.fire()
        [due] = fleet.broker.due.values()
        fleet.broker.start()
        fleet.broker.inject(due.subject, due.body, due.headers)
        await until(lambda: len(fleet.applied) == 1)
        await fleet.settled(one)

    assert fleet.applied == ["nightly"]


async def test_a_replica_that_lags_brings_nothing_old_back(fleet: Fleet) -> None:
    async with fleet.node() as one:
        fleet.fire("old")
        old = dict(fleet.broker.due)
        await until(lambda: len(fleet.applied) == 1)
        fleet.clock_on(10 * DAY_S)
        fleet.fire("new")
        await until(lambda: len(fleet.applied) == 2)
        await fleet.settled(one)
    fleet.broker.due.update(old)

    async with fleet.node():
        pass

    assert fleet.applied == ["old", "new"]


async def test_a_stream_recreated_is_caught_up_with_from_its_beginning(fleet: Fleet) -> None:
    async with fleet.node():
        pass
    for _ in range(3):
        fleet.fire()
    async with fleet.node():
        pass
    fleet.broker._sequences["CCM_SCHEDULES"] = 0
    fleet.fire("anew")

    async with fleet.node():
        pass

    assert fleet.applied == ["nightly", "anew"]


async def test_a_broker_that_cannot_tell_now_is_asked_again(fleet: Fleet) -> None:
    async with fleet.node():
        pass
    fleet.fire()
    fleet.broker.deny(NODE, "choria.ccm.due.>")
    ports = agent_ports(memory_bus(fleet.broker, NODE), fleet.engine, fleet.clock)

    async with running(agent_settings(fleet.folder, NODE, read_interval_s=0.02), ports) as one:
        await fleet.answered()
        before = list(fleet.applied)
        fleet.broker._denied.clear()
        await until(lambda: len(fleet.applied) == 1)
        await fleet.settled(one)

    assert (before, fleet.applied) == ([], ["nightly"])


async def test_a_due_request_that_is_not_valid_is_skipped(fleet: Fleet) -> None:
    async with fleet.node():
        pass
    fleet.fire()
    subject = request_subject(MANIFEST_APPLY, "all")
    due = fleet.broker.due[subject]
    fleet.broker.due[subject] = type(due)(subject, b"{", due.headers)

    async with fleet.node():
        pass

    assert fleet.applied == []


async def test_last_seen_state_belongs_to_one_node(fleet: Fleet) -> None:
    async with fleet.node():
        pass

    kept = await asyncio.to_thread(StateFile(fleet.folder / "due.json", dict[str, Any]).load)

    assert kept is not None
    assert kept["node"] == NODE
    assert set(kept["seen"]) == {
        request_subject(protocol, scope)
        for protocol in (MANIFEST_APPLY, MANIFEST_PLAN)
        for scope in ("all", f"node.{NODE}")
    }


async def test_observation_of_another_node_is_ignored(fleet: Fleet) -> None:
    async with fleet.node():
        pass
    path = fleet.folder / "due.json"
    kept = await asyncio.to_thread(StateFile(path, dict[str, Any]).load)
    await StateFile(path, dict[str, Any]).save({**(kept or {}), "node": "db1.example.net"})
    fleet.fire()

    async with fleet.node():
        pass

    assert fleet.applied == []


async def test_last_seen_state_is_kept_by_an_agent_that_stops_immediately(fleet: Fleet) -> None:
    bus, path = memory_bus(fleet.broker, NODE), fleet.folder / "due.json"
    fleet.fire()
    incoming = await bus.requests.last_due(request_subject(MANIFEST_APPLY, "all"))
    one = MissedSchedules(
        NODE, bus.requests, bus.link, path, list, lambda _: None, fleet.clock, is_known=lambda _: False
    )
    task = asyncio.create_task(one.run(), name="catch_up")
    await asyncio.sleep(0)

    assert incoming is not None
    one.heard(incoming)
    task.cancel()
    await asyncio.wait([task])

    kept = await asyncio.to_thread(StateFile(path, dict[str, Any]).load)
    assert kept is not None
    assert kept["seen"].keys() == {incoming.subject}
    assert kept["latest"] == kept["seen"]


@pytest.mark.parametrize("catch_up", [True, False])
async def test_request_replayed_after_the_request_log_expired_is_refused(
    fleet: Fleet, catch_up: bool
) -> None:
    async with fleet.node() as one:
        fleet.fire(catch_up=catch_up)
        await fleet.settled(one)
        due = fleet.broker.due[request_subject(MANIFEST_APPLY, "all")]
        fleet.clock_on(2 * DAY_S)

        fleet.broker.inject(due.subject, due.body, dict(due.headers))
        told = await fleet.controller.said_like(AGENT_REFUSED)

    assert fleet.applied == ["nightly"]
    assert told["message"] == (
        f"{due.subject}: it was due 2026-11-21 12:01:00Z, which is too long ago; check this host's clock"
    )


async def replayed(fleet: Fleet, due: Any) -> str:
    """Have a stored due request delivered again with all its headers, as a direct get does; why it is refused."""
    count = len(fleet.refused)
    fleet.broker.inject(due.subject, due.body, dict(due.headers))
    await until(lambda: len(fleet.refused) > count)
    told = [
        body["message"] for subject, body in fleet.controller.heard if subject.startswith(f"{AGENT_REFUSED}.")
    ]
    return str(told[-1])


@pytest.mark.parametrize("catch_up", [True, False])
async def test_an_older_due_request_is_not_taken_again_when_the_ledger_has_forgotten_it(
    fleet: Fleet, catch_up: bool
) -> None:
    """The ledger may forget before the request is old: how long it remembers is configuration."""
    async with fleet.node():
        fleet.fire("old", catch_up=catch_up)
        old = fleet.broker.due[request_subject(MANIFEST_APPLY, "all")]
        fleet.fire("new", catch_up=catch_up)
        await until(lambda: len(fleet.applied) == 2)
    await asyncio.to_thread((fleet.folder / "ledger.log").unlink)

    async with fleet.node():
        why = await replayed(fleet, old)

    assert fleet.applied == ["old", "new"]
    assert why.endswith("and it or a later one was already accepted")


@pytest.mark.parametrize("catch_up", [True, False])
async def test_the_latest_due_request_is_not_taken_again_when_the_ledger_has_forgotten_it(
    fleet: Fleet, catch_up: bool
) -> None:
    async with fleet.node():
        fleet.fire(catch_up=catch_up)
        due = fleet.broker.due[request_subject(MANIFEST_APPLY, "all")]
        await until(lambda: len(fleet.applied) == 1)
    await asyncio.to_thread((fleet.folder / "ledger.log").unlink)
    fleet.clock_on(3600)

    async with fleet.node():
        await replayed(fleet, due)

    assert fleet.applied == ["nightly"]


async def test_schedule_without_catch_up_is_not_started_by_a_replayed_message(
    fleet: Fleet,
) -> None:
    async with fleet.node():
        pass
    fleet.fire(catch_up=False)
    due = fleet.broker.due[request_subject(MANIFEST_APPLY, "all")]
    fleet.clock_on(3600)

    async with fleet.node():
        await replayed(fleet, due)

    assert fleet.applied == []


async def test_a_role_that_was_lost_and_came_back_does_not_bring_a_request_back(fleet: Fleet) -> None:
    await fleet.assign("web", 1)
    async with fleet.node() as one:
        await until(lambda: WEB in one.agent.scopes)
        fleet.fire(scope=WEB)
        due = fleet.broker.due[request_subject(MANIFEST_APPLY, WEB)]
        await until(lambda: len(fleet.applied) == 1)
        await fleet.assign("", 2)
        await until(lambda: WEB not in one.agent.scopes)
        await fleet.settled(one)
    await asyncio.to_thread((fleet.folder / "ledger.log").unlink)
    fleet.clock_on(3600)
    await fleet.assign("web", 3)

    async with fleet.node() as one:
        await until(lambda: WEB in one.agent.scopes)
        await replayed(fleet, due)

    assert fleet.applied == ["nightly"]


async def test_a_broker_that_counts_from_one_again_is_obeyed_without_catch_up_too(fleet: Fleet) -> None:
    async with fleet.node():
        for name in ("first", "second"):
            fleet.fire(name, catch_up=False)
        await until(lambda: len(fleet.applied) == 2)
    fleet.broker._sequences["CCM_SCHEDULES"] = 0

    async with fleet.node():
        fleet.fire("anew", catch_up=False)
        await until(lambda: len(fleet.applied) == 3)

    assert fleet.applied == ["first", "second", "anew"]


async def test_two_schedules_that_are_due_at_one_moment_are_both_taken(fleet: Fleet) -> None:
    async with fleet.node() as one:
        subject = request_subject(MANIFEST_APPLY, "all")
        fleet.fire("first", catch_up=False)
        due = fleet.broker.due[subject]
        await until(lambda: len(fleet.applied) == 1)
        body = due.body.replace(b"first", b"second")
        fleet.broker.inject(subject, body, {**due.headers, "Nats-Sequence": "2"})
        await until(lambda: len(fleet.applied) == 2)
        await fleet.settled(one)

    assert fleet.applied == ["first", "second"]


async def test_a_time_that_is_to_come_is_refused_and_keeps_no_later_request_out(fleet: Fleet) -> None:
    async with fleet.node() as one:
        fleet.fire("first", catch_up=False)
        due = fleet.broker.due[request_subject(MANIFEST_APPLY, "all")]
        await until(lambda: len(fleet.applied) == 1)
        headers = {**due.headers, "Nats-Sequence": "7", "Nats-Time-Stamp": "2036-11-21T12:00:00Z"}
        fleet.broker.inject(due.subject, due.body, headers)
        await until(lambda: len(fleet.refused) == 1)
        fleet.fire("next", catch_up=False)
        await until(lambda: len(fleet.applied) == 2)
        await fleet.settled(one)

    assert fleet.applied == ["first", "next"]


# -- several schedules for one scope


async def test_node_that_was_off_takes_the_last_request_of_each_schedule_of_a_scope_once(
    fleet: Fleet,
) -> None:
    async with fleet.node():
        pass
    fleet.fire("shared")
    for own in ("backup", "patch"):
        fleet.fire(f"{own}-old", own=own)
        fleet.fire(own, own=own)

    async with fleet.node():
        pass
    async with fleet.node():
        pass

    assert sorted(fleet.applied) == ["backup", "patch", "shared"]


async def test_each_schedule_of_a_scope_is_taken_as_it_is_delivered_and_not_again(fleet: Fleet) -> None:
    async with fleet.node() as one:
        for own in ("", "backup", "patch"):
            fleet.fire(own or "shared", own=own)
        await until(lambda: len(fleet.applied) == 3)
        await fleet.settled(one)
    fleet.clock_on(10 * DAY_S)

    async with fleet.node():
        pass

    assert (fleet.applied, fleet.refused) == (["shared", "backup", "patch"], [])


async def test_schedules_of_a_role_that_the_node_got_while_they_were_due_are_not_caught_up_with(
    fleet: Fleet,
) -> None:
    async with fleet.node():
        pass
    fleet.fire("shared", scope=WEB)
    fleet.fire("backup", scope=WEB, own="backup")
    await fleet.assign("web", 1)

    async with fleet.node() as one:
        await until(lambda: WEB in one.agent.scopes)
        await fleet.settled(one)

    assert fleet.applied == []


async def test_schedule_that_the_index_names_again_is_not_taken_twice(fleet: Fleet) -> None:
    async with fleet.node():
        fleet.fire(own="backup")
        await until(lambda: len(fleet.applied) == 1)
    index = list(fleet.broker.schedule_index)
    fleet.broker.schedule_index.clear()
    async with fleet.node():
        pass
    fleet.broker.schedule_index.extend(index)
    await asyncio.to_thread((fleet.folder / "ledger.log").unlink)
    fleet.clock_on(3600)

    async with fleet.node():
        pass

    assert (fleet.applied, fleet.refused) == (["nightly"], [])


async def test_schedules_that_the_node_knows_are_caught_up_with_when_it_may_not_read_the_index(
    fleet: Fleet,
) -> None:
    async with fleet.node():
        fleet.fire(own="backup")
        await until(lambda: len(fleet.applied) == 1)
    fleet.broker.deny(NODE, INDEX_SUBJECT)
    fleet.fire("missed", own="backup")

    async with fleet.node():
        pass

    assert fleet.applied == ["nightly", "missed"]


@pytest.mark.parametrize("own", ["", "backup"])
async def test_run_that_ended_before_a_kill_is_not_taken_again_though_the_kill_came_before_due_json(
    fleet: Fleet, own: str
) -> None:
    path = fleet.folder / "due.json"
    async with fleet.node() as one:
        before = await asyncio.to_thread(path.read_bytes)
        fleet.fire(own=own)
        await until(lambda: len(fleet.applied) == 1)
        await fleet.settled(one)
    await asyncio.to_thread(path.write_bytes, before)
    fleet.clock_on(10 * DAY_S)

    async with fleet.node():
        pass

    assert fleet.applied == ["nightly"]


async def test_request_on_the_subject_of_a_schedule_that_no_schedule_sent_is_refused(fleet: Fleet) -> None:
    subject = own_subject(schedule_subject(MANIFEST_APPLY, "all", "backup"))
    body = msgspec.json.encode(ManifestRequest(protocol=MANIFEST_APPLY, name="site", manifest="stable /a"))
    async with fleet.node() as one:
        fleet.broker.inject(subject, body)
        told = await fleet.controller.said_like(AGENT_REFUSED)
        await fleet.settled(one)

    assert fleet.applied == []
    assert told["message"] == f"{subject}: refused: only schedules may send requests there"
