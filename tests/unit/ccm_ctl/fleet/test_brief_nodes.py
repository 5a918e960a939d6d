"""Nodes of ephemeral tokens leave when they are away: which time counts, and what never removes a fleet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.signatures.signed_bucket import SignedBucket
from ccm_agent.bus.signatures.verified import Authored
from ccm_agent.model.errors import BusUnavailableError
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.wire import NodeRecord, Presence
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.keys.brief_nodes import SCAN_S, BriefNodeWatch
from ccm_ctl.fleet.keys.join_records import BriefNode, JoinedNode, JoinRecords
from ccm_ctl.fleet.nodes.sites import SiteSource
from tests.support.controller import fleet_on
from tests.support.signing import OWN

HOUR_S = 3600
SCANS = int(HOUR_S / SCAN_S)


class Desk:
    """A fleet in memory whose nodes joined with a token of `--ephemeral 1h`, and the watch of a join service."""

    def __init__(self) -> None:
        self.bus = MemoryBus(MemoryBroker(), "joiner")
        self.clock = FakeClock()
        self.fleet = msgspec.structs.replace(
            fleet_on(self.bus),
            joins=SignedBucket(self.bus.bucket("CCM_JOINS"), "CCM_JOINS", self.bus.signatory),
            clock=self.clock,
        )
        self.left: list[str] = []
        self.watch = self.new_watch()

    def new_watch(self) -> BriefNodeWatch:
        return BriefNodeWatch(self.fleet, lambda node: self.left.append(node.name))

    @property
    def records(self) -> JoinRecords:
        return JoinRecords(self.fleet)

    async def join(self, *names: str, key: str = "U") -> None:
        for name in names:
            node = JoinedNode(name=name, key=f"{key}{name}", token="join-a", time=1)
            await self.records.claim(node, OWN)
            await self.records.add_brief(BriefNode(name=name, key=node.key, ephemeral_s=HOUR_S), OWN)
            await self.fleet.facts.write(name, b'{"role": "web"}', 0, [Authored.from_arguments()])
            await self.begin(name, key=node.key)

    async def begin(self, *names: str, key: str = "") -> None:
        """Have nodes be present."""
        for name in names:
            record = NodeRecord(node=name, key=key or f"U{name}")
            await self.fleet.nodes.put(f"node.{name}", msgspec.json.encode(record))
            await self.fleet.nodes.put(f"presence.{name}", msgspec.json.encode(Presence(node=name)))

    async def end(self, *names: str) -> None:
        """Have the presence of nodes expire."""
        for name in names:
            await self.fleet.nodes.delete(f"presence.{name}")

    async def scan(self, times: int = 1, *, after_s: float = SCAN_S) -> None:
        for _ in range(times):
            await self.clock.advance(after_s)
            await self.watch.scan()

    async def known(self, names: Iterable[str]) -> list[str]:
        """Those of these nodes that have a record or assigned facts."""
        return [
            name
            for name in names
            if await self.fleet.nodes.get(f"node.{name}") or await self.fleet.facts.get(name)
        ]


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_node_that_is_away_for_its_time_leaves_and_no_other_does(desk: Desk) -> None:
    await desk.join("web1", "web2")
    await desk.begin("db1")
    await desk.scan()
    await desk.end("web1")

    # the first scan that misses it counts nothing
    await desk.scan(SCANS)
    before = list(desk.left)
    await desk.scan()

    assert (before, desk.left) == ([], ["web1"])
    assert await desk.known(["web1", "web2", "db1"]) == ["web2", "db1"]
    assert await desk.records.has_left("Uweb1")
    assert [one.name for one in await desk.records.brief_nodes()] == ["web2"]
    joined = await desk.records.find_node("web1")
    assert joined is not None
    assert joined.revoked


async def test_a_node_that_comes_back_in_time_begins_anew(desk: Desk) -> None:
    await desk.join("web1", "web2")
    await desk.scan()
    await desk.end("web1")
    await desk.scan(SCANS)
    await desk.begin("web1")
    await desk.scan()
    await desk.end("web1")
    await desk.scan(SCANS)

    assert desk.left == []


@pytest.mark.parametrize("jump", [400 * 86_400, -400 * 86_400])
async def test_a_clock_that_jumps_removes_nothing(desk: Desk, jump: int) -> None:
    await desk.join("web1", "web2")
    await desk.scan()
    await desk.end("web1")
    await desk.scan(2)

    desk.clock.jump(jump)
    await desk.scan(2)
    before = list(desk.left)
    await desk.scan(SCANS)

    assert (before, desk.left) == ([], ["web1"])


async def test_time_in_which_the_service_did_not_look_does_not_count(desk: Desk) -> None:
    """It was suspended, or its machine was."""
    await desk.join("web1", "web2")
    await desk.scan()
    await desk.end("web1")
    await desk.scan(2)

    await desk.scan(after_s=30 * HOUR_S)
    before = list(desk.left)
    await desk.scan(SCANS)

    assert (before, desk.left) == ([], ["web1"])


async def test_an_outage_of_the_broker_does_not_count(desk: Desk) -> None:
    await desk.join("web1", "web2")
    await desk.scan()
    await desk.end("web1", "web2")
    desk.bus.broker.stop()
    for _ in range(2 * SCANS):
        with pytest.raises(BusUnavailableError):
            await desk.scan()
    desk.bus.broker.start()

    # nodes come back one after the other
    await desk.scan()
    await desk.begin("web2")
    await desk.scan(SCANS - 1)

    assert desk.left == []


async def test_a_fleet_whose_nodes_all_lost_the_broker_stays(desk: Desk) -> None:
    names = [f"web{number}" for number in range(30)]
    await desk.join(*names)
    await desk.scan()
    await desk.end(*names)

    await desk.scan(3 * SCANS)
    before = list(desk.left)
    await desk.begin("db1")
    await desk.scan(SCANS + 1)

    assert (before, len(desk.left)) == ([], 3)


async def test_one_scan_removes_a_tenth_at_most(desk: Desk) -> None:
    names = [f"web{number}" for number in range(30)]
    await desk.join(*names)
    await desk.scan()
    await desk.end(*names[1:])
    await desk.scan(SCANS)

    counts = []
    for _ in range(4):
        before = len(desk.left)
        await desk.scan()
        counts.append(len(desk.left) - before)

    assert counts == [3, 2, 2, 2]


async def test_a_restart_of_the_service_begins_anew(desk: Desk) -> None:
    await desk.join("web1", "web2")
    await desk.scan()
    await desk.end("web1")
    await desk.scan(SCANS)

    desk.watch = desk.new_watch()
    await desk.scan(SCANS)

    assert desk.left == []


async def test_a_node_that_has_the_name_of_one_that_left_stays(desk: Desk) -> None:
    await desk.join("web1", "web2")
    await desk.scan()
    await desk.end("web1")
    await desk.scan(SCANS + 1)
    await desk.join("web1", key="V")

    await desk.scan(SCANS + 1)

    assert desk.left == ["web1"]
    assert await desk.known(["web1"]) == ["web1"]


class AtSite:
    """A bucket whose entries were copied from the broker of a site, and the contact with that site."""

    def __init__(self, bucket: Any) -> None:
        self._bucket = bucket
        self.silent_s = 1.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    async def matching(self, patterns: Sequence[str], **options: Any) -> list[KeyValueEntry]:
        found = await self._bucket.matching(patterns, **options)
        return [
            msgspec.structs.replace(one, copied_from="paris") if one.key.endswith(".web1") else one
            for one in found
        ]

    async def read(self) -> list[SiteSource]:
        return [
            SiteSource(site="paris", contact=None, silent_s=self.silent_s, lag=0, error="", index="paris")
        ]


async def test_a_node_of_a_site_that_is_cut_off_is_not_away(desk: Desk) -> None:
    await desk.join("web1", "web2")
    site: Any = AtSite(desk.fleet.nodes)
    desk.fleet = msgspec.structs.replace(desk.fleet, nodes=site, sites=site)
    desk.watch = desk.new_watch()
    await desk.scan()
    await desk.end("web1")

    site.silent_s = 3600.0
    await desk.scan(2 * SCANS)
    while_cut = list(desk.left)
    site.silent_s = 1.0
    await desk.scan(2 * SCANS)

    assert (while_cut, desk.left) == ([], ["web1"])
