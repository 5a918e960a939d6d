"""The synthetic fleet of `python -m bench simulate` is one whose entries `ccmctl` verifies."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from bench.synthetic import FleetKeys, fill, make_entries, node_name
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.signatures.signing import SigningKey, signing_key_in_credentials
from ccm_agent.model.secret import Secret
from tests.support.nats_server import settings
from tests.support.secured import Secured, secured_broker

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

COUNT = 60
CACHED_COUNT = 1_200
"""Above so many, their entries are cached."""


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


async def test_a_large_fleet_is_listed_alike_with_and_without_its_cache(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with secured_broker(tmp_path, Secured) as secured:
        creds = secured.keys / "tester.creds"
        operator = signing_key_in_credentials(creds.read_text())
        assert operator is not None
        root = SigningKey(Secret((secured.keys / "root.seed").read_text().strip()))
        to_broker = settings(secured.fleet.broker, "tester", creds=str(creds))
        await fill(to_broker, FleetKeys(root, operator), CACHED_COUNT)
        secured.fleet.environ["XDG_CACHE_HOME"] = str(cache)

        first = secured.as_("tester", "node", "list", "--json")
        [file] = (cache / "ccm").iterdir()
        async with Connection(to_broker) as connection:
            await connection.connect_now()
            await NatsKeyValue(connection, "CCM_NODES").delete(f"presence.{node_name(5)}")
        cached = secured.as_("tester", "node", "list", "--json")
        whole = secured.as_("tester", "node", "list", "--json", "--no-cache")

    states = [{one["node"]: one["state"] for one in done.named("node")} for done in (first, cached, whole)]
    assert len(states[0]) == CACHED_COUNT
    assert (states[0][node_name(5)], states[1][node_name(5)]) == ("present", "offline")
    assert states[1] == states[2]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
