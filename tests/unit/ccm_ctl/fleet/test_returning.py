"""Nodes that come back while a run is in progress."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from ccm_agent.model.wire import Presence
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs import returning as module
from ccm_ctl.fleet.runs.returning import ReturningNodes
from tests.support.controller import fleet_on


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    return fleet_on(MemoryBus(MemoryBroker(), "op"))


async def announce(fleet: Fleet, node: str) -> None:
    await fleet.nodes.put(f"presence.{node}", msgspec.json.encode(Presence(node=node)))


async def test_a_node_that_was_offline_is_found_once_it_is_present(fleet: Fleet) -> None:
    returning = ReturningNodes(fleet)

    before = await returning.find({"web1": 0.0})
    await announce(fleet, "web1")
    await announce(fleet, "web2")

    assert (before, await returning.find({"web1": 0.0})) == ([], ["web1"])


async def test_a_silent_node_is_found_when_its_presence_is_newer_than_its_request(fleet: Fleet) -> None:
    await announce(fleet, "web1")
    entry = await fleet.nodes.get("presence.web1")
    assert entry is not None
    now = asyncio.get_running_loop().time()
    returning = ReturningNodes(fleet)
    returning.begin(entry.created - timedelta(seconds=5), now)

    assert await returning.find({"web1": now}) == ["web1"]
    assert await returning.find({"web1": now + 4}) == ["web1"]
    assert await returning.find({"web1": now + 5}) == []


async def test_of_many_nodes_each_is_looked_at_in_its_turn(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKED_AT", 2)
    nodes = dict.fromkeys(["a", "b", "c"], 0.0)
    for node in nodes:
        await announce(fleet, node)
    returning = ReturningNodes(fleet)

    assert [await returning.find(nodes) for _ in range(3)] == [["a", "b"], ["c"], ["a", "b"]]


async def test_a_node_that_never_answers_is_found_only_a_few_times(fleet: Fleet) -> None:
    await announce(fleet, "web1")
    returning = ReturningNodes(fleet)

    found = [await returning.find({"web1": 0.0}) for _ in range(5)]

    assert found == [["web1"], ["web1"], ["web1"], [], []]
