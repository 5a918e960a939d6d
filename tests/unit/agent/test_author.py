"""Whose events these are: an agent signs with the key in its credentials, also after that has changed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.bus.chain import CHAIN_HEADER, PLACE_DETAIL
from ccm_agent.bus.signatures.node_key import NodeKey
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SignatureKind, verify
from ccm_agent.model.outcome import SESSION_SUMMARY
from ccm_agent.model.wire import AGENT_KEY, AGENT_STARTUP, MANIFEST_APPLY, ManifestRequest
from ccm_agent.testing.memory_broker import StoredWrite
from tests.support.agent import NODE, OneNode, agent_ports, agent_settings, memory_bus, running, until
from tests.support.authorship import Root, write_credentials

FOREVER_MS = 1 << 52


class Signing(OneNode):
    """A node with credentials."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "state")
        self.creds = folder / "node.creds"
        self.root = Root()

    def agent_with_key(self) -> Any:
        ports = agent_ports(
            memory_bus(self.broker, NODE), self.engine, self.clock, node_key=NodeKey(str(self.creds))
        )
        return running(agent_settings(self.folder, NODE), ports)

    def stored(self, protocol: str) -> list[StoredWrite]:
        return [write for write in self.broker.events if write.subject.startswith(f"{protocol}.")]

    def record(self) -> dict[str, Any]:
        writes = [write for write in self.broker.buckets["CCM_NODES"] if write.subject == f"node.{NODE}"]
        found: dict[str, Any] = json.loads(writes[-1].body)
        return found


@pytest.fixture
async def node(tmp_path: Path) -> Signing:
    one = Signing(tmp_path)
    await one.controller.listen()
    return one


def build_signer(write: StoredWrite) -> str:
    """Whose signature an event has, which is right for it and its place."""
    claims = verify(
        write.headers[SIGNATURE_HEADER], SignatureKind.EVENT, write.subject, write.body, now_ms=FOREVER_MS
    )
    assert claims.details == {PLACE_DETAIL: write.headers[CHAIN_HEADER]}
    return claims.key


async def test_summaries_and_events_about_the_agent_are_signed_and_all_events_have_a_place(
    node: Signing,
) -> None:
    key = await asyncio.to_thread(write_credentials, node.creds, node.root, NODE)
    async with node.agent_with_key():
        run = await node.controller.ask(ManifestRequest(protocol=MANIFEST_APPLY, manifest="changed /a"))
        await node.controller.summary(run, NODE)
        await until(lambda: bool(node.stored(SESSION_SUMMARY)))

    signed = [write for write in node.broker.events if SIGNATURE_HEADER in write.headers]
    assert all(CHAIN_HEADER in write.headers for write in node.broker.events)
    assert {build_signer(write) for write in signed} == {key.public_key}
    assert [write.subject.split(".")[4:6] for write in signed][:3] == [
        ["agent", "startup"],
        ["agent", "decision"],
        ["session", "summary"],
    ]
    assert len(signed) < len(node.broker.events)


async def test_the_record_and_the_first_event_name_the_key_and_its_certificate(node: Signing) -> None:
    key = await asyncio.to_thread(write_credentials, node.creds, node.root, NODE)
    async with node.agent_with_key():
        await until(lambda: bool(node.stored(AGENT_STARTUP)) and "CCM_NODES" in node.broker.buckets)

        (startup,) = node.stored(AGENT_STARTUP)
        details = json.loads(startup.body)["details"]
        record = node.record()

    assert (record["key"], details["key"]) == (key.public_key, key.public_key)
    assert record["certificate"] == details["certificate"]


async def test_new_credentials_count_from_the_next_connection_on(node: Signing) -> None:
    await asyncio.to_thread(write_credentials, node.creds, node.root, NODE)
    async with node.agent_with_key():
        await until(lambda: bool(node.stored(AGENT_STARTUP)))
        key = await asyncio.to_thread(write_credentials, node.creds, node.root, NODE)
        node.broker.stop()
        node.broker.start()
        await until(lambda: bool(node.stored(AGENT_KEY)) and node.record()["key"] == key.public_key)

        (changed,) = node.stored(AGENT_KEY)

    assert build_signer(changed) == key.public_key
    assert json.loads(changed.body)["details"]["key"] == key.public_key


async def test_a_node_without_a_key_sends_its_events_unsigned(node: Signing) -> None:
    async with node.agent_with_key():
        await until(lambda: bool(node.stored(AGENT_STARTUP)))

        (startup,) = node.stored(AGENT_STARTUP)

    assert SIGNATURE_HEADER not in startup.headers
    assert CHAIN_HEADER in startup.headers
