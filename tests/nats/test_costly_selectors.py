"""An operator who may only look sends expressions that would keep a processor busy for minutes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from ccm_agent.bus.subjects import node_scope
from ccm_agent.model.wire import NODE_PING, AnswerState, Request
from ccm_agent.templates.target_matcher import TargetMatcher
from ccm_agent.testing.nats_server import NatsServer
from tests.nats.test_agent import connected
from tests.support.agent import Controller, FakeClock, FakeEngine, agent_ports, agent_settings, running
from tests.support.nats_server import prepare, running_server

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

NODE = "web1.example.net"
HOSTILE = 'let t=repeat("a",200000); count(1..100000,{(t+string(#)) matches "c$"})>0'
REQUESTS = 20

ANSWER_S = 3.0
"""On a quiet machine it takes less than half a second; before there were limits it took a minute."""


async def test_a_ping_is_answered_while_costly_selectors_arrive(tmp_path: Path) -> None:
    with running_server(tmp_path / "nats") as server:
        await prepare(server)
        await _attack(server, tmp_path / "state")


async def _attack(server: NatsServer, folder: Path) -> None:
    async with connected(server, "op") as bus, connected(server, NODE) as node_bus:
        controller = Controller(bus)
        await controller.listen()
        ports = agent_ports(node_bus, FakeEngine(), FakeClock(), matches=TargetMatcher(asyncio.to_thread))
        async with running(agent_settings(folder, NODE), ports):
            first = await controller.ask(Request(protocol=NODE_PING), node_scope(NODE))
            await controller.answer(first, NODE)

            runs = [await controller.ask(Request(protocol=NODE_PING, where=HOSTILE)) for _ in range(REQUESTS)]
            begun = time.monotonic()
            ping = await controller.ask(Request(protocol=NODE_PING), node_scope(NODE))
            answer = await controller.answer(ping, NODE)
            waited_s = time.monotonic() - begun

            assert answer.state == AnswerState.DONE
            assert waited_s < ANSWER_S
            refused = [await controller.answer(run, NODE) for run in runs]
            assert {(one.state, one.code) for one in refused} == {
                (AnswerState.REFUSED, "selector.too_costly")
            }
