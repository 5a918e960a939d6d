"""Nodes whose connection ended and whose agents do not answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.disconnects import ConnectionEnd
from ccm_agent.bus.subjects import parse_request
from ccm_agent.model.wire import NODE_PING, Presence
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.nodes import silent_nodes as module
from ccm_ctl.fleet.nodes.node_condition import AgentAnswer
from ccm_ctl.fleet.nodes.nodes import Node
from ccm_ctl.fleet.nodes.silent_nodes import SilentNodes
from ccm_ctl.fleet.runs import gather
from tests.support.controller import NOW, fleet_on

SILENT = AgentAnswer(is_silent=True)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "ASK_AGAIN_S", 0.01)
    monkeypatch.setattr(module, "SETTLE_S", 0.0)


class Notices:
    """The broker's notices, as a test gives them."""

    def __init__(self) -> None:
        self.tell: Callable[[ConnectionEnd], None] = lambda _: None

    async def __call__(self, on_disconnect: Callable[[ConnectionEnd], None]) -> Callable[[], Awaitable[None]]:
        async def stop() -> None:
            self.tell = lambda _: None

        self.tell = on_disconnect
        return stop


class Watched:
    """A fleet in memory, without agents, that is watched."""

    def __init__(self) -> None:
        self.broker = MemoryBroker(now=lambda: NOW)
        self.notices = Notices()
        self.changed = asyncio.Event()
        self._bus = MemoryBus(self.broker, "op")
        fleet = replace(fleet_on(self._bus), disconnects=self.notices)
        self.silent = SilentNodes(fleet, self.changed.set)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.silent.run())
        await asyncio.sleep(0)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def end(self, *names: str, after_s: float = 0) -> None:
        """Connections of nodes end; return when some of them are silent."""
        for name in names:
            self.notices.tell(ConnectionEnd(node=name, time=NOW + timedelta(seconds=after_s)))
        async with asyncio.timeout(10):
            await self.changed.wait()
        self.changed.clear()

    async def query_sent(self) -> None:
        """Return when nodes are being queried."""
        sent = asyncio.Event()
        stop = self._bus.subscribe(f"{NODE_PING}.>", lambda _: sent.set())
        async with asyncio.timeout(10):
            await sent.wait()
        await stop()

    def queried(self) -> list[tuple[str, str]]:
        """The runs and the nodes of all queries, in order."""
        found = []
        for one in self.broker.sent:
            if one.subject.startswith(NODE_PING):
                scope = parse_request(one.subject)[1]
                found.append((msgspec.json.decode(one.body)["run"], scope.removeprefix("node.")))
        return found


def present(name: str, heard_s: float) -> Node:
    """A node that sent its last heartbeat so many seconds after NOW."""
    return Node(name=name, presence=Presence(node=name), heard=NOW + timedelta(seconds=heard_s))


async def test_a_silent_node_is_silent_until_its_next_heartbeat() -> None:
    watched = Watched()
    async with watched.running():
        await watched.end("web1")

        assert watched.silent.answer_of(present("web1", -30)) == SILENT
        assert watched.silent.answer_of(present("web2", -30)) is None
        assert watched.silent.answer_of(present("web1", 1)) is None
        assert watched.silent.answer_of(present("web1", -30)) is None


async def test_a_node_is_silent_until_its_next_heartbeat_whatever_the_clock_of_its_server() -> None:
    watched = Watched()
    async with watched.running():
        await watched.end("web1", after_s=240)

        assert watched.silent.answer_of(present("web1", -30)) == SILENT
        assert watched.silent.answer_of(present("web1", -30)) == SILENT
        assert watched.silent.answer_of(present("web1", 10)) is None


async def test_an_offline_node_is_not_silent() -> None:
    watched = Watched()
    async with watched.running():
        await watched.end("web1")

        assert watched.silent.answer_of(Node(name="web1")) is None


async def test_a_storm_of_notices_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 20)
    monkeypatch.setattr(module, "QUERIED_AT_ONCE", 5)
    names = [f"web{number}" for number in range(10_000)]
    watched = Watched()
    async with watched.running():
        await watched.end(*names)
        for _ in range(3):
            await watched.end()
        await watched.end("last")

        silent = [name for name in [*names, "last"] if watched.silent.answer_of(present(name, -1))]

    nodes_of: dict[str, set[str]] = {}
    for run, node in watched.queried():
        nodes_of.setdefault(run, set()).add(node)
    assert [len(nodes) for nodes in nodes_of.values()] == [5, 5, 5, 5, 1]
    assert silent == [*names[1:20], "last"]


async def test_silence_counts_for_nothing_after_an_outage_of_the_broker() -> None:
    watched = Watched()
    async with watched.running():
        await watched.end("web1")
        assert watched.silent.answer_of(present("web1", -30)) == SILENT
        watched.broker.stop()
        watched.broker.start()

        assert watched.silent.answer_of(present("web1", -30)) is None


async def test_silence_during_an_outage_of_the_broker_counts_for_nothing() -> None:
    watched = Watched()
    async with watched.running():
        watched.notices.tell(ConnectionEnd(node="web1", time=NOW))
        await watched.query_sent()
        watched.broker.stop()
        watched.broker.start()
        await watched.end("web2")

        assert watched.silent.answer_of(present("web1", -30)) is None
        assert watched.silent.answer_of(present("web2", -30)) == SILENT


async def test_a_notice_from_the_future_is_ignored() -> None:
    watched = Watched()
    async with watched.running():
        watched.notices.tell(ConnectionEnd(node="web1", time=NOW.replace(year=9999)))
        await watched.end("web2", after_s=60)

        assert {node for _, node in watched.queried()} == {"web2"}
