import asyncio
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.agent.process.agent import cancel_and_wait
from ccm_agent.model.wire import MANIFEST_APPLY, MESSAGE_LIMIT, AnswerState, ManifestRequest
from ccm_agent.testing.memory_bus import MemoryBroker
from tests.support.agent import (
    Controller,
    FakeClock,
    FakeEngine,
    agent_ports,
    agent_settings,
    memory_bus,
    running,
)

NODE = "web1.example.net"


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
async def controller(broker: MemoryBroker) -> Controller:
    one = Controller(memory_bus(broker, "op"))
    await one.listen()
    return one


async def test_a_run_is_answered_started_and_summed_up(
    tmp_path: Path, broker: MemoryBroker, controller: Controller
) -> None:
    engine = FakeEngine()
    ports = agent_ports(memory_bus(broker, NODE), engine, FakeClock())
    async with running(agent_settings(tmp_path, NODE), ports):
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


async def test_the_start_of_a_session_has_the_reason_of_the_request_within_its_limit(
    tmp_path: Path, broker: MemoryBroker, controller: Controller
) -> None:
    ports = agent_ports(memory_bus(broker, NODE), FakeEngine(), FakeClock())
    async with running(agent_settings(tmp_path, NODE), ports):
        runs = []
        for message in ("", "m" * (MESSAGE_LIMIT + 1)):
            request = ManifestRequest(
                protocol=MANIFEST_APPLY, name="site", manifest="stable /a", message=message
            )
            runs.append(await controller.ask(request))
            await controller.summary(runs[-1], NODE)

        starts = [(await controller.stored(run))[0] for run in runs]
        assert [start.get("message") for start in starts] == [None, "m" * MESSAGE_LIMIT]


class DeafLink:
    """The link of a library that loses the first cancellation of who waits for the broker."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.is_waited_for = asyncio.Event()
        self.lost = 0

    async def wait_connected(self) -> None:
        self.is_waited_for.set()
        try:
            await self._inner.wait_connected()
        except asyncio.CancelledError:
            self.lost += 1
            await self._inner.wait_connected()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def test_an_agent_ends_though_a_library_lost_that_it_is_to_end(
    tmp_path: Path, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancel_and_wait, "__defaults__", (0.01,))  # how long until it is asked again
    bus = memory_bus(broker, NODE)
    link = DeafLink(bus.link)
    broker.stop()
    async with running(
        agent_settings(tmp_path, NODE), agent_ports(bus, FakeEngine(), FakeClock(), link=link)
    ) as one:
        async with asyncio.timeout(10):
            await link.is_waited_for.wait()
        await one.end()

    assert link.lost >= 1
