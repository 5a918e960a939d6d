"""What the stored events of a node tell about its resources, and about its part of one run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_START, SessionStart
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.nodes import node_resources
from ccm_ctl.fleet.nodes.node_resources import ResourceStatus, read_resources
from ccm_ctl.fleet.runs.stored_session import read_session_events
from tests.support.controller import NOW, event, fleet_on, planned_change

FIRST, SECOND = "2zFXabcdefghijklmnopqrstuvw", "2zFXabcdefghijklmnopqrstuvx"
EARLIER = NOW - timedelta(hours=1)


async def publish(broker: MemoryBroker, run: str, said: Any, node: str = "web1") -> None:
    subject = event_subject(said.protocol, node, run)
    await MemoryBus(broker, node).events.publish(subject, new_id(), msgspec.json.encode(said))


def started(origin: str) -> SessionStart:
    return SessionStart(
        protocol=SESSION_START, event_id=new_id(), timestamp=NOW, number=1, manifest="site", origin=origin
    )


async def test_the_last_event_of_each_resource_counts_and_changes_are_counted() -> None:
    broker = MemoryBroker(now=lambda: NOW)
    await publish(broker, FIRST, started("web"))
    await publish(broker, FIRST, event("/etc/motd", 2, timestamp=EARLIER, corrective=True))
    await publish(broker, SECOND, started("web"))
    await publish(broker, SECOND, event("/etc/motd", 2, failed=True, error=["disk full"], output="no space"))
    await publish(broker, SECOND, event("/etc/motd", 2, timestamp=EARLIER), node="db1")

    found = await read_resources(fleet_on(MemoryBus(broker, "op")), "web1")

    assert found == [
        ResourceStatus(
            resource="file#/etc/motd", origin="web", outcome="failed", time=NOW, run=SECOND, error=["disk full"],
            output="no space", changes=1, changed=EARLIER, corrective=True,
        )
    ]  # fmt: skip


async def test_of_too_many_events_the_newest_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_resources, "EVENTS_READ", 2)
    broker = MemoryBroker(now=lambda: NOW)
    for run, failed in ((FIRST, True), (SECOND, False)):
        await publish(broker, run, started("web"))
        await publish(broker, run, event("/etc/motd", 2, failed=failed))

    [found] = await read_resources(fleet_on(MemoryBus(broker, "op")), "web1")

    assert (found.outcome, found.run) == ("changed", SECOND)


async def test_a_plan_changes_nothing() -> None:
    broker = MemoryBroker(now=lambda: NOW)
    await publish(broker, FIRST, started(""))
    await publish(broker, FIRST, event("/etc/motd", 2, noop=True, noop_message="would write"))

    [found] = await read_resources(fleet_on(MemoryBus(broker, "op")), "web1")

    assert (found.origin, found.changes, found.changed, found.noop_message) == (
        "site",
        0,
        None,
        "would write",
    )


async def test_a_planned_change_of_a_file_that_exists_is_not_called_created() -> None:
    broker = MemoryBroker(now=lambda: NOW)
    await publish(broker, FIRST, planned_change("/etc/motd", 2))

    [found] = await read_resources(fleet_on(MemoryBus(broker, "op")), "web1")

    assert found.noop_message == "Would have changed content"


async def test_the_events_of_one_node_in_one_run_come_once_and_in_order() -> None:
    broker = MemoryBroker(now=lambda: NOW)
    for number in (3, 2, 3):
        await publish(broker, FIRST, event(f"/etc/{number}", number))
    await publish(broker, SECOND, event("/etc/other", 2))

    found = await read_session_events(fleet_on(MemoryBus(broker, "op")), FIRST, "web1")

    assert [one.name for one in found] == ["/etc/2", "/etc/3"]
