"""
The holder of the broker delivers an operator's signed request to a node that it was not signed for (ADR 81).

A push consumer of JetStream hands a message to any subscription, with its own subject, body and headers. The signature is
valid then, so the node itself has to see that the scope is not one of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.streams import call
from ccm_agent.bus.subjects import event_subject, node_scope, request_subject
from ccm_agent.model.ids import new_id
from ccm_agent.model.wire import MANIFEST_APPLY, SESSION_ANSWER, ManifestRequest
from ccm_agent.system.clock import SystemClock
from ccm_agent.testing.nats_server import NatsServer
from tests.support.agent import Bus, Controller, FakeEngine, agent_ports, agent_settings, running, until
from tests.support.nats_server import connected_plain, ports_on, prepare, running_server
from tests.support.signing import Keyring, OwnRequests

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

ROLES = {"web1": "web", "db1": "db"}
WEB = "fact.role.web"
STREAM = "STOLEN"


class Fleet:
    """The nodes web1 and db1, an operator with `--apply role=web`, and an attacker who holds the broker."""

    def __init__(
        self, bob: OwnRequests, engines: dict[str, FakeEngine], heard: Controller, delivered: list[str]
    ) -> None:
        self.engines = engines
        self.heard = heard
        self.delivered = delivered
        self._bob = bob

    async def apply(self, text: str, scope: str, **fields: object) -> str:
        """Send what the operator signed; the run."""
        request = ManifestRequest(protocol=MANIFEST_APPLY, run=new_id(), name="site", manifest=text, **fields)  # type: ignore[arg-type]
        await self._bob.publish(request_subject(MANIFEST_APPLY, scope), msgspec.json.encode(request))
        return request.run

    def ran(self, node: str) -> list[str]:
        return [(source.text or b"").decode() for source, _ in self.engines[node].applied]


def bus_of(ports: Any) -> Bus:
    return Bus(ports.link, ports.requests, ports.events, ports.bucket, ports.objects)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with running_server(tmp_path / "nats") as one:
        yield one


@pytest.fixture
async def fleet(tmp_path: Path, server: NatsServer) -> AsyncIterator[Fleet]:
    async with contextlib.AsyncExitStack() as stack:
        attacker = await stack.enter_async_context(connected_plain(server, "evil"))
        await prepare(server)
        keys = Keyring()
        bob = keys.operator("bob", apply=(WEB, node_scope("db1")))
        engines = {}
        for node, role in ROLES.items():
            ports = ports_on(await stack.enter_async_context(connected_plain(server, node)))
            bus = bus_of(ports)
            engines[node] = FakeEngine()
            made = agent_ports(
                bus,
                engines[node],
                SystemClock(),
                trust=keys.trust(),
                gather_facts=lambda role=role: {"role": role},
            )
            settings = agent_settings(tmp_path / node, node, routed_facts=("role",))
            await stack.enter_async_context(running(settings, made))
        requests, delivered = request_subject(MANIFEST_APPLY, WEB), list[str]()
        to_db1 = request_subject(MANIFEST_APPLY, node_scope("db1"))
        await attacker.subscribe([to_db1], lambda message: delivered.append(message.subject))
        await call(attacker, f"STREAM.CREATE.{STREAM}", {"name": STREAM, "subjects": [requests]})
        consumer = {"deliver_subject": to_db1, "ack_policy": "none", "deliver_policy": "all"}
        body = {"stream_name": STREAM, "config": consumer}
        await call(attacker, f"CONSUMER.CREATE.{STREAM}", body)
        operator = await stack.enter_async_context(connected_plain(server, "bob"))
        controller = Controller(bus_of(ports_on(operator)))
        await controller.listen()
        yield Fleet(OwnRequests(operator, bob), engines, controller, delivered)


@pytest.mark.parametrize(
    ("named", "answered"),
    [
        pytest.param([], [], id="without selectors"),
        # its facts may have changed on the way, so a node that is named answers
        pytest.param(["db1"], [("refused", "target.mismatch")], id="that names the node"),
    ],
)
async def test_signed_request_runs_only_on_nodes_of_its_scope(
    fleet: Fleet, named: list[str], answered: list[tuple[str, str]]
) -> None:
    run = await fleet.apply("changed /web", WEB, named=named)
    await until(lambda: fleet.ran("web1") == ["changed /web"])

    await until(lambda: fleet.delivered == [request_subject(MANIFEST_APPLY, WEB)])
    # a node handles requests in order: this one comes after the one that the attacker has delivered
    await fleet.apply("changed /db", node_scope("db1"))
    await until(lambda: "changed /db" in fleet.ran("db1"))

    assert (fleet.ran("web1"), fleet.ran("db1")) == (["changed /web"], ["changed /db"])
    said = event_subject(SESSION_ANSWER, "db1", run)
    assert [
        (body["state"], body["code"]) for subject, body in fleet.heard.heard if subject == said
    ] == answered
