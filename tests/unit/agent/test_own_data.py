"""What a node says about documents that are stored for it alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.memory_bus import MemoryBroker
from tests.support.agent import FakeEngine, agent_ports, agent_settings, memory_bus, running, until

NODE = "web1"


def announced(broker: MemoryBroker) -> bool | None:
    """The newest record's word; None before there is a record."""
    writes = [write for write in broker.buckets.get("CCM_NODES", []) if write.subject == f"node.{NODE}"]
    return json.loads(writes[-1].body).get("own_data", False) if writes else None


@pytest.mark.parametrize(
    ("answers", "own_data"),
    [
        pytest.param([True], [True], id="the broker allows it"),
        pytest.param([False], [False], id="the broker refuses it"),
        pytest.param([None, False], [True, False], id="no answer at first is not a refusal"),
        pytest.param([False, True], [False, True], id="new credentials count from the next connection on"),
        pytest.param([False, None], [False, False], id="no answer later changes nothing"),
    ],
)
async def test_node_announces_its_permissions(
    tmp_path: Path, answers: list[bool | None], own_data: list[bool]
) -> None:
    broker, asked = MemoryBroker(), list[str]()

    async def can_read_own(node: str) -> bool | None:
        asked.append(node)
        return answers[min(len(asked), len(answers)) - 1]

    seen = []
    ports = agent_ports(memory_bus(broker, NODE), FakeEngine(), FakeClock(), can_read_own=can_read_own)
    async with running(agent_settings(tmp_path, NODE), ports):
        for number, expected in enumerate(own_data, start=1):
            await until(lambda number=number: len(asked) >= number)
            await until(lambda expected=expected: announced(broker) is expected)
            seen.append(announced(broker))
            broker.stop()
            broker.start()

    assert seen == own_data
    assert set(asked) == {NODE}
