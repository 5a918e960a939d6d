"""The agent on a real broker, in this process, with an engine that tells what a test wrote down."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.agent.state.presence import NodePresence
from ccm_agent.bus.subjects import event_subject, fact_scope, request_subject
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.ids import new_id
from ccm_agent.model.ports import KeyValue
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import AGENT_REFUSED, MANIFEST_APPLY, AnswerState, ManifestRequest, NodeRecord
from ccm_agent.system.clock import SystemClock
from ccm_agent.testing.nats_server import NatsServer
from tests.support.agent import (
    Bus,
    Controller,
    FakeClock,
    FakeEngine,
    agent_ports,
    agent_settings,
    running,
    until,
    until_asked,
)
from tests.support.nats_server import Connection, ports_on, prepare, running_server, settings

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

NODE = "web1.example.net"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with running_server(tmp_path_factory.mktemp("nats")) as one:
        yield one


@contextlib.asynccontextmanager
async def connected(server: NatsServer, identity: str) -> AsyncIterator[Bus]:
    async with Connection(settings(server, identity)) as connection:
        await connection.connect_now()
        ports = ports_on(connection)
        yield Bus(ports.link, ports.requests, ports.events, ports.bucket, ports.objects)


@pytest.fixture
async def controller(server: NatsServer) -> AsyncIterator[Controller]:
    await prepare(server)
    async with connected(server, "op") as bus:
        one = Controller(bus)
        await one.listen()
        yield one


async def test_a_run_is_answered_started_and_summed_up(
    tmp_path: Path, server: NatsServer, controller: Controller
) -> None:
    async with (
        connected(server, NODE) as bus,
        running(agent_settings(tmp_path, NODE), agent_ports(bus, FakeEngine(), FakeClock())),
    ):
        request = ManifestRequest(
            protocol=MANIFEST_APPLY, name="site", manifest="stable /a\nchanged /b\nstable /c", requester="op"
        )
        run = await controller.ask(request)

        answer = await controller.answer(run, NODE)
        summary = await controller.summary(run, NODE)

        assert (answer.state, answer.position) == (AnswerState.ACCEPTED, 0)
        told = [(one["protocol"].rpartition("v1.")[2], one["number"]) for one in await controller.stored(run)]
        assert told == [("session.start", 1), ("transaction.event", 2), ("session.summary", 3)]
        assert (summary["state"], summary["events_sent"], summary["stable_resources"]) == ("changed", 3, 2)


def facts(number: int, **body: Any) -> bytes:
    return msgspec.json.encode(Stamped(bucket="CCM_FACTS", key=NODE, number=number, body=body))


async def test_an_assigned_fact_routes_requests_as_soon_as_it_is_written(
    tmp_path: Path, server: NatsServer, controller: Controller
) -> None:
    async with (
        connected(server, NODE) as bus,
        running(agent_settings(tmp_path, NODE), agent_ports(bus, FakeEngine(), FakeClock())) as one,
    ):
        bucket = controller.bus.bucket("CCM_FACTS")
        await bucket.put(NODE, facts(1, role="web"))
        await until(lambda: fact_scope("role", "web") in one.agent.scopes)
        await bucket.put(NODE, facts(2, role="a b.*>é"))
        await until(lambda: fact_scope("role", "a b.*>é") in one.agent.scopes)

        request = ManifestRequest(protocol=MANIFEST_APPLY, manifest="stable /a")
        run = await controller.ask(request, fact_scope("role", "a b.*>é"))

        assert (await controller.summary(run, NODE))["state"] == "stable"
        await bucket.delete(NODE)
        await until(lambda: one.agent.scopes == ["all", f"node.{NODE}"])


async def test_a_stored_request_copied_from_elsewhere_is_refused_and_reported(
    tmp_path: Path, server: NatsServer, controller: Controller
) -> None:
    """The attack: a node may read what operators stored, and a direct get's `reply` may be anybody's subject."""
    async with (
        connected(server, NODE) as bus,
        running(agent_settings(tmp_path, NODE), agent_ports(bus, FakeEngine(), FakeClock())),
    ):
        run = new_id()
        body = msgspec.json.encode(ManifestRequest(protocol=MANIFEST_APPLY, run=run, manifest="changed /a"))
        await controller.bus.bucket("CCM_DATA").put("planted", body)
        subject = request_subject(MANIFEST_APPLY, "all")
        async with Connection(settings(server, "thief")) as thief:
            await thief.connect_now()
            question = "$JS.API.DIRECT.GET.KV_CCM_DATA.$KV.CCM_DATA.planted"
            await thief.publish(question, b"", reply=subject, confirm=True)

        told = await controller.said(event_subject(AGENT_REFUSED, NODE))

        assert told["details"] == {"refused": subject}
        assert await controller.stored(run) == []


async def test_a_run_continues_without_the_broker_and_is_reported_when_it_is_back(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with running_server(tmp_path_factory.mktemp("own")) as own:
        await prepare(own)
        async with connected(own, "op") as op_bus, connected(own, NODE) as bus:
            controller = Controller(op_bus)
            await controller.listen()
            engine = FakeEngine()
            async with running(agent_settings(tmp_path, NODE), agent_ports(bus, engine, FakeClock())) as one:
                run = await controller.ask(
                    ManifestRequest(protocol=MANIFEST_APPLY, manifest="changed /a\nwait /b\nchanged /c")
                )
                await engine.at_wait.wait()
                await asyncio.to_thread(own.kill)
                engine.go.set()
                await until(lambda: not one.agent.is_busy)
                await asyncio.to_thread(own.start)
                async with asyncio.timeout(20):
                    await bus.link.wait_connected()
                    await op_bus.link.wait_connected()

                numbers: list[int] = []
                async with asyncio.timeout(20):
                    while len(numbers) < 4:
                        numbers = [told["number"] for told in await controller.stored(run)]

    assert numbers == [1, 2, 3, 4]


async def is_gone(bucket: KeyValue, key: str) -> bool:
    return await bucket.get(key) is None


async def test_the_inventory_holds_record_facts_and_a_presence_that_expires(
    tmp_path: Path, server: NatsServer, controller: Controller
) -> None:
    bucket = controller.bus.bucket("CCM_NODES")
    short = agent_settings(tmp_path, NODE, presence_ttl_s=1, heartbeat_s=0.3)
    async with connected(server, NODE) as bus:
        async with running(short, agent_ports(bus, FakeEngine(), FakeClock())) as one:
            for word in ("node", "facts", "presence"):
                await until_asked(lambda key=f"{word}.{NODE}": bucket.get(key))
            record = await bucket.get(f"facts.{NODE}")
            assert record is not None
            assert msgspec.json.decode(record.value)["facts"] == {"host": {"info": {"os": "linux"}}}
            await one.kill()

        await until_asked(lambda: is_gone(bucket, f"presence.{NODE}"))
        assert await bucket.get(f"node.{NODE}") is not None


async def test_many_writes_to_the_inventory_make_heartbeats_rarer(
    server: NatsServer, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm_agent.agent.state.presence.INVENTORY_WRITES", 0.1)
    bucket, clock = controller.bus.bucket("CCM_NODES"), FakeClock()
    async with connected(server, NODE) as bus:
        presence = NodePresence(bus.bucket("CCM_NODES"), NodeRecord(node=NODE), clock, ttl_s=180)
        stored = []
        for others in (0, 20, 20, 40, 0, 0):
            for number in range(others):
                await bucket.put(f"node.other{number}", b"{}")
            await clock.advance(60 * presence.stretch)
            await presence.beat("")
            entry = await bucket.get(f"presence.{NODE}")
            assert entry is not None
            stored.append(msgspec.json.decode(entry.value)["ttl_s"])

    # each number is measured with one heartbeat and takes effect with the next one
    assert stored == [180, 180, 360, 360, 720, 180]


async def test_two_agents_of_one_name_find_each_other(
    tmp_path: Path, server: NatsServer, controller: Controller
) -> None:
    beats = {"presence_ttl_s": 10, "heartbeat_s": 0.2}
    async with (
        connected(server, NODE) as bus,
        connected(server, NODE) as other_bus,
        running(
            agent_settings(tmp_path / "a", NODE, **beats), agent_ports(bus, FakeEngine(), SystemClock())
        ) as one,
        running(
            agent_settings(tmp_path / "b", NODE, **beats), agent_ports(other_bus, FakeEngine(), SystemClock())
        ) as other,
    ):
        await until(lambda: one.agent.is_duplicate and other.agent.is_duplicate)

        run = await controller.ask(ManifestRequest(protocol=MANIFEST_APPLY, manifest="changed /a"))
        answers = [await controller.answer(run, NODE, nth) for nth in (1, 2)]
        assert {answer.code for answer in answers} == {"identity.duplicate"}

        await other.end()
        await until(lambda: not one.agent.is_duplicate)


async def test_a_bundle_is_fetched_unpacked_and_applied(
    tmp_path: Path, server: NatsServer, controller: Controller
) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        text = b"stable /a\n" + b"# " + b"x" * 300_000
        info = tarfile.TarInfo("manifest.yaml")
        info.size = len(text)
        archive.addfile(info, io.BytesIO(text))
    packed = raw.getvalue()
    bundle = Bundle(digest=hashlib.sha256(packed).hexdigest(), size_bytes=len(packed))
    await controller.bus.objects("CCM_MANIFESTS").put(bundle.digest, packed)
    async with (
        connected(server, NODE) as bus,
        running(agent_settings(tmp_path, NODE), agent_ports(bus, FakeEngine(), FakeClock())),
    ):
        run = await controller.ask(ManifestRequest(protocol=MANIFEST_APPLY, name="site", bundle=bundle))

        summary = await controller.summary(run, NODE)

    assert (summary["state"], summary["digest"]) == ("stable", bundle.digest)
