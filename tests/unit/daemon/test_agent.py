from pathlib import Path

import pytest

from ccm_agent.model.wire import MANIFEST_APPLY, AnswerState, ManifestRequest
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
