"""A node that demands signatures, on a broker that an attacker holds, with a clock that a test moves."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.signatures.signatory import Signatory
from ccm_agent.bus.signatures.signed_bucket import SignedBucket
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.bus.signatures.trust import TRUST_BUCKET, SignedText
from ccm_agent.bus.streams import Stored, read_all, store
from ccm_agent.bus.subjects import key_subject, request_subject
from ccm_agent.engine.run import LocalEngine
from ccm_agent.model.ids import new_id
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import MANIFEST_APPLY, ManifestRequest
from ccm_agent.system.clock import SystemClock
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_agent.testing.nats_server import NatsServer
from ccm_ctl.fleet.data.node_data import OperatorData
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.trust.seen_signers import SeenSigners
from tests.support.agent import (
    Bus,
    Controller,
    Running,
    agent_ports,
    agent_settings,
    running,
)
from tests.support.assignments import BundleEngine
from tests.support.controller import fleet_on
from tests.support.nats_server import connected_plain, ports_on, prepare, recreate
from tests.support.signing import Keyring, OwnKeyValue, OwnRequests, now_ms

NODE = "web1.example.net"

WRITTEN_HEADERS = (SIGNATURE_HEADER, "Nats-Expected-Stream", "KV-Operation", "Ccm-Note")
"""Headers of a stored message that its writer set."""


class LaterClock(SystemClock):
    """The clock of this host, some time ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_s = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead_s)

    def now_ms(self) -> int:
        return now_ms() + int(self.ahead_s * 1000)


class SignedNode:
    """A node, the keys of its fleet, and an attacker who holds the broker."""

    def __init__(self, folder: Path, attacker: Connection, node: Connection) -> None:
        self.clock = LaterClock()
        self.keys = Keyring(self.clock.now_ms)
        self.keys.number = now_ms()
        self.engine = BundleEngine()
        self.attacker = attacker
        self.controller = Controller(bus_on(attacker))
        self.trust = self.keys.trust()
        self.folder, self._node = folder, node
        self.asked = ""  # the run of the last request

    @contextlib.asynccontextmanager
    async def agent(self, engine: LocalEngine | None = None) -> AsyncIterator[Running]:
        """The node's agent, with the state that it had before; without an engine it only remembers what it would apply."""
        self.engine = BundleEngine()
        ports = agent_ports(bus_on(self._node), engine or self.engine, self.clock, trust=self.trust)
        settings = agent_settings(self.folder, NODE, read_interval_s=0.2)
        async with running(settings, ports) as one:
            yield one

    async def ask(self, by: Signatory, text: str, protocol: str = MANIFEST_APPLY) -> tuple[str, str]:
        """What the node answers to a request of an operator: state and code. One that waits for another is accepted, too."""
        request = ManifestRequest(protocol=protocol, run=new_id(), name="site", manifest=text)
        self.asked = request.run
        subject = request_subject(protocol, f"node.{NODE}")
        await OwnRequests(self.attacker, by).publish(subject, msgspec.json.encode(request))
        answer = await self.controller.answer(request.run, NODE)
        return "accepted" if answer.state == "queued" else answer.state, answer.code

    async def put(self, key: str, signed: SignedText) -> None:
        """What the attacker stores, or lets through."""
        headers = {SIGNATURE_HEADER: signed.signature, "Nats-Expected-Stream": f"KV_{TRUST_BUCKET}"}
        await store(self.attacker, key_subject(TRUST_BUCKET, key), signed.body.encode(), headers)

    async def facts(self, by: Signatory, **facts: str) -> None:
        """Assign facts."""
        stamped = Stamped(bucket="CCM_FACTS", key=NODE, number=self.clock.now_ms(), body=facts)
        await OwnKeyValue(self.attacker, "CCM_FACTS", by).put(NODE, msgspec.json.encode(stamped))

    async def stored(self, bucket: str) -> list[Stored]:
        """Everything that the broker stores in a bucket, as a backup has it."""
        pattern = key_subject(bucket, ">")
        return [one async for one in read_all(self.attacker, f"KV_{bucket}", pattern)]

    async def restore(self, bucket: str, stored: Sequence[Stored]) -> None:
        """Make a bucket hold these messages and no other ones."""
        await recreate(self.attacker, f"KV_{bucket}")
        for one in stored:
            headers = {name: value for name, value in one.headers.items() if name in WRITTEN_HEADERS}
            await store(self.attacker, one.subject, one.body, headers)

    def fleet(self, by: Signatory, seen: SeenSigners | None = None) -> Fleet:
        """What `ccmctl` of an operator reaches: the documents, and CCM_TRUST."""

        def bucket(name: str) -> SignedBucket:
            return SignedBucket(NatsKeyValue(self.attacker, name), name, by)

        memory = fleet_on(MemoryBus(MemoryBroker(), "ann"), self.trust)
        data = OperatorData(
            NatsKeyValue(self.attacker, "CCM_DATA"),
            NatsKeyValue(self.attacker, "CCM_NODE_DATA"),
            NatsKeyValue(self.attacker, "CCM_NODES"),
            by,
        )
        return msgspec.structs.replace(
            memory,
            signatory=by,
            clock=self.clock,
            seen=seen,
            signers=bucket(TRUST_BUCKET),
            facts=bucket("CCM_FACTS"),
            assignments=bucket("CCM_ASSIGNMENTS"),
            data=data,
        )

    @property
    def ran(self) -> list[str]:
        return [(source.text or b"").decode() for source, _ in self.engine.applied]


def bus_on(connection: Connection) -> Bus:
    ports = ports_on(connection)
    return Bus(ports.link, ports.requests, ports.events, ports.bucket, ports.objects)


@contextlib.asynccontextmanager
async def signed_node(folder: Path, server: NatsServer) -> AsyncIterator[SignedNode]:
    """The node's connection and the attacker's, and what the project needs on the broker; `agent` starts the node."""
    async with contextlib.AsyncExitStack() as stack:
        attacker, node = [
            await stack.enter_async_context(connected_plain(server, name)) for name in ("evil", NODE)
        ]
        await prepare(server)
        one = SignedNode(folder / "state", attacker, node)
        await one.controller.listen()
        yield one
