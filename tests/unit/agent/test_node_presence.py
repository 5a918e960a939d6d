import asyncio
import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from ccm_agent.agent.state.presence import NodePresence, facts_digest
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.errors import BusUnavailableError
from ccm_agent.model.ports import KeyValue
from ccm_agent.model.wire import AGENT_DUPLICATE, FactsRecord, ManifestRequest, NodeRecord, Presence
from ccm_agent.model.wire import MANIFEST_APPLY as APPLY
from ccm_agent.testing.memory_bus import MemoryBroker
from tests.support.agent import (
    Bus,
    Controller,
    FakeClock,
    FakeEngine,
    agent_ports,
    agent_settings,
    memory_bus,
    running,
    until,
)

NODE = "web1.example.net"
STARTED = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def broker(clock: FakeClock) -> MemoryBroker:
    return MemoryBroker(clock.now)


@pytest.fixture
def bus(broker: MemoryBroker) -> Bus:
    return memory_bus(broker, NODE)


def heartbeat(bus: Bus, clock: FakeClock, machine: str = "m1") -> NodePresence:
    record = NodeRecord(node=NODE, machine=machine, started=STARTED, version="0.1.0")
    return NodePresence(bus.bucket("CCM_NODES"), record, clock, ttl_s=180)


async def value(bus: Bus, key: str) -> bytes | None:
    entry = await bus.bucket("CCM_NODES").get(f"{key}.{NODE}")
    return entry.value if entry else None


def newest(broker: MemoryBroker) -> int:
    """The sequence of the last write."""
    return broker.buckets["CCM_NODES"][-1].sequence


async def test_a_heartbeat_contains_identity_start_time_and_current_run(bus: Bus, clock: FakeClock) -> None:
    await heartbeat(bus, clock).beat("r1")

    assert msgspec.json.decode(await value(bus, "presence") or b"", type=Presence) == Presence(
        node=NODE, machine="m1", started=STARTED, time=clock.now(), run="r1", ttl_s=180
    )


async def test_presence_expires_after_three_heartbeats(bus: Bus, clock: FakeClock) -> None:
    await heartbeat(bus, clock).beat("")
    clock.pass_s(179)
    assert await value(bus, "presence") is not None

    clock.pass_s(2)

    assert await value(bus, "presence") is None


async def test_goodbye_takes_it_back(bus: Bus, clock: FakeClock) -> None:
    one = heartbeat(bus, clock)
    await one.beat("")

    await one.remove_presence()

    assert await value(bus, "presence") is None


async def test_record_and_facts_are_written_only_when_they_changed(bus: Bus, clock: FakeClock) -> None:
    one = heartbeat(bus, clock)
    facts: dict[str, Any] = {"host": {"info": {"os": "linux", "uptime": 5}}, "role": "web"}

    written = [await one.write_record(), await one.write_facts(facts)]
    facts["host"]["info"]["uptime"] = 6
    written += [await one.write_record(), await one.write_facts(facts)]
    facts["role"] = "db"
    one.record.last_state = "changed"
    written += [await one.write_record(), await one.write_facts(facts)]

    assert written == [True, True, False, False, True, True]
    record = msgspec.json.decode(await value(bus, "facts") or b"", type=FactsRecord)
    assert (record.facts, record.digest) == (facts, facts_digest(facts))


async def test_keys_that_a_broker_may_have_lost_are_written_again_with_facts_spread_out(
    bus: Bus, clock: FakeClock
) -> None:
    one = heartbeat(bus, clock)
    facts = {"role": "web"}
    await one.write_record()
    await one.write_facts(facts)

    one.reconnected()

    assert [await one.write_record(), await one.write_record()] == [True, False]
    assert await one.write_facts(facts) is False
    assert [await one.write_facts(facts, is_regular=True) for _ in range(2)] == [True, False]


async def test_a_removed_node_comes_back_by_itself(bus: Bus, clock: FakeClock) -> None:
    one = heartbeat(bus, clock)
    facts = {"role": "web"}
    await one.write_record()
    await one.write_facts(facts, is_regular=True)
    clock.pass_s(3601)
    after_an_hour = [await one.write_record(), await one.write_facts(facts, is_regular=True)]
    clock.pass_s(86_400)

    after_a_day = [await one.write_record(), await one.write_facts(facts, is_regular=True)]

    assert (after_an_hour, after_a_day) == ([True, False], [True, True])


async def test_a_removed_node_writes_its_record_with_the_next_heartbeat(bus: Bus, clock: FakeClock) -> None:
    heartbeats = heartbeat(bus, clock)
    await heartbeats.beat("")
    await heartbeats.write_record()
    await heartbeats.write_facts({"role": "web"}, is_regular=True)
    for kind in ("node", "facts", "presence"):
        await bus.bucket("CCM_NODES").delete(f"{kind}.{NODE}")

    clock.pass_s(60)
    await heartbeats.beat("")

    assert await heartbeats.write_record() is True
    assert await heartbeats.write_facts({"role": "web"}, is_regular=True) is True
    assert heartbeats.is_duplicate is False


async def test_facts_that_no_message_could_hold_are_reported_without_their_largest_family(
    bus: Bus, clock: FakeClock
) -> None:
    facts = {"huge": "x" * 2_000_000, "role": "web"}

    await heartbeat(bus, clock).write_facts(facts)

    record = msgspec.json.decode(await value(bus, "facts") or b"", type=FactsRecord)
    assert record.facts == {"role": "web"}


async def test_two_agents_of_one_name_find_each_other_within_three_heartbeats(
    bus: Bus, clock: FakeClock
) -> None:
    first, second = heartbeat(bus, clock, "m1"), heartbeat(bus, clock, "m2")
    await first.beat("")

    for _ in range(3):
        clock.pass_s(30)
        await second.beat("")
        clock.pass_s(30)
        await first.beat("")

    assert (first.is_duplicate, second.is_duplicate) == (True, True)


async def test_the_one_that_is_left_notices_that_it_is_alone_again(bus: Bus, clock: FakeClock) -> None:
    first, second = heartbeat(bus, clock, "m1"), heartbeat(bus, clock, "m2")
    for _ in range(4):
        for one in (first, second):
            clock.pass_s(30)
            await one.beat("")
    changes = []
    for _ in range(5):
        clock.pass_s(60)
        changes.append(await first.beat(""))

    # the first still finds what the other wrote last
    assert changes == [False, False, True, False, False]
    assert not first.is_duplicate


async def test_two_agents_with_crossing_heartbeats_are_detected(bus: Bus, clock: FakeClock) -> None:
    first, second = heartbeat(bus, clock, "m1"), heartbeat(bus, clock, "m2")
    for one in (first, second, first, second, first, second):
        await one.beat("")

    changes = [await one.beat("") for one in (second, first, second, first, first, second)]

    assert changes == [False] * 6
    assert (first.is_duplicate, second.is_duplicate) == (True, True)


async def test_an_agent_that_comes_back_is_not_taken_for_two(bus: Bus, clock: FakeClock) -> None:
    before = heartbeat(bus, clock)
    await before.beat("")
    clock.pass_s(10)

    after = heartbeat(bus, clock)
    for _ in range(4):
        await after.beat("")
        clock.pass_s(60)

    assert not after.is_duplicate


async def test_a_lost_acknowledgement_or_a_long_outage_is_not_taken_for_another_agent(
    broker: MemoryBroker, bus: Bus, clock: FakeClock
) -> None:
    one = heartbeat(bus, clock)
    await one.beat("")
    for pause_s in (60.0, 600.0, 60.0):
        clock.pass_s(pause_s)
        broker.lost_acks = 1
        with pytest.raises(BusUnavailableError):
            await one.beat("")
        clock.pass_s(60)
        await one.beat("")

    assert not one.is_duplicate


class WrittenByAFleet:
    """A bucket that other nodes write to: each second, as many times as `writes` says for the time."""

    def __init__(self, clock: FakeClock, writes: Callable[[], float]) -> None:
        self.beats: list[tuple[float, int]] = []
        self._clock = clock
        self._writes = writes
        self._revision = self._at = 0.0

    async def put(self, key: str, value: bytes, *, ttl_s: int) -> int:
        now = self._clock.monotonic()
        self._revision += 1 + self._writes() * (now - self._at)
        self._at = now
        self.beats.append((now, ttl_s))
        return int(self._revision)

    async def update(self, key: str, value: bytes, revision: int, *, ttl_s: int) -> int:
        return await self.put(key, value, ttl_s=ttl_s)


@pytest.mark.parametrize(
    ("nodes", "interval_s"),
    [
        pytest.param(1_000, 60, id="a fleet as usual"),
        pytest.param(30_000, 60, id="the most that send one each minute"),
        pytest.param(60_000, 120, id="twice as many"),
        pytest.param(100_000, 200, id="three times as many"),
        pytest.param(10**12, 600, id="a broker that reports anything"),
    ],
)
async def test_heartbeats_of_a_large_fleet_are_less_frequent(
    clock: FakeClock, nodes: int, interval_s: float
) -> None:
    fleet, waited = nodes, 1.0

    def writes() -> float:
        return fleet / (60 * waited)

    bucket = WrittenByAFleet(clock, writes)
    presence = NodePresence(cast("KeyValue", bucket), NodeRecord(node=NODE), clock, ttl_s=180)

    async def beats(times: int) -> None:
        nonlocal waited
        for _ in range(times):
            await presence.beat("")
            waited = presence.stretch
            await clock.advance(60 * presence.stretch)

    await beats(12)
    assert 60 * presence.stretch == pytest.approx(interval_s, rel=0.01)
    gaps = [after - before for (before, _), (after, _) in itertools.pairwise(bucket.beats)]
    assert all(gap < ttl_s / 2 for gap, (_, ttl_s) in zip(gaps, bucket.beats, strict=False))

    fleet = 100
    await beats(12)
    assert presence.stretch == 1


async def test_the_loop_waits_for_the_longer_interval(
    tmp_path: Path, broker: MemoryBroker, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    timeout = asyncio.timeout

    def recorded(delay_s: float | None) -> asyncio.Timeout:
        waits.append(delay_s or 0)
        return timeout(delay_s)

    monkeypatch.setattr("ccm_agent.agent.node.heartbeat.asyncio.timeout", recorded)
    monkeypatch.setattr("ccm_agent.agent.state.presence.next_stretch", lambda *_: 3.0)
    ports = agent_ports(memory_bus(broker, NODE), FakeEngine(), clock)
    async with running(agent_settings(tmp_path, NODE, heartbeat_s=0.01), ports):
        for _ in range(3):
            written = newest(broker)
            await until(lambda at=written: newest(broker) > at)
            await clock.advance(60)
        await until(lambda: any(0.02 < wait <= 0.03 for wait in waits))


async def test_a_requested_heartbeat_does_not_measure_the_fleet(clock: FakeClock) -> None:
    bucket = WrittenByAFleet(clock, lambda: 100_000.0)
    presence = NodePresence(cast("KeyValue", bucket), NodeRecord(node=NODE), clock, ttl_s=180)
    for _ in range(5):
        await presence.beat("")
        await clock.advance(1)
    assert presence.stretch == 1

    for _ in range(2):
        await clock.advance(60)
        await presence.beat("")
    assert presence.stretch == 2


async def test_a_duplicate_agent_refuses_requests_and_reports_why(
    tmp_path: Path, broker: MemoryBroker, clock: FakeClock
) -> None:
    controller = Controller(memory_bus(broker, "op"))
    await controller.listen()
    other = heartbeat(memory_bus(broker, NODE), clock, "m2")
    ports = agent_ports(memory_bus(broker, NODE), FakeEngine(), clock)
    async with running(agent_settings(tmp_path, NODE, heartbeat_s=0.01), ports) as one:
        while not one.agent.is_duplicate:
            await other.beat("")
            written = newest(broker)
            await until(lambda at=written: newest(broker) > at)

        run = await controller.ask(ManifestRequest(protocol=APPLY, manifest="changed /a"))

        answer = await controller.answer(run, NODE)
        assert (answer.state, answer.code) == ("refused", "identity.duplicate")
        told = await controller.said(event_subject(AGENT_DUPLICATE, NODE))
        assert told["details"]["duplicate"] is True
        entry = await controller.bus.bucket("CCM_NODES").get(f"node.{NODE}")
        assert entry is not None
        assert msgspec.json.decode(entry.value)["conflict"] == "another agent uses this identity"


def test_identity_and_assignment_problems_are_both_shown_until_solved(bus: Bus, clock: FakeClock) -> None:
    one = heartbeat(bus, clock)
    said = []
    for about, sentence in (("assignments", "two want one"), ("identity", "a twin"), ("assignments", "")):
        one.set_warning(about, sentence)
        said.append(one.record.conflict)

    assert said == ["two want one", "a twin; two want one", "a twin"]


@pytest.mark.parametrize(
    ("left", "last_run"),
    [
        pytest.param(
            {"node": "web1", "last_run": "r1", "last_state": "changed", "pid": 7}, "r1", id="its own"
        ),
        pytest.param({"node": "web2", "last_run": "r1", "last_state": "changed"}, "", id="of another node"),
        pytest.param({"node": "web1", "last_run": 7}, "", id="damaged"),
        pytest.param({}, "", id="nothing"),
    ],
)
def test_last_run_survives_a_restart(left: dict[str, Any], last_run: str) -> None:
    clock = FakeClock()
    bus = memory_bus(MemoryBroker(clock.now), "web1")
    presence = NodePresence(bus.bucket("CCM_NODES"), NodeRecord(node="web1"), clock, ttl_s=45)

    presence.recall(left)

    assert presence.record.last_run == last_run
    presence.ended("r2", "stable")
    presence.recall(left)
    assert (presence.record.last_run, presence.record.last_state) == ("r2", "stable")
