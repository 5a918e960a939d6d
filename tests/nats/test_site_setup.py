"""`ccmctl init` for sites: several at the same time, at another broker, and with new credentials for the leaf node."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from ccm_agent.bus import site_streams
from ccm_agent.bus.access.credentials import claims_in, new_account
from ccm_agent.bus.access.sites import SOURCED, leaf_credentials, up
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.layout import JOINS, NODES, LayoutOptions, make
from ccm_agent.bus.streams import call
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.errors import BusError, BusSetupError
from ccm_agent.testing.nats_server import NatsServer
from ccm_ctl.fleet.keys.sites import renew_leaf, site_folder
from tests.support.nats_server import WAIT_S, connected_plain, running_server
from tests.support.secured import Secured, secured_broker
from tests.support.sites import Hub, hub_fleet, site_fleet

pytestmark = [pytest.mark.nats, pytest.mark.timeout(600)]

JOINED_S = 200.0
SHOPS = [f"shop{number}" for number in range(12)]


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """The broker of a center without sites."""
    with running_server(tmp_path, domain="center") as server:
        async with connected_plain(server, "op") as connection:
            await make(connection)
        yield server


async def delivered(connection: Connection, name: str) -> set[str]:
    """Where the sources of a stream deliver."""
    config = (await call(connection, f"STREAM.INFO.{name}"))["config"]
    return {one["external"]["deliver"] for one in config.get("sources") or []}


async def test_sources_of_all_sites_are_kept_when_they_are_set_up_at_the_same_time(
    center: NatsServer,
) -> None:
    async def set_up(site: str) -> None:
        async with connected_plain(center, site) as connection:
            await site_streams.add_sources(connection, site)

    async def upgrade(days: int) -> None:
        async with connected_plain(center, f"op{days}") as connection, site_streams.sources_lock(connection):
            await make(connection, LayoutOptions(events_age_s=days * 86_400))

    async with asyncio.TaskGroup() as group:
        for number, site in enumerate(SHOPS):
            group.create_task(set_up(site))
            if number % 4 == 0:
                group.create_task(upgrade(30 + number))

    async with connected_plain(center, "op") as connection:
        found = [await delivered(connection, name) for name in SOURCED]
        lock = await NatsKeyValue(connection, JOINS).get("sources.lock")
    assert found == [{up(site) for site in SHOPS}] * len(SOURCED)
    assert lock is None


async def test_a_lock_that_a_killed_program_left_expires(
    center: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected_plain(center, "op") as connection:
        await NatsKeyValue(connection, JOINS).put("sources.lock", b"held")

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await site_streams.add_sources(connection, "paris")
        held = await delivered(connection, SOURCED[0])
        monkeypatch.setattr(site_streams, "LOCK_S", 0.5)
        await site_streams.add_sources(connection, "paris")

        assert held == set(), "the control"
        assert await delivered(connection, SOURCED[0]) == {up("paris")}


async def test_a_lock_of_another_program_or_of_a_later_time_is_replaced(
    center: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected_plain(center, "op") as connection:
        bucket = NatsKeyValue(connection, JOINS)
        await connection.publish(key_subject(JOINS, "sources.lock"), b"", confirm=True)
        async with asyncio.timeout(20):
            await site_streams.add_sources(connection, "paris")

        await bucket.put("sources.lock", b"held")
        earlier = await bucket.now() - timedelta(hours=1)

        async def now(_bucket: NatsKeyValue) -> datetime:
            return earlier

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await site_streams.add_sources(connection, "oslo")
        held = await delivered(connection, SOURCED[0])
        monkeypatch.setattr(NatsKeyValue, "now", now)
        async with asyncio.timeout(20):
            await site_streams.add_sources(connection, "oslo")

        assert held == {up("paris")}, "the control"
        assert await delivered(connection, SOURCED[0]) == {up("paris"), up("oslo")}


async def test_a_program_that_lost_the_lock_does_not_write_what_it_read_before(
    center: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_streams, "LOCK_S", 0.5)
    async with connected_plain(center, "slow") as slow, connected_plain(center, "op") as connection:
        has_read, is_written = asyncio.Event(), asyncio.Event()

        async def upgrade() -> None:
            async with site_streams.sources_lock(slow) as renew:

                async def pause_and_renew() -> None:
                    has_read.set()
                    async with asyncio.timeout(WAIT_S):
                        await is_written.wait()
                    await renew()

                await make(slow, LayoutOptions(events_age_s=90 * 86_400), pause_and_renew)

        async def set_up() -> None:
            await has_read.wait()
            await site_streams.add_sources(connection, "paris")
            is_written.set()

        refused, _ = await asyncio.gather(upgrade(), set_up(), return_exceptions=True)
        found = [await delivered(connection, name) for name in SOURCED]

    assert isinstance(refused, BusSetupError)
    assert "another `ccmctl init`" in str(refused)
    assert found == [{up("paris")}] * len(SOURCED)


async def test_a_slow_program_keeps_the_lock_that_it_renews(
    center: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_streams, "LOCK_S", 1.0)
    async with connected_plain(center, "slow") as slow, connected_plain(center, "op") as connection:
        async with asyncio.TaskGroup() as group, site_streams.sources_lock(slow) as renew:
            group.create_task(site_streams.add_sources(connection, "paris"))
            for _ in range(4):
                await asyncio.sleep(0.4)
                await renew()
            during = await delivered(connection, SOURCED[0])
        after = await delivered(connection, SOURCED[0])

    assert (during, after) == (set(), {up("paris")})


@pytest.mark.parametrize("words", [["--history", "5"], ["--replicas", "1"], ["--security"]])
def test_new_credentials_of_a_leaf_node_take_no_options_of_streams(tmp_path: Path, words: list[str]) -> None:
    with secured_broker(tmp_path, Secured) as one:
        assert one.fleet.ctl("init", "--site", "paris", "--leaf", "hub1").code == 0
        path = site_folder(one.keys, "paris") / "leaf.creds"
        before = path.read_text()

        refused = one.fleet.ctl("init", "--site", "paris", "--new-leaf", *words)
        after = path.read_text()
        control = one.fleet.ctl("init", "--site", "paris", "--new-leaf", "--keys", str(one.keys), "--json")

        assert refused.code != 0
        assert f"run it without {words[0]}" in refused.err
        assert after == before
        assert control.code == 0, control.err
        assert path.read_text() != before


def test_credentials_of_a_leaf_node_from_a_clock_that_was_ahead_are_revoked_too(tmp_path: Path) -> None:
    account = new_account()
    path = site_folder(tmp_path, "paris") / "leaf.creds"
    path.parent.mkdir()
    tomorrow = int(time.time()) + 86_400
    path.write_text(leaf_credentials(account, "paris", tomorrow).reveal())

    renew_leaf(tmp_path, "paris", account)

    assert int((tmp_path / "site-paris.revoked").read_text()) == tomorrow
    assert claims_in(path.read_text().splitlines()[1])["iat"] == tomorrow + 1


def test_init_without_a_site_at_the_broker_of_a_site_names_the_command(tmp_path: Path) -> None:
    with site_fleet(tmp_path) as site:
        at_site = [site.fleet.ctl("init", *words) for words in ([], ["--security"])]
        at_center = site.at_center("init")

    assert [one.code == 0 for one in at_site] == [False, False]
    for one in at_site:
        assert "the site site1" in one.err
        assert "`ccmctl init --site site1`" in one.err
    assert (at_center.code, at_center.err) == (0, "")


def test_init_names_the_file_that_a_center_without_the_account_of_a_new_site_needs(tmp_path: Path) -> None:
    with site_fleet(tmp_path) as site:
        prepared = site.at_center("init", "--site", "oslo", "--leaf", "hub1")
        refused = site.at_center("init", "--site", "oslo")

    assert prepared.code == 0, prepared.err
    assert refused.code != 0
    assert "the center does not know the site oslo yet; copy " in refused.err
    assert "nats-security.conf" in refused.err
    assert "user.creds" not in refused.err


def test_init_at_the_new_broker_of_a_known_site_creates_no_streams(tmp_path: Path) -> None:
    with secured_broker(tmp_path, Secured) as one:
        assert one.fleet.ctl("init", "--site", "paris", "--leaf", "hub1").code == 0
        with running_server(tmp_path / "paris", domain="paris") as server:
            refused = one.fleet.ctl("init", environ={"NATS_URL": server.url})
        with running_server(tmp_path / "other", domain="other") as server:
            control = one.fleet.ctl("init", environ={"NATS_URL": server.url})

    assert refused.code != 0
    assert "`ccmctl init --site paris`" in refused.err
    assert control.code == 0, control.err


def test_a_revoked_leaf_node_is_cut_off_until_it_has_the_new_credentials(tmp_path: Path) -> None:
    with hub_fleet(tmp_path, ["paris", "oslo"]) as hub:
        put(hub, "one")
        for place in ("paris", "oslo"):
            wait_for_word(hub, place, "one")
        at_paris = tmp_path / "sites" / "paris"
        oslo = (hub.keys / "site-oslo" / "leaf.creds").read_text()

        revoked = hub.fleet.ctl("init", "--site", "paris", "--new-leaf", "--json")
        wait_for_log(at_paris / "log", "uthorization Violation")
        put(hub, "two")
        wait_for_word(hub, "oslo", "two")
        without = words_at(hub, "paris")
        shutil.copy(hub.keys / "site-paris" / "leaf.creds", at_paris)
        wait_for_word(hub, "paris", "two")
        again = hub.init("center", "--site", "paris", "--json")

        assert (revoked.code, revoked.err) == (0, "")
        assert revoked.named("made")[0]["servers"] == ["nats1", "nats2", "nats3"]
        assert "one" in without
        assert "two" not in without
        assert (hub.keys / "site-oslo" / "leaf.creds").read_text() == oslo
        assert {one["action"] for one in again.named("made")} == {"unchanged"}


def put(hub: Hub, word: str) -> None:
    """At the center, write a document."""
    path = hub.fleet.write(f"{word}.yaml", f"data: {{word: {word}}}\n")
    done = hub.fleet.ctl("data", "put", word, path)
    assert done.code == 0, done.err


def words_at(hub: Hub, place: str) -> str:
    """The documents that a broker has."""
    return hub.fleet.ctl("data", "list", environ={"NATS_URL": hub.urls[place]}).out


def wait_for_word(hub: Hub, place: str, word: str) -> None:
    deadline = time.monotonic() + JOINED_S
    while word not in words_at(hub, place):
        assert time.monotonic() < deadline, f"{word} did not reach {place}"
        time.sleep(0.2)


def wait_for_log(path: Path, text: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while text not in path.read_text():
        assert time.monotonic() < deadline, path.read_text()[-2000:]
        time.sleep(0.1)


async def test_a_full_bucket_of_nodes_at_the_center_refuses_new_nodes_and_keeps_the_others(
    center: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_streams, "NODES_BYTES", 1 << 20)
    async with connected_plain(center, "op") as connection:
        bucket, before = NatsKeyValue(connection, NODES), await limit(connection)
        await site_streams.add_sources(connection, "paris")
        await make(connection)
        after = await limit(connection)
        for number in range(10):
            await bucket.put(f"node.web{number}", b"x" * 100_000)
        with pytest.raises(BusError, match="maximum bytes"):
            await bucket.put("node.web10", b"x" * 100_000)

        await bucket.put("node.web0", b"y" * 100_000)
        entry = await bucket.get("node.web0")

        assert (before, after) == (-1, 1 << 20)
        assert entry is not None
        assert entry.value[:1] == b"y"


async def limit(connection: Connection) -> int:
    """The size limit of CCM_NODES."""
    return int((await call(connection, f"STREAM.INFO.KV_{NODES}"))["config"]["max_bytes"])
