"""The agent with its real engine on a real broker: data from a bucket, and what is not obeyed."""

from __future__ import annotations

import asyncio
import getpass
import grp
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.app_agent import agent_ports
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import AGENT_REFUSED, MANIFEST_APPLY, ManifestRequest
from ccm_agent.testing.nats_server import NatsServer
from tests.support.agent import Bus, Controller, agent_settings, running
from tests.support.nats_server import Connection, ports_on, prepare, running_server, settings

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

NODE = "web1.example.net"
URL = "kv://CCM_DATA/common"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with running_server(tmp_path_factory.mktemp("nats")) as one:
        yield one


@pytest.fixture
async def controller(server: NatsServer) -> AsyncIterator[Controller]:
    await prepare(server)
    async with Connection(settings(server, "op")) as connection:
        await connection.connect_now()
        ports = ports_on(connection)
        one = Controller(Bus(ports.link, ports.requests, ports.events, ports.bucket, ports.objects))
        await one.listen()
        yield one


def motd(folder: Path) -> str:
    """A manifest of one file whose content is data."""
    owner = {"owner": getpass.getuser(), "group": grp.getgrgid(os.getgid()).gr_name, "mode": "0644"}
    wanted = {"ensure": "present", "content": "{{ lookup('data.greeting') }}", **owner}
    return json.dumps({"ccm": {"resources": [{"file": [{f"{folder}/motd": wanted}]}]}})


def document(greeting: str, number: int, key: str = "common") -> bytes:
    body = f"data:\n  greeting: {greeting}\n"
    return msgspec.json.encode(Stamped(bucket="CCM_DATA", key=key, number=number, body=body))


async def apply(controller: Controller, folder: Path) -> dict[str, Any]:
    """Apply the manifest with the data of the bucket; the summary."""
    request = ManifestRequest(protocol=MANIFEST_APPLY, name="motd", manifest=motd(folder), data=[URL])
    return await controller.summary(await controller.ask(request), NODE)


def content(folder: Path) -> str:
    return (folder / "motd").read_text()


async def test_data_comes_from_the_bucket_and_its_revision_is_reported(
    tmp_path: Path, server: NatsServer, controller: Controller
) -> None:
    bucket = controller.bus.bucket("CCM_DATA")
    state = agent_settings(tmp_path / "state", NODE)
    async with Connection(settings(server, NODE)) as connection:
        await connection.connect_now()
        async with running(state, agent_ports(connection, state)):
            await bucket.put("common", b"data: {greeting: plain}")
            plain = await apply(controller, tmp_path)
            written = await asyncio.to_thread(content, tmp_path)
            revision = await bucket.put("common", document("stamped", 1))
            stamped = await apply(controller, tmp_path)

    assert (plain["state"], written) == ("changed", "plain")
    assert (stamped["state"], await asyncio.to_thread(content, tmp_path)) == ("changed", "stamped")
    assert stamped["data_revisions"] == {URL: revision}


@pytest.mark.parametrize(
    "bad",
    [document("planted", 9, key="other"), document("planted", 4)],
    ids=["another key", "an older number"],
)
async def test_an_unacceptable_document_is_reported_and_the_last_good_one_stays(
    tmp_path: Path, server: NatsServer, controller: Controller, bad: bytes
) -> None:
    bucket = controller.bus.bucket("CCM_DATA")
    state = agent_settings(tmp_path / "state", NODE)
    await bucket.put("common", document("good", 5))
    async with Connection(settings(server, NODE)) as connection:
        await connection.connect_now()
        async with running(state, agent_ports(connection, state)):
            await apply(controller, tmp_path)
        await bucket.put("common", bad)

        async with running(state, agent_ports(connection, state)):
            summary = await apply(controller, tmp_path)
            told = await controller.said(event_subject(AGENT_REFUSED, NODE))

    assert (summary["state"], await asyncio.to_thread(content, tmp_path)) == ("stable", "good")
    assert told["details"] == {"refused": "CCM_DATA/common"}


async def test_a_node_that_demands_stamps_takes_no_plain_document(
    tmp_path: Path, server: NatsServer, controller: Controller
) -> None:
    state = agent_settings(tmp_path / "state", NODE, stamped_data=True)
    await controller.bus.bucket("CCM_DATA").put("common", b"data: {greeting: plain}")
    async with Connection(settings(server, NODE)) as connection:
        await connection.connect_now()
        async with running(state, agent_ports(connection, state)):
            summary = await apply(controller, tmp_path)

    assert (summary["state"], summary["code"]) == ("failed", "bus.protocol")
    assert (
        "was not written by `ccmctl`, and this node accepts only documents from `ccmctl`" in summary["reason"]
    )
    assert not (tmp_path / "motd").exists()


async def test_stamp_of_a_file_is_not_sent(
    tmp_path: Path, server: NatsServer, controller: Controller
) -> None:
    state = agent_settings(tmp_path / "state", NODE)
    await controller.bus.bucket("CCM_DATA").put("common", b"data: {greeting: the words within}")
    async with Connection(settings(server, NODE)) as connection:
        await connection.connect_now()
        async with running(state, agent_ports(connection, state)):
            summary = await apply(controller, tmp_path)

    stored = json.dumps(await controller.stored(summary["run"]))
    assert (summary["changed_resources"], await asyncio.to_thread(content, tmp_path)) == (
        1,
        "the words within",
    )
    assert "the words within" not in stored
    assert "sha256:" in stored
