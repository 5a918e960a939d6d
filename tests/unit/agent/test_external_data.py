"""When a document is other than before."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

from ccm_agent.agent.desired.origins import SourcePorts
from ccm_agent.agent.desired.watcher import ExternalData
from ccm_agent.testing.download import FakeDownload
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


async def test_a_key_of_a_broker_recreated_is_another_at_the_same_revision() -> None:
    seconds = itertools.count()
    broker = MemoryBroker(lambda: NOON + timedelta(seconds=next(seconds)))
    bus = MemoryBus(broker, "web1")
    changes: list[None] = []
    ports = SourcePorts(files=FakeFiles(), download=FakeDownload(), objects=bus.objects)
    watch = ExternalData("kv://CCM_DATA/common", ports, bus.bucket, lambda: changes.append(None))
    revisions = [await bus.bucket("CCM_DATA").put("common", b"data: {word: old}")]

    for _ in range(2):
        await watch.look()
    before = len(changes)
    broker.make_anew()
    revisions.append(await bus.bucket("CCM_DATA").put("common", b"data: {word: new}"))
    for _ in range(2):
        await watch.look()

    assert (revisions, before, len(changes)) == ([1, 1], 0, 1)
