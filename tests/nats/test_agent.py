"""The agent on a real broker, in this process, with an engine that tells what a test wrote down."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ccm_agent.model.wire import MANIFEST_APPLY, AnswerState, ManifestRequest
from ccm_agent.testing.nats_server import NatsServer
from tests.support.agent import (
    Bus,
    Controller,
    FakeClock,
    FakeEngine,
    agent_ports,
    agent_settings,
    running,
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
