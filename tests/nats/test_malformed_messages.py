"""Messages whose bytes a server forwards without looking: they end no connection, hide nothing and command nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.events import NatsEvents
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.requests import NatsRequests
from ccm_agent.bus.subjects import event_subject, run_pattern
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY
from ccm_agent.model.wire import NODE_PING, SESSION_ANSWER, Request
from ccm_agent.testing.nats_server import NatsServer
from tests.support.agent import Bus, Controller, FakeClock, FakeEngine, agent_ports, agent_settings, running
from tests.support.header_blocks import MALFORMED
from tests.support.nats_server import Heard, ports_on, prepare, running_server, settings
from tests.support.raw_client import RawClient, raw_client
from tests.support.signing import OwnRequests

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

NODE = "web1.example.net"
PING_ALL = b"io.choria.ccm.v1.node.ping.request.all"
READ_S = 3.0
"""A reader that takes longer waits for something that never comes."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A broker without users, so that permissions are not what stops an attack."""
    with running_server(tmp_path_factory.mktemp("nats")) as one:
        asyncio.run(prepare(one))
        yield one


@pytest.fixture
async def attacker(server: NatsServer) -> AsyncIterator[RawClient]:
    async with raw_client(server) as one:
        yield one


@pytest.fixture
async def agent(server: NatsServer) -> AsyncIterator[Connection]:
    """An agent's connection."""
    async with Connection(settings(server, NODE)) as one:
        await one.connect_now()
        yield one


@pytest.fixture
async def operator(server: NatsServer) -> AsyncIterator[Connection]:
    """A controller's connection."""
    async with Connection(settings(server, "op")) as one:
        await one.connect_now()
        yield one


def bus_on(connection: Connection) -> Bus:
    ports = ports_on(connection)
    return Bus(ports.link, ports.requests, ports.events, ports.bucket, ports.objects)


async def test_malformed_header_blocks_disconnect_neither_agents_nor_controllers(
    tmp_path: Path, attacker: RawClient, agent: Connection, operator: Connection
) -> None:
    controller, bus = Controller(bus_on(operator)), bus_on(agent)
    await controller.listen()
    async with running(agent_settings(tmp_path, NODE), agent_ports(bus, FakeEngine(), FakeClock())):
        event = event_subject(SESSION_ANSWER, NODE, new_id()).encode()

        for block in MALFORMED:
            await attacker.publish(PING_ALL, b"{}", block)
            await attacker.publish(event, b"{}", block)
        run = await controller.ask(Request(protocol=NODE_PING))

        assert (await controller.answer(run, NODE)).node == NODE
    assert (agent.reconnects, operator.reconnects) == (0, 0)
    assert (agent.malformed, operator.malformed) == (len(MALFORMED), 2 * len(MALFORMED))


@pytest.mark.parametrize("char", [b"\xff", b"\x0b", b"\x0c1\x0c", b"\x00"])
async def test_subjects_of_any_bytes_disconnect_no_client(
    attacker: RawClient, agent: Connection, operator: Connection, char: bytes
) -> None:
    heard, told = Heard(), Heard()
    await NatsRequests(agent).subscribe(["all"], heard)
    await NatsEvents(operator).follow("io.choria.ccm.v1.*.*.>", told)
    malformed = agent.malformed, operator.malformed

    await attacker.publish(PING_ALL, b"{}", reply=b"r" + char)
    await attacker.publish(b"io.choria.ccm.v1.agent.a%s.b" % char, b"{}")
    await OwnRequests(operator).publish(PING_ALL.decode(), json.dumps({"protocol": NODE_PING}).encode())
    await NatsEvents(agent).announce(event_subject(SESSION_ANSWER, NODE, new_id()), b"{}")

    await heard.wait(1)
    await told.wait(1)
    assert (agent.reconnects, operator.reconnects) == (0, 0)
    assert (agent.malformed, operator.malformed) == (malformed[0] + 1, malformed[1] + 2)


async def test_events_with_malformed_headers_hide_no_other_events(
    attacker: RawClient, agent: Connection, operator: Connection
) -> None:
    """A header named `Status` would end the reading of a page: the broker says so itself that there is no more."""
    run = new_id()
    theirs = event_subject(SESSION_SUMMARY, "evil", run).encode()
    start, end = (event_subject(protocol, NODE, run) for protocol in (SESSION_START, SESSION_SUMMARY))
    blocks = [
        *MALFORMED,
        b"NATS/1.0\r\nNats-Msg-Id: x1\r\nStatus: 204\r\nNats-Num-Pending: 0\r\n\r\n",
        b"NATS/1.0\r\nNats-Msg-Id: x2\r\nStatus: 404\r\n\r\n",
        b"NATS/1.0\r\nNats-Msg-Id: x3\r\nstatus: 413\r\n\r\n",
    ]
    events = NatsEvents(operator)
    await NatsEvents(agent).publish(start, new_id(), b"{}")
    for block in blocks:
        await attacker.publish(theirs, b"{}", block)
    await NatsEvents(agent).publish(end, new_id(), b"{}")

    async with asyncio.timeout(READ_S):
        found = [event.subject for event in await events.read(run_pattern(run))]
        newest = [event.subject for event in await events.newest([run_pattern(run)])]

    assert found == [start, end]
    assert newest == [start, end]
    assert events.dropped == len(blocks) + 1
    assert operator.reconnects == 0


async def test_a_key_written_with_a_status_header_is_not_taken_for_absent(
    attacker: RawClient, operator: Connection
) -> None:
    bucket = NatsKeyValue(operator, "CCM_NODES")
    await bucket.put("node.evil", b"{}")

    await attacker.store(b"$KV.CCM_NODES.node.evil", b"{}", b"NATS/1.0\r\nStatus: 404\r\n\r\n")

    with pytest.raises(ProtocolError, match="copied"):
        await bucket.get("node.evil")


HIDING = (
    b"NATS/1.0\r\nCcm-Sent: 1\r\nX: abZZ",
    b"NATS/1.0\r\nCcm-Sent: 1\r\nX: ab",
    b"NATS/1.0\r\nCcm-Sent: 1\r\nX: ab\r\n",
    b"NATS/1.0\r\nCcm-Sent: 1\r\nX: ab\r\n\r\n\r\n",
    b"NATS/1.0\r\n Nats-Msg-Id: 1\r\nCcm-Sent: 1\r\nX: abZZ",
    b"NATS/1.0\r\n Nats-Expected-Stream: KV_CCM_ASSIGNMENTS\r\nX: abZZ",
    b"NATS/1.0\r\nNats-Msg-Id : 1\r\n Nats-Expected-Stream: KV_CCM_ASSIGNMENTS\r\nX: abZZ",
)
"""Blocks that swallow the first line that the broker appends, `Nats-Stream`; with headers that the broker does not see."""


async def copy(attacker: RawClient, stored: bytes, subject: bytes) -> None:
    """Have a stored message sent to a subject: the answer of a direct get goes where its asker says."""
    stream = b"KV_" + stored.split(b".")[1]
    await attacker.publish(b"$JS.API.DIRECT.GET.%s.%s" % (stream, stored), b"", reply=subject)


async def settled(connection: Connection) -> None:
    """Return when the answers to what was asked before have come, most likely."""
    for _ in range(3):
        await connection.request("$JS.API.DIRECT.GET.KV_CCM_DATA.$KV.CCM_DATA.none")


@pytest.mark.parametrize("block", HIDING)
async def test_a_copy_whose_mark_is_hidden_is_not_a_request(
    attacker: RawClient, agent: Connection, operator: Connection, block: bytes
) -> None:
    heard = Heard()
    await NatsRequests(agent).subscribe(["all"], heard)
    await attacker.store(b"$KV.CCM_RUNS.a", json.dumps({"protocol": NODE_PING}).encode(), block)

    await copy(attacker, b"$KV.CCM_RUNS.a", PING_ALL)
    await settled(operator)
    await OwnRequests(operator).publish(PING_ALL.decode(), json.dumps({"protocol": NODE_PING}).encode())

    [request] = await heard.wait(1)
    assert "X" not in request.headers
    assert agent.reconnects == 0


@pytest.mark.parametrize("block", HIDING)
async def test_a_copy_whose_mark_is_hidden_is_not_an_event(
    attacker: RawClient, operator: Connection, block: bytes
) -> None:
    subject = event_subject(SESSION_SUMMARY, "web1", new_id())
    events, heard = NatsEvents(operator), Heard()
    await events.follow(subject, heard)
    await attacker.store(b"$KV.CCM_RUNS.a", b"{}", block)

    await copy(attacker, b"$KV.CCM_RUNS.a", subject.encode())
    await settled(operator)

    assert await events.read(subject) == []
    assert await events.newest([subject]) == []
    assert heard.items == []


@pytest.mark.parametrize("block", HIDING)
async def test_a_copy_whose_mark_is_hidden_is_not_an_assignment(
    attacker: RawClient, operator: Connection, block: bytes
) -> None:
    key = f"all.{new_id().lower()}"
    bucket = NatsKeyValue(operator, "CCM_ASSIGNMENTS")
    await attacker.store(b"$KV.CCM_RUNS.a", b"theirs", block)

    await copy(attacker, b"$KV.CCM_RUNS.a", b"$KV.CCM_ASSIGNMENTS." + key.encode())
    await settled(operator)

    assert await bucket.matching([key]) == []
    with pytest.raises(ProtocolError, match="copied"):
        await bucket.get(key)
    with pytest.raises(ProtocolError, match="copied"):
        await bucket.matching([key], obeyed=True)


@pytest.mark.parametrize("without_headers", [True, False])
@pytest.mark.parametrize("block", [b"NATS/1.0\r\nX: 1\r\n\r\n", *HIDING])
async def test_a_copy_sent_to_a_due_subject_is_not_obeyed(
    attacker: RawClient, agent: Connection, operator: Connection, block: bytes, without_headers: bool
) -> None:
    """The schedules' stream stores it and republishes it with fresh headers of its own."""
    heard, refused = Heard(), Heard()
    subject = "io.choria.ccm.v1.manifest.apply.request.all"
    await NatsRequests(agent).subscribe(["all"], heard, refused)
    body = json.dumps({"protocol": "io.choria.ccm.v1.manifest.apply.request"}).encode()
    await attacker.store(b"$KV.CCM_RUNS.a", body, block)
    malformed = agent.malformed

    question = json.dumps({"last_by_subj": "$KV.CCM_RUNS.a", "no_hdr": without_headers}).encode()
    await attacker.publish(
        b"$JS.API.DIRECT.GET.KV_CCM_RUNS", question, reply=b"choria.ccm.due.manifest.apply.request.all"
    )
    await settled(operator)
    await settled(agent)

    assert heard.items == []
    assert len(refused.items) + agent.malformed - malformed >= 1
    with pytest.raises(ProtocolError):
        await NatsRequests(agent).last_due(subject)
