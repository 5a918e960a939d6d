"""The scoped signing key of nodes: the servers have the permissions, and credentials only name the node."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import msgspec
import nkeys
import pytest

from ccm_agent.bus.access.accounts import Account
from ccm_agent.bus.access.credentials import (
    Authority,
    account_in_configuration,
    new_authority,
    public_key,
    scoped_credentials,
    server_configuration,
    table_mark,
    user_credentials,
)
from ccm_agent.bus.access.permissions import Permissions, node_permissions
from ccm_agent.model.errors import BusDeniedError, CcmError
from ccm_agent.testing.nats_server import NatsServer
from tests.support.nats_server import connected, running_server
from tests.support.secured import Secured, secured_broker

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

REQUEST = "io.choria.ccm.v1.manifest.apply.request.all"
PRESENCE = "$KV.CCM_NODES.presence.web1"
OWN_EVENT = "io.choria.ccm.v1.agent.startup.web1"
_MARK = table_mark(moving=False)


def give(server_folder: Path, authority: Authority, name: str) -> None:
    allowed = node_permissions(name)
    made = scoped_credentials(authority.node_signer, public_key(authority.nodes), name, allowed.tags)
    (server_folder / f"{name}.creds").write_text(made.text.reveal())


def changed_account(configuration: str, account: Account, operator: bytes, change: Any) -> str:
    """The servers' configuration with other claims of an account, signed by the operator's key."""
    key, _ = account_in_configuration(configuration, account)
    [token] = re.findall(rf"{key}: (\S+)", configuration)
    header, body, _ = token.split(".")
    claims = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    change(claims["nats"])
    part = base64.urlsafe_b64encode(msgspec.json.encode(claims)).decode().rstrip("=")
    signature = nkeys.from_seed(bytearray(operator)).sign(f"{header}.{part}".encode())
    signed = f"{header}.{part}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"
    return configuration.replace(token, signed)


async def is_denied(server: NatsServer, name: str, subject: str) -> bool:
    """The broker refuses what a new connection of a node publishes there."""
    async with connected(server, name) as node:
        try:
            await node.publish(subject, b"", confirm=True)
        except BusDeniedError:
            return True
        return False


async def test_holder_of_the_signing_key_cannot_widen_the_permissions(tmp_path: Path) -> None:
    authority = new_authority()
    with running_server(tmp_path, server_configuration(authority)) as server:
        give(tmp_path, authority, "web1")
        anything = Permissions(account=Account.NODES, publish=(">",), subscribe=(">",))
        wide = user_credentials(authority.node_signer, "wide", anything)
        (tmp_path / "wide.creds").write_text(wide.text.reveal())
        old = user_credentials(authority.nodes, "old", anything)
        (tmp_path / "old.creds").write_text(old.text.reveal())

        assert not await is_denied(server, "web1", OWN_EVENT)
        assert await is_denied(server, "web1", REQUEST)
        assert not await is_denied(server, "old", REQUEST)
        with pytest.raises(CcmError, match="refused our credentials"):
            await is_denied(server, "wide", REQUEST)


async def test_permissions_of_a_connected_node_change_with_the_servers_configuration(tmp_path: Path) -> None:
    authority = new_authority()
    current = server_configuration(authority)

    def without_presence(claims: dict[str, Any]) -> None:
        allowed = claims["signing_keys"][0]["template"]["pub"]["allow"]
        allowed.remove("$KV.CCM_NODES.presence.{{name()}}")

    seed = authority.operator.reveal().encode()
    with running_server(tmp_path, changed_account(current, Account.NODES, seed, without_presence)) as server:
        give(tmp_path, authority, "web1")
        async with connected(server, "web1") as node:
            with pytest.raises(BusDeniedError):
                await node.publish(PRESENCE, b"", confirm=True)

            server.reload(current)

            # The server closes the connections of the nodes, and they come back with the new permissions.
            await node.wait_lost()
            await node.wait_connected()
            await node.publish(PRESENCE, b"", confirm=True)


def test_a_fleet_of_an_earlier_version_keeps_its_nodes_and_gets_the_signing_key(tmp_path: Path) -> None:
    with secured_broker(tmp_path, Secured) as one:
        make_older(one)
        apply_configuration(one)
        old = one.give("node", "old1")
        assert b"tags" not in claims_of(old)
        one.fleet.environ["CCM_CREDS"] = str(one.keys / "tester.creds")
        broker = {"url": one.fleet.environ["NATS_URL"]}
        one.fleet.add("old1", nats=broker | {"creds": str(old)})

        told = one.fleet.ctl("init", "--security")
        apply_configuration(one)
        new = one.give("node", "new1")
        one.fleet.add("new1", nats=broker | {"creds": str(new)})

        assert told.code == 0
        assert "nats-server --signal reload" in told.err
        assert b"tags" in claims_of(new)
        for name in ("old1", "new1"):
            assert one.as_("tester", "ping", "-t", f"node={name}").code == 0


def test_a_lost_signing_key_is_not_replaced(tmp_path: Path) -> None:
    with secured_broker(tmp_path, Secured) as one:
        seed, configuration = one.keys / "node_signer.seed", one.keys / "nats-security.conf"
        kept = seed.read_bytes()
        seed.unlink()
        configuration.write_text(configuration.read_text().replace(_MARK, "# Accounts: earlier"))

        told = one.fleet.ctl("init", "--security")

        assert "copy it from where it was created" in told.err
        assert not seed.exists()
        seed.write_bytes(kept)
        seed.chmod(0o600)
        assert one.fleet.ctl("init", "--security").err.count("was updated") == 1


def make_older(one: Secured) -> None:
    """Take the signing key out of the keys and out of the servers' configuration."""
    path = one.keys / "nats-security.conf"
    operator = (one.keys / "operator.seed").read_bytes().strip()
    older = changed_account(
        path.read_text(), Account.NODES, operator, lambda claims: claims.pop("signing_keys")
    )
    path.write_text(older.replace(_MARK, "# Accounts: earlier"))
    (one.keys / "node_signer.seed").unlink()


def apply_configuration(one: Secured) -> None:
    [server] = one.fleet.servers
    server.reload((one.keys / "nats-security.conf").read_text())


def claims_of(credentials: Path) -> bytes:
    part = credentials.read_text().splitlines()[1].split(".")[1]
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
