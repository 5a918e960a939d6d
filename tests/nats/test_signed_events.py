"""
The holder of every key of the broker edits the stream of events; an operator whose credentials carry trust sees it.

The broker of these tests asks for no credentials: whatever its keys could do, the attacker's connection may do here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.chain import CHAIN_HEADER
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import BusSettings
from ccm_agent.bus.events import EVENTS_STREAM, MESSAGE_ID, NatsEvents
from ccm_agent.bus.signatures.node_key import NodeKey
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SigningKey
from ccm_agent.bus.streams import Stored, call, read_all, store
from ccm_agent.bus.subjects import event_subject, run_pattern
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY, TRANSACTION_EVENT
from ccm_agent.model.wire import MANIFEST_APPLY, ManifestRequest
from ccm_agent.system.clock import SystemClock
from ccm_agent.testing.nats_server import NatsServer
from ccm_ctl.__main__ import VERBS
from ccm_ctl.app import Broker, connected
from ccm_ctl.main import main
from tests.support.agent import Bus, Controller, FakeEngine, agent_ports, agent_settings, running
from tests.support.authorship import Root, new_seed, sign_event, write_credentials
from tests.support.controller import Said, Screen
from tests.support.nats_server import connected_plain, ports_on, prepare, running_server, settings

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

NODE = "web1.example.net"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with running_server(tmp_path_factory.mktemp("nats")) as one:
        yield one


class Stage:
    """A node that has run twice and signed it, an attacker who holds the broker, and an operator with trust."""

    def __init__(self, server: NatsServer, attacker: Connection, root: Root) -> None:
        self.server = server
        self.attacker = attacker
        self.root = root
        self.runs: list[str] = []

    async def stored(self) -> list[Stored]:
        return [each async for each in read_all(self.attacker, EVENTS_STREAM, ">")]

    async def edit(self, change: Callable[[list[Stored]], list[Stored]]) -> None:
        """Make the stream hold something else."""
        stored = await self.stored()
        await call(self.attacker, f"STREAM.PURGE.{EVENTS_STREAM}")
        for one in change(stored):
            kept = {
                name: text for name in (CHAIN_HEADER, SIGNATURE_HEADER) if (text := one.headers.get(name))
            }
            await store(self.attacker, one.subject, one.body, {**kept, MESSAGE_ID: new_id()})

    async def ccmctl(self, *argv: str) -> Said:
        """Run a command of the operator."""

        @contextlib.asynccontextmanager
        async def connect(_: BusSettings) -> AsyncIterator[Broker]:
            async with connected(settings(self.server, "op")) as broker:
                yield Broker(
                    msgspec.structs.replace(broker.fleet, trust=self.root.trust()), broker.connection
                )

        def work() -> Said:
            out, err = Screen(), Screen()
            environ = {"CCM_OPERATOR": "op", "HOME": "/nonexistent"}
            code = main(
                argv,
                VERBS,
                terminal=Terminal("ccmctl", out=out, err=err, environ={}),
                environ=environ,
                connect=connect,
            )
            return Said(code, out.getvalue(), err.getvalue())

        return await asyncio.to_thread(work)

    async def verify(self) -> Said:
        return await self.ccmctl("events", "--verify", "--node", NODE)


@pytest.fixture
async def stage(tmp_path: Path, server: NatsServer) -> AsyncIterator[Stage]:
    """Places 1: startup, 2 to 5: a run with two changes, 6 to 8: a run with one, 9: shutdown."""
    async with contextlib.AsyncExitStack() as stack:
        attacker, operator, node = [
            await stack.enter_async_context(connected_plain(server, name)) for name in ("evil", "op", NODE)
        ]
        await prepare(server)
        one = Stage(server, attacker, Root())
        creds = tmp_path / "web1.creds"
        await asyncio.to_thread(write_credentials, creds, one.root, NODE)
        controller = Controller(bus_on(operator))
        await controller.listen()
        made = agent_ports(bus_on(node), FakeEngine(), SystemClock(), node_key=NodeKey(str(creds)))
        async with running(agent_settings(tmp_path, NODE), made):
            for text in ("changed /a\nchanged /b", "changed /a"):
                run = await controller.ask(
                    ManifestRequest(protocol=MANIFEST_APPLY, name="site", manifest=text)
                )
                await controller.summary(run, NODE)
                one.runs.append(run)
        yield one
        await call(attacker, f"STREAM.PURGE.{EVENTS_STREAM}")


def bus_on(connection: Connection) -> Bus:
    ports = ports_on(connection)
    return Bus(ports.link, ports.requests, ports.events, ports.bucket, ports.objects)


def changed(one: Stored, **fields: object) -> Stored:
    return msgspec.structs.replace(one, **fields)


async def test_a_nodes_own_events_are_verified(stage: Stage) -> None:
    said = await stage.verify()
    shown = await stage.ccmctl("run", "watch", stage.runs[0])

    assert (said.code, said.err) == (0, "")
    assert "verified      11        11           11" in said.out
    assert shown.code == 0  # it is not on record, and the events of the stream suffice


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        pytest.param(
            lambda stored: [*stored[:4], *stored[5:]],
            "1 event is missing from its chain (place 5), 2 events cannot be verified",
            id="deleted",
        ),
        pytest.param(
            lambda stored: [stored[0], *stored[6:]],
            "5 events are missing from its chain (places 2-6)",
            id="run deleted",
        ),
        pytest.param(
            lambda stored: [*stored[:4], changed(stored[4], body=b"{}"), *stored[5:]],
            "1 event was changed (place 5), 2 events cannot be verified",
            id="changed",
        ),
        pytest.param(
            lambda stored: [
                *stored,
                changed(stored[3], subject=event_subject(TRANSACTION_EVENT, NODE, new_id())),
            ],
            "1 event is forged (its place is taken by another event)",
            id="copied to another run",
        ),
        pytest.param(
            lambda stored: [
                *stored,
                changed(stored[1], headers={}, subject=event_subject(SESSION_START, NODE, new_id())),
            ],
            "1 event is forged (it has no place in the chain, and the node signs its events)",
            id="inserted without a place",
        ),
        pytest.param(
            lambda stored: [*stored[:3], stored[5], stored[3], stored[4], *stored[6:]],
            "1 event is stored out of order",
            id="reordered",
        ),
    ],
)
async def test_manipulations_of_the_stream_are_detected(
    stage: Stage, change: Callable[[list[Stored]], list[Stored]], sentence: str
) -> None:
    await stage.edit(change)

    said = await stage.verify()

    assert (said.code, said.err) == (2, f"{NODE}: {sentence}\n")


async def test_a_summary_that_the_holder_of_the_broker_signs_is_forged(stage: Stage) -> None:
    """With a key and a certificate of its own, and with the event about the key that would make it known."""
    other, own = Root(), SigningKey(new_seed())
    subject, body = event_subject(SESSION_SUMMARY, NODE, new_id()), b'{"state":"stable"}'
    place = (await stage.stored())[-1].headers[CHAIN_HEADER]
    headers = {CHAIN_HEADER: place, SIGNATURE_HEADER: sign_event(own, subject, body, place)}

    await stage.edit(
        lambda stored: [*stored, changed(stored[0], subject=subject, body=body, headers=headers)]
    )
    said = await stage.verify()

    assert other.certificate(NODE, own)
    assert (said.code, said.err) == (2, f"{NODE}: 1 event is forged (its place is taken by another event)\n")


async def test_a_run_that_a_restart_parted_is_verified_from_both_processes(
    tmp_path: Path, server: NatsServer, stage: Stage
) -> None:
    text = "changed /a\nchanged /b\nwait /c\nchanged /d"
    async with connected_plain(server, NODE) as node, connected_plain(server, "op") as operator:
        controller = Controller(bus_on(operator))
        await controller.listen()
        engine = FakeEngine()
        made = agent_ports(
            bus_on(node), engine, SystemClock(), node_key=NodeKey(str(tmp_path / "web1.creds"))
        )
        async with running(agent_settings(tmp_path, NODE), made) as agent:
            run = await controller.ask(ManifestRequest(protocol=MANIFEST_APPLY, name="site", manifest=text))
            await engine.at_wait.wait()
            asked = asyncio.Event()

            async def restarts() -> bool:
                asked.set()
                return True

            agent.restarts = restarts  # type: ignore[method-assign]
            agent.stop.set()
            await asked.wait()
            await asyncio.sleep(0)
            engine.go.set()
            await agent.task
        async with running(agent_settings(tmp_path, NODE), made):
            summary = await controller.summary(run, NODE)

    said = await stage.verify()
    shown = await stage.ccmctl("events", "--run", run, "--no-follow", "--json")

    assert summary["events_sent"] > 4
    assert (said.code, said.err) == (0, "")
    assert {record["verdict"] for record in shown.records} == {"verified"}
    assert len(shown.records) == summary["events_sent"]


async def test_events_since_a_time_are_read_from_there(stage: Stage) -> None:
    stored = await stage.stored()
    events = NatsEvents(stage.attacker)

    found = [event.sequence async for event in events.scan(">", since=stored[7].time)]
    run = [event.sequence async for event in events.scan(run_pattern(stage.runs[1]), since=stored[7].time)]

    assert found == [one.sequence for one in stored[7:]]
    assert run == [one.sequence for one in stored[7:10]]
