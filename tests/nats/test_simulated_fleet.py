"""The synthetic fleet of `python -m bench simulate` is one whose entries `ccmctl` verifies."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.simulate import FleetKeys, fill, make_entries, node_name
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.signatures.signing import SigningKey, signing_key_in_credentials
from ccm_agent.model.secret import Secret
from tests.support.nats_server import settings
from tests.support.secured import Secured, secured_broker

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

COUNT = 60


async def test_all_its_nodes_are_listed_and_only_a_changed_entry_is_unverified(tmp_path: Path) -> None:
    with secured_broker(tmp_path, Secured) as secured:
        creds = secured.keys / "tester.creds"
        operator = signing_key_in_credentials(creds.read_text())
        assert operator is not None
        root = SigningKey(Secret((secured.keys / "root.seed").read_text().strip()))
        keys = FleetKeys(root, operator)
        to_broker = settings(secured.fleet.broker, "tester", creds=str(creds))

        await fill(to_broker, keys, COUNT)
        genuine = secured.as_("tester", "node", "list", "--json")
        async with Connection(to_broker) as connection:
            await connection.connect_now()
            bucket = NatsKeyValue(connection, "CCM_NODES")
            stored = await bucket.newest(f"presence.{node_name(5)}")
            assert stored is not None
            foreign = next(one for one in make_entries(keys, 5) if one.key == stored.key)
            await bucket.store_signed(stored.key, stored.value, stored.revision, foreign.signature)
        changed = secured.as_("tester", "node", "list", "--json")

    listed = genuine.named("node")
    assert [one["node"] for one in listed] == [node_name(number) for number in range(COUNT)]
    assert [one["node"] for one in listed if one["state"] != "present"] == [
        node_name(number) for number in range(0, COUNT, 10)
    ]
    assert [one["node"] for one in listed if one["facts"].get("env")] == [
        node_name(number) for number in range(1, COUNT, 10)
    ]
    assert [one["node"] for one in listed if one.get("unverified")] == []
    assert [one["node"] for one in changed.records if one.get("unverified")] == [node_name(5)]
