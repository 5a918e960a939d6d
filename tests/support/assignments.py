"""Assignments as an operator writes them, and an agent that converges on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ccm_agent.bus.subjects import assignment_key, notification_subject
from ccm_agent.engine.request import ApplyOptions, ManifestSource
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.errors import CcmError
from ccm_agent.model.outcome import SessionStart, SessionSummary
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import Assignment, AssignmentState, NodeRecord
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.memory_bus import MemoryBroker
from tests.support.agent import (
    Bus,
    Controller,
    FakeEngine,
    Running,
    agent_ports,
    agent_settings,
    memory_bus,
    running,
    until,
    until_asked,
)
from tests.support.bundles import digest_of, packed

BUCKET = "CCM_ASSIGNMENTS"
NODE = "web1.example.net"
START = datetime.fromisoformat("2026-01-01T12:00:00Z")

__all__ = ["BUCKET", "NODE", "START", "BundleEngine", "Operator", "World", "notification_subject"]


class BundleEngine(FakeEngine):
    """
    Reads the lines of `FakeEngine` from the manifest of a bundle.

    Attributes:
        critical: So many checks are critical in a run of checks.
        revisions: What runs read of data, by URL.
        fails_to_load: Runs end before they start, as on data that cannot be read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.critical = 0
        self.revisions: dict[str, int] = {}
        self.fails_to_load = False

    async def apply(self, source: ManifestSource, options: ApplyOptions) -> SessionSummary:
        if self.fails_to_load:
            raise CcmError("the data cannot be read")
        if source.path:
            source = replace(source, text=await asyncio.to_thread(Path(source.path).read_bytes))
        really, revisions = options.on_start, dict(self.revisions)

        def start(said: SessionStart) -> None:
            if really:
                really(replace(said, data_revisions=revisions))

        summary = await super().apply(source, replace(options, on_start=start))
        if options.health_check_only:
            summary.health_check_critical_count = self.critical
        return summary

    async def managed(self, source: ManifestSource, options: ApplyOptions) -> dict[str, str]:
        text = await asyncio.to_thread(Path(source.path).read_text)
        names = [f"file#{line.split()[1]}" for line in text.splitlines()]
        return dict(zip(names, names, strict=True))

    @property
    def runs(self) -> list[tuple[str, str]]:
        """Text and cause of each run, in order."""
        return [((source.text or b"").decode(), options.cause) for source, options in self.applied]

    @property
    def actions(self) -> list[str]:
        """Cause of each run, in order; "check" for a run of checks."""
        return ["check" if one.health_check_only else one.cause for _, one in self.applied]


class Operator:
    """Writes assignments as `ccmctl assign` does."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.numbers: dict[str, int] = {}

    async def bundle(self, text: str) -> Bundle:
        """A bundle of one manifest, stored."""
        content = packed(text)
        await self.bus.objects("CCM_MANIFESTS").put(digest_of(content), content)
        return Bundle(digest=digest_of(content), size_bytes=len(content))

    async def assign(self, name: str, text: str, scope: str = "all", **fields: Any) -> Assignment:
        """Assign a manifest; what stood under that key is superseded."""
        assignment = Assignment(name=name, scope=scope, bundle=await self.bundle(text), **fields)
        await self.write(assignment_key(scope, name), msgspec.to_builtins(assignment))
        return assignment

    async def write(self, key: str, body: object, number: int = 0, **fields: Any) -> int:
        """A stamped document under a key, whatever it says."""
        number = number or self.numbers.get(key, 0) + 1
        self.numbers[key] = number
        stamped = Stamped(**{"bucket": BUCKET, "key": key, "number": number, "body": body, **fields})
        return await self.bus.bucket(BUCKET).put(key, msgspec.json.encode(stamped))

    async def unassign(self, name: str, scope: str = "all") -> None:
        """End an assignment."""
        await self.bus.bucket(BUCKET).delete(assignment_key(scope, name))

    async def facts(self, node: str, number: int, **facts: Any) -> None:
        """Assign facts to a node."""
        stamped = Stamped(bucket="CCM_FACTS", key=node, number=number, body=facts)
        await self.bus.bucket("CCM_FACTS").put(node, msgspec.json.encode(stamped))

    async def record(self, node: str = NODE) -> NodeRecord:
        """What everybody may know of a node."""
        entry = await self.bus.bucket("CCM_NODES").get(f"node.{node}")
        return msgspec.json.decode(entry.value, type=NodeRecord) if entry else NodeRecord(node=node)

    async def stands(self, name: str, state: str, revision: int = 1, node: str = NODE) -> AssignmentState:
        """How a node stands to an assignment, as soon as it stands so."""
        found: list[AssignmentState] = []

        async def ask() -> bool:
            told = (await self.record(node)).assignments.get(name)
            found[:] = [told] if told and (told.state, told.revision) == (state, revision) else []
            return bool(found)

        await until_asked(ask)
        return found[0]

    async def is_gone(self, name: str, node: str = NODE) -> None:
        """Return when a node does not know an assignment any more."""

        async def ask() -> bool:
            return name not in (await self.record(node)).assignments

        await until_asked(ask)


class World:
    """An agent's surroundings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock(START)
        self.engine = BundleEngine()
        self.broker = MemoryBroker()
        self.bus = memory_bus(self.broker, NODE)
        self.operator = Operator(memory_bus(self.broker, "op"))
        self.controller = Controller(self.operator.bus)
        self.facts: dict[str, Any] = {"host": {"info": {"os": "linux"}}}

    @asynccontextmanager
    async def agent(self, **settings: Any) -> AsyncIterator[Running]:
        """An agent that pauses for nothing."""
        values = {"change_pause_s": 0, "interval_s": 300, **settings}
        ports = agent_ports(self.bus, self.engine, self.clock, gather_facts=lambda: self.facts)
        async with running(agent_settings(self.folder, NODE, **values), ports) as one:
            yield one

    async def runs(self, count: int) -> list[tuple[str, str]]:
        """Wait until so many runs were begun; their texts and causes."""
        await until(lambda: len(self.engine.applied) >= count)
        return self.engine.runs

    async def pass_s(self, seconds: float) -> None:
        """Let time pass, once whoever waits for it does; one that is about to would begin to wait only then."""
        await until(lambda: self.clock.sleepers > 0)
        await self.clock.advance(seconds)

    async def idle(self, one: Running) -> None:
        """Wait until no run is in hand or waits."""
        await until(lambda: not one.agent.is_busy)
