"""An agent with its real engine on a broker where it has a node's permissions and no more: what is assigned, it becomes."""

from __future__ import annotations

import asyncio
import getpass
import grp
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.agent.desired import assignment_reconciler
from ccm_agent.app_agent import agent_ports
from ccm_agent.bus.access.permissions import Role, node_permissions, operator_permissions
from ccm_agent.bus.layout import LayoutOptions, make
from ccm_agent.bus.streams import call
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.secret import Secret
from ccm_agent.testing.nats_server import NatsServer
from tests.support.agent import Bus, Running, agent_settings, running, until_asked
from tests.support.assignments import NODE, Operator
from tests.support.nats_server import (
    Connection,
    connected,
    ports_on,
    running_server,
    settings,
    users_configuration,
)

pytestmark = [pytest.mark.nats, pytest.mark.timeout(90)]

ADMIN = Role(apply=(">",), data=True, facts=True, schedules=True, admin=True)
USERS = {NODE: node_permissions(NODE), "admin": operator_permissions("admin", ADMIN)}
URL = "kv://CCM_DATA/common"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with running_server(tmp_path_factory.mktemp("nats"), users_configuration(USERS)) as one:
        yield one


@pytest.fixture
async def admin(server: NatsServer) -> AsyncIterator[Connection]:
    async with connected(server, "admin") as connection:
        await make(connection, LayoutOptions(secure=True))
        yield connection
        # what a node said in one test would be believed in the next
        for bucket in ("CCM_ASSIGNMENTS", "CCM_DATA", "CCM_FACTS", "CCM_NODES"):
            keys = ports_on(connection).bucket(bucket)
            for key in await keys.keys():
                await keys.delete(key)


@pytest.fixture
def operator(admin: Connection, request: pytest.FixtureRequest) -> Operator:
    ports = ports_on(admin)
    return Operator(Bus(ports.link, ports.requests, ports.events, ports.bucket, ports.objects))


@asynccontextmanager
async def agent(server: NatsServer, folder: Path, **fields: Any) -> AsyncIterator[Running]:
    """The node's agent; nothing of its broker is faked."""
    state = agent_settings(folder / "state", NODE, change_pause_s=0, **fields)
    async with connected(server, NODE) as connection, running(state, agent_ports(connection, state)) as one:
        yield one


def motd(
    folder: Path, content: str = "{{ lookup('data.greeting') }}", name: str = "motd", **properties: Any
) -> str:
    """A manifest of one file."""
    owner = {"owner": getpass.getuser(), "group": grp.getgrgid(os.getgid()).gr_name, "mode": "0644"}
    wanted = {"ensure": "present", "content": content, **owner, **properties}
    return json.dumps({"ccm": {"resources": [{"file": [{f"{folder}/{name}": wanted}]}]}})


def document(greeting: str, number: int) -> bytes:
    body = f"data:\n  greeting: {greeting}\n"
    return msgspec.json.encode(Stamped(bucket="CCM_DATA", key="common", number=number, body=body))


async def content(folder: Path, name: str = "motd") -> str:
    return await asyncio.to_thread((folder / name).read_text)


async def test_an_assignment_reaches_a_node_with_a_nodes_permissions_and_without_a_consumer(
    tmp_path: Path, server: NatsServer, admin: Connection, operator: Operator
) -> None:
    await operator.facts(NODE, 1, role="web")
    async with agent(server, tmp_path):
        await operator.assign("site", motd(tmp_path, "hello"), scope="fact.role.web")
        state = await operator.stands("site", "changed")
        streams = await call(admin, "STREAM.LIST")
        await operator.unassign("site", scope="fact.role.web")
        await operator.is_gone("site")

    assert (state.key, state.revision, await content(tmp_path)) == ("fact.role.web.site", 1, "hello")
    assert {one["config"]["name"]: one["state"]["consumer_count"] for one in streams["streams"]} == {
        one["config"]["name"]: 0 for one in streams["streams"]
    }


async def test_pinned_data_is_read_as_it_was_and_a_rollback_restores_it(
    tmp_path: Path, server: NatsServer, operator: Operator
) -> None:
    data = operator.bus.bucket("CCM_DATA")
    old = await data.put("common", document("old", 1))
    new = await data.put("common", document("new", 2))
    async with agent(server, tmp_path):
        await operator.assign("site", motd(tmp_path), data=[URL], data_revision=new)
        await operator.stands("site", "changed")
        first = await content(tmp_path)
        await operator.assign("site", motd(tmp_path), data=[URL], data_revision=old, rolled_back_from=1)
        state = await operator.stands("site", "changed", revision=2)

    assert (first, await content(tmp_path), state.data_revision) == ("new", "old", old)


async def test_data_that_it_follows_is_taken_as_soon_as_it_is_put(
    tmp_path: Path, server: NatsServer, operator: Operator
) -> None:
    data = operator.bus.bucket("CCM_DATA")
    await data.put("common", document("old", 60))
    async with agent(server, tmp_path, interval_s=86_400):
        await operator.assign("site", motd(tmp_path), data=[URL])
        await operator.stands("site", "changed")
        first = await content(tmp_path)
        await data.put("common", document("new", 61))
        await until_asked(lambda: reads(tmp_path, "new"))

    assert first == "old"


async def test_a_critical_check_brings_it_back(
    tmp_path: Path, server: NatsServer, operator: Operator
) -> None:
    check = {"name": "there", "command": f"sh -c 'test -e {tmp_path}/motd || exit 2'"}
    async with agent(server, tmp_path, interval_s=86_400, health_check_interval_s=0.2):
        await operator.assign("site", motd(tmp_path, "hello", health_checks=[check]))
        await operator.stands("site", "changed")
        await asyncio.to_thread((tmp_path / "motd").unlink)
        await until_asked(lambda: asyncio.to_thread((tmp_path / "motd").exists))


async def reads(folder: Path, text: str) -> bool:
    return await content(folder) == text


async def test_a_discarded_revision_is_reported_with_the_remedy(
    tmp_path: Path, server: NatsServer, operator: Operator
) -> None:
    data = operator.bus.bucket("CCM_DATA")
    first = await data.put("common", document("first", 10))
    for number in range(11, 32):
        await data.put("common", document("later", number))
    async with agent(server, tmp_path):
        await operator.assign("site", motd(tmp_path), data=[URL], data_revision=first)
        state = await operator.stands("site", "failed")

    assert (state.code, "assign again with the current data" in state.reason) == (
        "data.revision_gone",
        True,
    )
    assert not await asyncio.to_thread((tmp_path / "motd").exists)


async def test_a_node_that_starts_without_a_broker_converges_on_cached_assignments_and_data(
    tmp_path: Path, server: NatsServer, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = await operator.bus.bucket("CCM_DATA").put("common", document("known", 40))
    async with agent(server, tmp_path):
        await operator.assign("site", motd(tmp_path), data=[URL], data_revision=revision)
        await operator.stands("site", "changed")
    await asyncio.to_thread((tmp_path / "motd").unlink)

    monkeypatch.setattr(assignment_reconciler, "FIRST_READ_S", 0.1)
    nowhere = settings(server, NODE, user=NODE, password=Secret("wrong"))
    state = agent_settings(tmp_path / "state", NODE, connect_spread_s=0)
    async with Connection(nowhere) as connection, running(state, agent_ports(connection, state)) as one:
        await until_asked(lambda: asyncio.to_thread((tmp_path / "motd").exists))
        assert not connection.connected
        await one.end()

    assert await content(tmp_path) == "known"


async def test_two_that_manage_one_file_are_refused_and_named(
    tmp_path: Path, server: NatsServer, operator: Operator
) -> None:
    async with agent(server, tmp_path):
        await operator.assign("base", motd(tmp_path, "base"))
        await operator.stands("base", "changed")
        await operator.assign("site", motd(tmp_path, "site"))
        refused = [await operator.stands(name, "refused") for name in ("base", "site")]
        record = await operator.record()

    sentence = f"the assignments base and site both manage file#{tmp_path}/motd"
    assert [(one.code, one.reason.startswith(sentence)) for one in refused] == [
        ("assignment.conflict", True)
    ] * 2
    assert record.conflict.startswith(sentence)
    assert await content(tmp_path) == "base"


async def test_an_assignment_that_was_made_while_the_node_was_away_reaches_it_on_its_return(
    tmp_path: Path, server: NatsServer, operator: Operator
) -> None:
    async with agent(server, tmp_path):
        await operator.assign("site", motd(tmp_path, "one"))
        await operator.stands("site", "changed")
    await operator.assign("site", motd(tmp_path, "two"))
    async with agent(server, tmp_path):
        await operator.stands("site", "changed", revision=2)

    assert await content(tmp_path) == "two"


async def test_a_nodes_redirected_reply_never_reaches_a_key(server: NatsServer, operator: Operator) -> None:
    data = operator.bus.bucket("CCM_DATA")
    old = await data.put("common", document("old", 50))
    new = await data.put("common", document("new", 51))
    async with connected(server, NODE) as thief:
        for question, body in (
            ("$JS.API.DIRECT.GET.KV_CCM_DATA", b'{"seq":%d}' % old),
            ("$JS.API.DIRECT.GET.KV_CCM_DATA.$KV.CCM_DATA.none", b""),
        ):
            await thief.publish(question, body, reply="$KV.CCM_DATA.common", confirm=True)
            await thief.request(question, body)  # answered after what was asked before it

    assert await data.revision() == new
    assert (await data.get("common")).value == document("new", 51)
