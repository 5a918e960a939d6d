"""A node lost its state folder, and with it its log of requests; the holder of the broker delivers again what was carried out."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.messages import SENT
from ccm_agent.bus.subjects import request_subject
from ccm_agent.model.ids import new_id
from ccm_agent.model.wire import MANIFEST_APPLY, ManifestRequest
from ccm_agent.testing.nats_server import NatsServer
from tests.support.agent import until
from tests.support.nats_server import running_server
from tests.support.signed_node import NODE, SignedNode, signed_node
from tests.support.signing import FULL

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with running_server(tmp_path / "nats") as one:
        yield one


@pytest.fixture
async def stage(tmp_path: Path, server: NatsServer) -> AsyncIterator[SignedNode]:
    async with signed_node(tmp_path, server) as one:
        yield one


async def test_request_that_was_carried_out_is_not_obeyed_again_after_the_state_was_lost(
    stage: SignedNode,
) -> None:
    ann = stage.keys.operator("ann", **FULL)
    stage.trust = stage.keys.trust()
    request = ManifestRequest(protocol=MANIFEST_APPLY, run=new_id(), name="site", manifest="changed /once")
    subject, body = request_subject(MANIFEST_APPLY, f"node.{NODE}"), msgspec.json.encode(request)

    async with stage.agent():
        headers = {SENT: "1", **ann.request(subject, body)}
        await stage.attacker.publish(subject, body, headers, confirm=True)
        await until(lambda: stage.ran == ["changed /once"])
    stage.clock.ahead_s += 60
    # with its state, the node knows what it carried out
    async with stage.agent():
        await stage.attacker.publish(subject, body, headers, confirm=True)
        await stage.controller.answer(request.run, NODE, 2)
        assert stage.ran == []
    await asyncio.to_thread(shutil.rmtree, stage.folder)
    stage.controller.heard.clear()
    async with stage.agent():
        await stage.attacker.publish(subject, body, headers, confirm=True)
        answer = await stage.controller.answer(request.run, NODE)
        assert (answer.state, answer.code) == ("refused", "request.before_state")
        assert "before this node's state began" in answer.reason

        assert await stage.ask(ann, "changed /new") == ("accepted", "")
        await until(lambda: stage.ran == ["changed /new"])
    # what was signed since is obeyed by later processes too
    body = msgspec.json.encode(msgspec.structs.replace(request, run=new_id(), manifest="changed /later"))
    headers = {SENT: "1", **ann.request(subject, body)}
    async with stage.agent():
        await stage.attacker.publish(subject, body, headers, confirm=True)
        await until(lambda: stage.ran == ["changed /later"])
