"""An agent in this process, on a bus and an engine that a test chooses."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ccm_agent.agent.process.agent import Agent
from ccm_agent.agent.process.context import AgentPorts
from ccm_agent.agent.state.settings import Settings
from ccm_agent.bus.signatures.signatory import Signatory
from ccm_agent.bus.subjects import event_subject, request_subject, run_pattern
from ccm_agent.engine.request import PAUSED, ApplyOptions, ManifestSource
from ccm_agent.model.errors import CcmError
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import (
    SESSION_START,
    SESSION_SUMMARY,
    TRANSACTION_EVENT,
    SessionStart,
    SessionSummary,
    TransactionEvent,
    count,
)
from ccm_agent.model.ports import BrokerConnection, Events, KeyValue, Objects, Requests, StoredEvent
from ccm_agent.model.wire import SESSION_ANSWER, Answer, Request
from ccm_agent.testing import clock
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus

NODE = "web1.example.net"
RESOURCE_TYPES = ("apply", "archive", "exec", "file", "package", "scaffold", "service")
WAIT_S = 10.0
"""How long a test waits for what must happen; only a failure takes so long."""


class FakeClock(clock.FakeClock):
    """The shipped clock at another hour, for what need not wake anybody."""

    def __init__(self, now: datetime = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)) -> None:
        super().__init__(now)
        self._monotonic = 1000.0

    def pass_s(self, seconds: float) -> None:
        """Let time pass; who sleeps sleeps on, unlike with `advance`."""
        self._pass(seconds)


def resource_event(name: str, **fields: Any) -> TransactionEvent:
    """What happened to a file; stable unless the fields say otherwise."""
    values: dict[str, Any] = {
        "protocol": TRANSACTION_EVENT,
        "event_id": new_id(),
        "timestamp": datetime(2026, 11, 21, 12, 0, tzinfo=UTC),
        "type": "file",
        "provider": "posix",
        "name": name,
        "requested_ensure": "present",
        "final_ensure": "present",
        "duration": 1_000_000,
        "properties": {"name": name},
        "status": {"name": name},
        "error": [],
        "changed": False,
        "refreshed": False,
        "failed": False,
        "skipped": False,
        "noop": False,
        "unmet_requirements": [],
    }
    return TransactionEvent(**(values | fields))


class FakeEngine:
    """
    An engine that tells the events a test wrote down, one for each line of a manifest: `changed /a`, `failed /b`, `stable /c`.

    The word `wait` lets the run stand at that resource until `go` is set; `broken` breaks it off. It pauses as the real one does.
    """

    def __init__(self) -> None:
        self.applied: list[tuple[ManifestSource, ApplyOptions]] = []
        self.go = asyncio.Event()
        self.at_wait = asyncio.Event()

    async def apply(self, source: ManifestSource, options: ApplyOptions) -> SessionSummary:
        self.applied.append((source, options))
        text = (source.text or b"").decode()
        lines = [line.split() for line in text.splitlines()]
        if options.on_start:
            options.on_start(_start(source, options, len(lines)))
        summary = _summary(source, options)
        done = {event.name: event for event in options.done}
        for place, (word, name) in enumerate(lines, 1):
            if name in done:
                count(summary, done[name])
                continue
            if options.stop and options.stop.is_pause:
                summary.code = PAUSED
                return summary
            if options.on_resource:
                options.on_resource(f"file#{name}", place, len(lines))
            if word == "broken":
                raise CcmError(f"{name}: broken")
            if word == "wait":
                self.at_wait.set()
                await self.go.wait()
            flags = {"changed": word == "changed", "failed": word == "failed", "skipped": word == "skipped"}
            if options.stop and options.stop.is_set and word != "wait":
                options.stop.has_taken_effect = True
                flags = {"skipped": True}
            event = resource_event(name, **flags, error=["no"] if word == "failed" else [])
            count(summary, event)
            if options.on_event and (waiting := options.on_event(event)):
                await waiting
        is_bad = summary.reason or summary.failed_resources
        summary.state = "failed" if is_bad else "changed" if summary.changed_resources else "stable"
        if options.stop:
            options.stop.record_in(summary)
        return summary

    async def ensure(
        self, type_name: str, properties: Mapping[str, Any], options: ApplyOptions
    ) -> TransactionEvent:
        event = resource_event(str(properties["name"]), type=type_name, changed=True)
        if options.on_event and (waiting := options.on_event(event)):
            await waiting
        return event


def _start(source: ManifestSource, options: ApplyOptions, resources: int) -> SessionStart:
    return SessionStart(
        protocol=SESSION_START,
        event_id=new_id(),
        timestamp=datetime(2026, 11, 21, 12, 0, tzinfo=UTC),
        manifest=source.name,
        digest=source.digest,
        resources=resources,
        noop=options.noop,
    )


def _summary(source: ManifestSource, options: ApplyOptions) -> SessionSummary:
    return SessionSummary(
        protocol=SESSION_SUMMARY,
        event_id=new_id(),
        timestamp=datetime(2026, 11, 21, 12, 0, tzinfo=UTC),
        manifest=source.name,
        digest=source.digest,
        noop=options.noop,
    )


async def simple_match(
    targets: Sequence[str], where: str, node: str, facts: Mapping[str, Any], *, is_request: bool = False
) -> bool:
    """Targets of the form `key=value` on top-level facts, and nothing else of the selector language."""
    if where:
        raise CcmError(f"{where}: no expressions here")
    wanted = [target.partition("=") for target in targets]
    return not wanted or any(str(facts.get(key)) == value for key, _, value in wanted)


class Bus:
    """The bus ports of one process, and what a controller does with them."""

    def __init__(
        self,
        link: BrokerConnection,
        requests: Requests,
        events: Events,
        bucket: Callable[[str], KeyValue],
        objects: Callable[[str], Objects],
    ) -> None:
        self.link = link
        self.requests = requests
        self.events = events
        self.bucket = bucket
        self.objects = objects


async def until(is_so: Callable[[], bool]) -> None:
    """Return when something has become true that announces itself to nobody."""
    async with asyncio.timeout(WAIT_S):
        while not is_so():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.002)


async def until_asked(ask: Callable[[], Awaitable[object]]) -> None:
    """As `until`, for what has to be asked for."""
    async with asyncio.timeout(WAIT_S):
        while not await ask():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.02)


def memory_bus(broker: MemoryBroker, identity: str, signatory: Signatory | None = None) -> Bus:
    """The ports of one process on a broker in memory; with a signatory it signs what it sends and writes."""
    one = MemoryBus(broker, identity, signatory)
    return Bus(one.link, one.requests, one.events, one.bucket, one.objects)


class Controller:
    """Sends requests and hears what comes of them."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self._more = asyncio.Event()

    async def listen(self) -> None:
        """Hear everything that agents say from here on."""
        await self.bus.events.follow("io.choria.ccm.v1.*.*.>", self._take)

    def _take(self, event: StoredEvent) -> None:
        self.heard.append((event.subject, json.loads(event.body)))
        self._more.set()

    async def ask(self, request: Request, scope: str = "all") -> str:
        """Publish a request; its run id."""
        request.run = request.run or new_id()
        await self.bus.requests.publish(
            request_subject(request.protocol, scope), msgspec.json.encode(request)
        )
        return request.run

    async def answer(self, run: str, node: str, nth: int = 1) -> Answer:
        """The nth answer of a node, as soon as it came."""
        found = await self._wait_for(event_subject(SESSION_ANSWER, node, run), nth)
        return msgspec.convert(found, Answer)

    async def summary(self, run: str, node: str) -> dict[str, Any]:
        """The end of a node's run, as soon as it came."""
        return await self._wait_for(event_subject(SESSION_SUMMARY, node, run), 1)

    async def said(self, subject: str) -> dict[str, Any]:
        """The first message on a subject, as soon as it came."""
        return await self._wait_for(subject, 1)

    async def said_like(self, protocol: str) -> dict[str, Any]:
        """The first message of a kind, as soon as it came."""
        async with asyncio.timeout(WAIT_S):
            while True:
                for subject, body in self.heard:
                    if subject.startswith(f"{protocol}."):
                        return body
                self._more.clear()
                await self._more.wait()

    async def stored(self, run: str, node: str = ">") -> list[dict[str, Any]]:
        """What the stream holds of a run."""
        return [json.loads(event.body) for event in await self.bus.events.read(run_pattern(run, node))]

    async def _wait_for(self, subject: str, nth: int) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_S):
            while True:
                found = [body for said, body in self.heard if said == subject]
                if len(found) >= nth:
                    return found[nth - 1]
                self._more.clear()
                await self._more.wait()


def agent_settings(folder: Path, node: str, **fields: Any) -> Settings:
    """Settings with short windows."""
    values: dict[str, Any] = {"state_dir": str(folder), "identity": node, "retry_s": 0.01, "drain_s": 2.0}
    return Settings(**(values | fields))


def agent_ports(bus: Bus, engine: Any, clock: Any, **fields: Any) -> AgentPorts:
    """The ports of an agent, on a bus."""
    values: dict[str, Any] = {
        "link": bus.link,
        "requests": bus.requests,
        "events": bus.events,
        "objects": bus.objects("CCM_MANIFESTS"),
        "bucket": bus.bucket,
        "nodes": bus.bucket("CCM_NODES"),
        "make_engine": lambda open_bucket, numbers: engine,
        "gather_facts": lambda: {"host": {"info": {"os": "linux"}}},
        "matches": simple_match,
        "shorten": lambda event: event,
        "clock": clock,
        "resource_types": lambda: RESOURCE_TYPES,
    }
    return AgentPorts(**(values | fields))


class Running:
    """An agent that runs."""

    def __init__(self, agent: Agent, stop: asyncio.Event, task: asyncio.Task[None], left: list[bool]) -> None:
        self.agent = agent
        self.is_restart = False
        self.stop = stop
        self.task = task
        self._left = left

    @property
    def left_a_resource(self) -> bool:
        """It ended while a resource went on."""
        return bool(self._left)

    async def end(self) -> None:
        """Stop it as SIGTERM does."""
        self.stop.set()
        async with asyncio.timeout(WAIT_S):
            await self.task

    async def restarts(self) -> bool:
        """The service manager's answer to who asks whether this is a restart."""
        return self.is_restart

    async def kill(self) -> None:
        """End it as kill -9 does: nothing is said, nothing more is written."""
        self.task.cancel()
        await asyncio.wait([self.task])
        self.agent.close()


@contextlib.asynccontextmanager
async def running(settings: Settings, ports: AgentPorts) -> AsyncIterator[Running]:
    """An agent that has come up; ended kindly unless the test has done so."""
    agent = await asyncio.to_thread(Agent, settings, ports, version="0.1.0")
    stop, up = asyncio.Event(), asyncio.Event()
    left: list[bool] = []

    async def restarts() -> bool:
        return await one.restarts()

    task = asyncio.create_task(agent.run(stop, up.set, lambda: left.append(True), restarts), name="agent")
    one = Running(agent, stop, task, left)
    try:
        async with asyncio.timeout(WAIT_S):
            waiting = asyncio.create_task(up.wait())
            await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        if task.done():
            task.result()
        yield one
        if not task.done():
            await one.end()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])


class OneNode:
    """One node whose agent may end and come back, and a controller; on a broker in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.broker = MemoryBroker(self.clock.now)
        self.engine = FakeEngine()
        self.controller = Controller(memory_bus(self.broker, "op"))

    @contextlib.asynccontextmanager
    async def agent(self, **settings: Any) -> AsyncIterator[Running]:
        """The next agent, with an engine of its own."""
        self.engine = FakeEngine()
        ports = agent_ports(memory_bus(self.broker, NODE), self.engine, self.clock)
        async with running(agent_settings(self.folder, NODE, **settings), ports) as one:
            yield one
