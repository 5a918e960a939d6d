"""A revocation reaches every server of a cluster at once, and disturbs no other connection."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ccm_agent.bus.access.accounts import Account
from ccm_agent.bus.access.permissions import node_permissions
from ccm_agent.model.errors import BusError, CcmError
from ccm_agent.testing.nats_server import NatsServer, cluster_servers
from ccm_ctl.fleet.keys.keys import Keys
from ccm_ctl.fleet.keys.system_account import push_accounts
from tests.support.nats_server import WAIT_S, connected, eventually, require_server, settings

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]


async def test_revoked_node_is_refused_on_each_server_and_another_one_stays_connected(tmp_path: Path) -> None:
    require_server()
    keys = Keys(tmp_path / "keys")
    keys.make()
    for name in ("web1", "web2"):
        made = keys.add_node(name, node_permissions(name))
        (tmp_path / f"{name}.creds").write_text(made.text.reveal())
    servers = list(cluster_servers(tmp_path, extra=keys.configuration.read_text()))
    try:
        for server in servers:
            server.launch()
        await joined(servers, keys)
        async with connected(servers[2], "web1") as revoked, connected(servers[2], "web2") as other:
            left = asyncio.create_task(other.wait_lost(), name="other lost")
            keys.revoke("node", "web1")

            told = await push_accounts(settings(servers[0], "op"), keys, [Account.NODES])

            assert told == ["n0", "n1", "n2"]
            async with asyncio.timeout(WAIT_S):
                await revoked.wait_lost()
            await other.publish("io.choria.ccm.v1.agent.startup.web2", b"", confirm=True)
            assert not left.done()
            left.cancel()
        for server in servers:
            with pytest.raises(CcmError, match="refused our credentials"):
                async with connected(server, "web1"):
                    pass
            async with connected(server, "web2"):
                pass
    finally:
        for server in servers:
            server.stop()


async def joined(servers: list[NatsServer], keys: Keys) -> None:
    """Wait until all servers of the cluster answer."""

    async def attempt() -> None:
        told = await push_accounts(settings(servers[0], "op"), keys, [Account.NODES])
        if len(told) < len(servers):
            raise BusError(f"only {told} answer")

    await eventually(attempt)
