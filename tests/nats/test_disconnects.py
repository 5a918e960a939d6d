"""Who receives the broker's notices that connections of nodes have ended."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.access.accounts import Account
from ccm_agent.bus.access.credentials import (
    Authority,
    account_tokens,
    claims_in,
    key_pair,
    new_authority,
    public_key,
    scoped_credentials,
    server_configuration,
    signed_jwt,
    token_credentials,
    user_credentials,
)
from ccm_agent.bus.access.permissions import Permissions, Role, node_permissions, operator_permissions
from ccm_agent.bus.disconnects import follow_disconnects
from ccm_agent.bus.subjects import DISCONNECTED
from ccm_agent.model.errors import BusDeniedError
from ccm_agent.testing.nats_server import NatsServer, cluster_servers
from tests.support.nats_server import (
    WAIT_S,
    Heard,
    connected,
    connected_plain,
    eventually,
    running_server,
)
from tests.support.raw_client import raw_client

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

ADMIN = Role(apply=(">",), data=True, facts=True, schedules=True, join=True, admin=True)
OPERATORS = {
    "looker": operator_permissions("looker", Role()),
    "op": operator_permissions("op", Role(plan=(">",), apply=(">",), exec=(">",), data=True, facts=True)),
    "admin": operator_permissions("admin", ADMIN),
}
OLD = operator_permissions("old", Role())
EARLIER = Permissions(
    account=OLD.account,
    publish=OLD.publish,
    subscribe=tuple(one for one in OLD.subscribe if one != DISCONNECTED),
)
OTHERS = ["web1", "web2", "web9", "token1"]


def write_credentials(directory: Path, authority: Authority) -> None:
    """Credentials of all users, in files. Those of web9 list its permissions, as those of earlier versions do."""
    made = [user_credentials(authority.of(one.account), name, one) for name, one in OPERATORS.items()]
    made.append(user_credentials(authority.ops, "old", EARLIER))
    made.append(user_credentials(authority.nodes, "web9", node_permissions("web9")))
    made.append(token_credentials(authority.join, "token1", int(time.time()) + 600, ()))
    for name in ("web1", "web2"):
        tags = node_permissions(name).tags
        made.append(scoped_credentials(authority.node_signer, public_key(authority.nodes), name, tags))
    for one in made:
        (directory / f"{one.name}.creds").write_text(one.text.reveal())


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[NatsServer]:
    """A broker with these users."""
    directory = tmp_path_factory.mktemp("nats")
    write_credentials(directory, authority)
    with running_server(directory, server_configuration(authority)) as server:
        yield server


async def visit(server: NatsServer, *names: str) -> None:
    for name in names:
        async with connected(server, name):
            pass


@pytest.mark.parametrize("operator", OPERATORS)
async def test_an_operator_hears_of_nodes_and_of_nobody_else(server: NatsServer, operator: str) -> None:
    heard = Heard()
    async with connected(server, operator) as connection:
        await follow_disconnects(connection, heard)
        await visit(server, "op", "admin", "token1", "web9", "web1", "web2")

        assert [one.node for one in await heard.wait(3)] == ["web9", "web1", "web2"]


@pytest.mark.parametrize("name", OTHERS)
async def test_nobody_else_may_listen(server: NatsServer, authority: Authority, name: str) -> None:
    subjects = [DISCONNECTED, f"$SYS.ACCOUNT.{public_key(authority.nodes)}.DISCONNECT", "$SYS.>", ">"]
    async with connected(server, name) as connection:
        for subject in subjects:
            with pytest.raises(BusDeniedError):
                await connection.subscribe([subject], lambda _: None)


@pytest.mark.parametrize("name", [*OPERATORS, *OTHERS])
async def test_nobody_may_publish_a_notice(server: NatsServer, authority: Authority, name: str) -> None:
    async with connected(server, name) as connection:
        for subject in (DISCONNECTED, f"$SYS.ACCOUNT.{public_key(authority.nodes)}.DISCONNECT"):
            with pytest.raises(BusDeniedError):
                await connection.publish(subject, b"{}", confirm=True)


async def test_operators_hear_of_no_other_account(server: NatsServer, authority: Authority) -> None:
    async with connected(server, "admin") as connection:
        for account in Account:
            subject = f"$SYS.ACCOUNT.{public_key(authority.of(account))}.DISCONNECT"
            with pytest.raises(BusDeniedError):
                await connection.subscribe([subject], lambda _: None)


async def test_a_notice_names_the_node_whatever_the_client_says(server: NatsServer) -> None:
    heard, raw = Heard(), Heard()
    async with connected(server, "looker") as connection:
        await follow_disconnects(connection, heard)
        await connection.subscribe([DISCONNECTED], lambda message: raw(message.body))
        async with raw_client(server, "web1", {"name": "web2", "user": "web2"}) as client:
            await client.publish_all([])

        [found] = await heard.wait(1)
        [body] = await raw.wait(1)

    client = msgspec.json.decode(body)["client"]
    assert (client["name"], client["user"]) == ("web2", "web2")  # what a reader must not trust
    assert found.node == "web1"
    assert '"sig"' not in body.decode()


async def test_credentials_of_an_earlier_version_hear_nothing_without_an_error(server: NatsServer) -> None:
    heard, control = Heard(), Heard()
    async with connected(server, "old") as old, connected(server, "looker") as looker:
        stop = await follow_disconnects(old, heard)
        await follow_disconnects(looker, control)
        await visit(server, "web1")
        await control.wait(1)
        await stop()

    assert heard.items == []


async def test_a_broker_without_accounts_sends_nothing_without_an_error(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        async with connected_plain(server, "op") as connection:
            stop = await follow_disconnects(connection, Heard())
            await stop()


def without_notices(configuration: str, authority: Authority) -> str:
    """The configuration of an earlier version."""
    for key, token in account_tokens(configuration).items():
        claims = claims_in(token)
        changed = {
            kind: [one for one in claims["nats"].get(kind, ()) if one["name"] != DISCONNECTED]
            for kind in ("imports", "exports")
        }
        operator = key_pair(authority.operator)
        older = signed_jwt(operator, key, "account", claims["name"], claims["nats"] | changed)
        configuration = configuration.replace(token, older)
    return configuration


async def test_a_server_begins_to_send_when_it_reloads_its_configuration(
    tmp_path: Path, authority: Authority
) -> None:
    current = server_configuration(authority)
    write_credentials(tmp_path, authority)
    heard = Heard()
    with running_server(tmp_path, without_notices(current, authority)) as server:
        async with connected(server, "looker") as connection:
            await follow_disconnects(connection, heard)
            await visit(server, "web1")
            await follow_disconnects(connection, Heard())  # returns when the broker has processed all of that
            assert heard.items == []

            server.reload(current)

            async with asyncio.timeout(WAIT_S):
                while not heard.items:
                    await connection.wait_connected()
                    await visit(server, "web1")
                    await asyncio.sleep(0.1)


async def test_each_server_of_a_cluster_sends_notices_to_all(tmp_path: Path, authority: Authority) -> None:
    write_credentials(tmp_path, authority)
    heard = Heard()
    async with contextlib.AsyncExitStack() as stack:
        servers = cluster_servers(tmp_path, extra=server_configuration(authority))
        for one in servers:
            stack.callback(one.stop)
            one.launch()
        listener = await eventually(lambda: stack.enter_async_context(connected(servers[0], "looker")))
        await follow_disconnects(listener, heard)

        async with asyncio.timeout(WAIT_S):
            while {one.node for one in heard.items} != {"web1", "web2", "web9"}:
                for server, name in zip(servers, ("web1", "web2", "web9"), strict=True):
                    await eventually(functools.partial(visit, server, name))
                await asyncio.sleep(0.1)
