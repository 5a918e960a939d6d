"""Reading nodes with a cache on a real server: it equals a whole read, and what it holds is verified as what was read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.synthetic import FleetKeys, fill, node_name
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.layout import make
from ccm_agent.bus.signatures.signing import SigningKey, signing_key_in_credentials
from ccm_agent.bus.streams import call, store
from ccm_agent.model.secret import Secret
from ccm_ctl.app import connected
from ccm_ctl.fleet.nodes.cached_nodes import CachedNodes
from ccm_ctl.fleet.nodes.inventory import read_inventory
from ccm_ctl.fleet.nodes.inventory_file import InventoryFile
from ccm_ctl.fleet.trust.node_state import mark_unverified
from tests.support.nats_server import prepare, running_server, settings
from tests.support.secured import Secured, secured_broker

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

PATTERNS = ["node.>", "presence.>"]


@pytest.mark.parametrize("seed", range(3))
async def test_a_cached_read_equals_a_whole_one(seed: int, tmp_path: Path) -> None:
    drawn = random.Random(seed)
    with running_server(tmp_path) as server:
        await prepare(server)
        async with Connection(settings(server, "op")) as connection:
            await connection.connect_now()
            bucket = NatsKeyValue(connection, "CCM_NODES")
            nodes = CachedNodes(bucket, InventoryFile(tmp_path / "ccm", [server.url]), least=1)
            for _ in range(25):
                for _ in range(drawn.randrange(8)):
                    await _change(connection, bucket, drawn)

                with await nodes.read() as stored:
                    found = sorted(await stored.read(stored.names), key=lambda entry: entry.key)
                assert found == await bucket.matching(PATTERNS)


async def _change(connection: Connection, bucket: NatsKeyValue, drawn: random.Random) -> None:
    key = f"{drawn.choice(['node', 'presence', 'facts'])}.web{drawn.randrange(6)}"
    [what] = drawn.choices(["put", "delete", "purge", "copy", "made again"], [12, 3, 4, 1, 0.5])
    if what == "put":
        await bucket.put(key, drawn.randbytes(4))
    elif what == "delete":
        await bucket.delete(key, note="a note")
    elif what == "purge":
        await call(connection, "STREAM.PURGE.KV_CCM_NODES", {"filter": f"$KV.CCM_NODES.{key}"})
    elif what == "copy":  # without the headers of a write
        await store(connection, f"$KV.CCM_NODES.{key}", b"copied")
    else:
        await call(connection, "STREAM.DELETE.KV_CCM_NODES")
        await make(connection)


async def test_a_cached_entry_that_its_node_did_not_sign_is_not_taken_for_a_verified_one(
    tmp_path: Path,
) -> None:
    with secured_broker(tmp_path, Secured) as secured:
        creds = secured.keys / "tester.creds"
        operator = signing_key_in_credentials(creds.read_text())
        assert operator is not None
        root = SigningKey(Secret((secured.keys / "root.seed").read_text().strip()))
        to_broker = settings(secured.fleet.broker, "tester", creds=str(creds))
        await fill(to_broker, FleetKeys(root, operator), 20)
        file = InventoryFile(tmp_path / "ccm", ["a"])
        async with connected(to_broker) as broker:
            bucket = broker.fleet.nodes
            assert isinstance(bucket, NatsKeyValue)
            fleet = replace(broker.fleet, all_nodes=CachedNodes(bucket, file, least=1).read)
            genuine = await read_inventory(fleet)
            parts = file.open()
            assert parts is not None
            entries = [parts.read(place) for place in range(len(parts.index.keys))]
            parts.close()
            place = parts.index.keys.index(f"node.{node_name(5)}")
            entries[place] = replace(entries[place], value=b'{"node":"x","version":"9"}')
            file.write(parts.index.created, entries)

            found = await read_inventory(fleet)
            for inventory in (genuine, found):
                await mark_unverified(fleet, list(inventory.nodes.values()))

    assert [name for name, node in genuine.nodes.items() if node.unverified] == []
    assert [name for name, node in found.nodes.items() if node.unverified] == [node_name(5)]
