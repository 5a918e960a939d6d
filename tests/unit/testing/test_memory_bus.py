"""What tests can make the broker in memory do; that it does what a real one does is tried in tests/contract."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from ccm_agent.bus.subjects import event_subject, request_subject, run_pattern
from ccm_agent.model.errors import BusDeniedError, BusUnavailableError, RevisionError
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_START
from ccm_agent.model.ports import Published
from ccm_agent.model.wire import MANIFEST_APPLY
from ccm_agent.testing.memory_broker import Sent
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus

RUN = new_id()
START = event_subject(SESSION_START, "web1", RUN)


async def test_a_key_expires_when_its_time_has_come() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    broker = MemoryBroker(lambda: now)
    nodes = MemoryBus(broker, "web1").bucket("CCM_NODES")
    await nodes.put("presence.web1", b"here", ttl_s=180)

    now += timedelta(seconds=179)
    before = await nodes.keys()
    now += timedelta(seconds=1)

    assert before == ["presence.web1"]
    assert await nodes.get("presence.web1") is None
    assert await nodes.keys() == []


async def test_a_lost_acknowledgement_is_stored_anyway() -> None:
    broker = MemoryBroker()
    events = MemoryBus(broker, "web1").events
    broker.lost_acks = 1

    with pytest.raises(BusUnavailableError):
        await events.publish(START, "id1", b"one")
    published = await events.publish(START, "id1", b"one")

    assert published == Published(sequence=1, is_duplicate=True)
    assert [event.body for event in await events.read(run_pattern(RUN))] == [b"one"]


async def test_a_lost_acknowledgement_of_a_key_shows_at_the_next_update() -> None:
    broker = MemoryBroker()
    bucket = MemoryBus(broker, "op").bucket("CCM_DATA")
    broker.lost_acks = 1

    with pytest.raises(BusUnavailableError):
        await bucket.update("common", b"one", 0)
    with pytest.raises(RevisionError):
        await bucket.update("common", b"one", 0)


async def test_a_denied_client_gets_an_error_and_others_do_not() -> None:
    broker = MemoryBroker()
    broker.deny("web1", "$KV.CCM_FACTS.>")
    broker.deny("web1", "io.choria.ccm.v1.*.*.request.all")
    node, operator = MemoryBus(broker, "web1"), MemoryBus(broker, "op")

    with pytest.raises(BusDeniedError):
        await node.bucket("CCM_FACTS").put("web1", b"x")
    with pytest.raises(BusDeniedError):
        await node.requests.subscribe(["node.web1", "all"], lambda _incoming: None)

    assert await operator.bucket("CCM_FACTS").put("web1", b"x") == 1


async def test_due_request_is_treated_as_scheduled() -> None:
    broker = MemoryBroker()
    heard = []
    await MemoryBus(broker, "web1").requests.subscribe(["all"], heard.append)

    broker.fire(
        request_subject(MANIFEST_APPLY, "all"), b'{"protocol":"io.choria.ccm.v1.manifest.apply.request"}'
    )
    await asyncio.sleep(0)

    assert [(each.scope, each.scheduled) for each in heard] == [("all", True)]
    assert heard[0].headers["Nats-Sequence"] == "1"


async def test_sent_messages_can_be_inspected() -> None:
    broker = MemoryBroker()
    bus = MemoryBus(broker, "web1")

    await bus.events.announce(START, b"x")
    await bus.events.publish(START, "id1", b"y")

    assert broker.sent == [Sent(START, b"x", {"Ccm-Sent": "1"}), Sent(START, b"y", {"Nats-Msg-Id": "id1"})]


async def test_nothing_is_delivered_after_the_broker_stopped() -> None:
    broker = MemoryBroker()
    bus = MemoryBus(broker, "web1")
    heard = []
    await bus.events.follow(run_pattern(RUN), heard.append)

    await bus.events.announce(START, b"x")
    broker.stop()
    await asyncio.sleep(0)

    assert heard == []


async def test_a_broker_recreated_knows_nothing_and_counts_from_1() -> None:
    broker = MemoryBroker()
    bus = MemoryBus(broker, "op")
    bucket, bundles = bus.bucket("CCM_DATA"), bus.objects("CCM_MANIFESTS")
    connections: list[None] = []
    bus.link.on_connect(lambda: connections.append(None))
    await bucket.put("common", b"one")
    await bundles.put("d", b"bundle")
    await bus.events.publish(START, "id1", b"one")

    broker.make_anew()

    assert (await bucket.keys(), await bundles.digest("d"), await bus.events.read(run_pattern(RUN))) == (
        [],
        None,
        [],
    )
    assert (await bucket.put("common", b"two"), len(connections)) == (1, 1)
