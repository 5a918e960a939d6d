"""The stream drops what has a message id that it knows: no other sender can make it drop a node's events."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.events import EVENTS_STREAM, NatsEvents
from ccm_agent.bus.subjects import event_subject, run_pattern
from ccm_agent.model import ids
from ccm_agent.model.ids import derive_id, new_id
from ccm_agent.model.outcome import SESSION_SUMMARY, TRANSACTION_EVENT
from ccm_agent.model.ports import StoredEvent
from ccm_agent.model.wire import AGENT_STARTUP, MANIFEST_APPLY, ManifestRequest
from ccm_agent.testing.nats_server import NatsServer
from tests.support.agent import Bus, Controller, FakeClock, FakeEngine, agent_ports, agent_settings, running
from tests.support.nats_server import Heard, ports_on, prepare, running_server, settings

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

NODE = "web1.example.net"
CHANGES = 40


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with running_server(tmp_path_factory.mktemp("nats")) as one:
        asyncio.run(prepare(one))
        yield one


def bus_on(connection: Connection) -> Bus:
    ports = ports_on(connection)
    return Bus(ports.link, ports.requests, ports.events, ports.bucket, ports.objects)


def following(event_id: str, count: int) -> list[str]:
    """The ids that a process makes next within a second: the number behind an id is counted up."""
    number = 0
    for char in event_id:
        number = number * 62 + ids._DIGITS.index(char)
    return [ids._encode(number + more) for more in range(1, count + 1)]


async def test_a_node_that_receives_one_event_cannot_block_later_ones_from_the_stream(
    tmp_path: Path, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a second that does not end while the test runs: the ids of the test count up
    monkeypatch.setattr(ids, "_last", 0)
    ids.follow(derive_id(int(time.time()) + 3600, bytes(16)))
    engine, run = FakeEngine(), new_id()
    async with (
        Connection(settings(server, NODE)) as of_agent,
        Connection(settings(server, "op")) as of_operator,
        Connection(settings(server, "evil")) as of_evil,
    ):
        for each in (of_agent, of_operator, of_evil):
            await each.connect_now()
        heard = Heard()
        await NatsEvents(of_evil).follow(run_pattern(run), heard)
        controller = Controller(bus_on(of_operator))
        await controller.listen()
        async with running(
            agent_settings(tmp_path, NODE), agent_ports(bus_on(of_agent), engine, FakeClock())
        ):
            changes = "\n".join(f"changed /{number}" for number in range(CHANGES))
            request = ManifestRequest(
                protocol=MANIFEST_APPLY, run=run, manifest=f"changed /first\nwait /w\n{changes}"
            )
            await controller.ask(request)
            changed = await first_change(heard)
            await engine.at_wait.wait()

            for event_id in [changed, *following(changed, 2 * CHANGES)]:
                subject = event_subject(AGENT_STARTUP, "evil")
                await of_evil.request(
                    subject, b"{}", {"Nats-Msg-Id": event_id, "Nats-Expected-Stream": EVENTS_STREAM}
                )
            engine.go.set()
            summary = await controller.summary(run, NODE)

            stored = await controller.stored(run)
    kinds = [event["protocol"] for event in stored]
    assert kinds.count(TRANSACTION_EVENT) == CHANGES + 1
    assert kinds[-1] == SESSION_SUMMARY
    assert [event["number"] for event in stored] == list(range(1, summary["events_sent"] + 1))


async def first_change(heard: Heard) -> str:
    """The event id of the first change, as soon as it is heard."""
    for count in range(1, 10):
        event: StoredEvent = (await heard.wait(count))[count - 1]
        if event.subject.startswith(f"{TRANSACTION_EVENT}."):
            event_id: str = json.loads(event.body)["event_id"]
            return event_id
    raise AssertionError("no change was told")
