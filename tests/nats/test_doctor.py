"""`ccmctl doctor` against real servers: without security, with it, of the old one-account layout, and altered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.streams import call
from ccm_agent.testing.nats_server import NatsServer, ServerSettings
from tests.support.fleet import Done, Fleet
from tests.support.fleet import fleet as initialized_fleet
from tests.support.nats_server import require_server
from tests.support.one_account import OneAccount, make_old_streams

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]


def found(done: Done, *states: str) -> dict[str, str]:
    """The checks that ended in one of these states."""
    checks = {one["id"]: one["state"] for one in done.named("check")}
    return {id_: state for id_, state in checks.items() if state in states}


def a_server(directory: Path) -> Fleet:
    require_server()
    return Fleet(directory, [NatsServer(ServerSettings(directory=directory / "nats"))])


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Fleet]:
    """A broker on loopback without authentication, initialized."""
    require_server()
    with initialized_fleet(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """What `make demo SECURE=1` sets up: keys, a broker, a node web1."""
    directory = tmp_path_factory.mktemp("secured")
    made = a_server(directory)
    try:
        assert made.ctl("init", "--security").code == 0
        keys = keys_of(made)
        server = made.broker
        server.settings = msgspec.structs.replace(
            server.settings, extra=(keys / "nats-security.conf").read_text()
        )
        server.start()
        made.environ |= {"NATS_URL": server.url, "CCM_CREDS": str(keys / "tester.creds")}
        assert made.ctl("init", "--security").code == 0
        made.add("web1", nats={"url": server.url, "creds": str(give(made, "node", "web1"))})
        yield made
    finally:
        made.close()


def keys_of(fleet: Fleet) -> Path:
    return fleet.directory / "home" / ".config" / "ccm" / "keys"


def give(fleet: Fleet, kind: str, name: str, *words: str) -> Path:
    """Credentials as `ccmctl` prints them, in a file."""
    done = fleet.ctl(kind, "add", name, *words)
    assert (done.code, done.err) == (0, "")
    path = fleet.directory / f"{name}.creds"
    path.touch(mode=0o600)
    path.write_text(done.out)
    return path


async def alter(url: str, stream: str, **fields: object) -> None:
    """Change settings of a stream, as an administrator can."""
    async with Connection(settings_for(url)) as connection:
        await connection.connect_now()
        config = (await call(connection, f"STREAM.INFO.{stream}"))["config"]
        await call(connection, f"STREAM.UPDATE.{stream}", config | fields)


def test_broker_without_authentication_is_reported(plain: Fleet) -> None:
    done = plain.ctl("doctor", "--json")

    assert (done.code, done.err) == (2, "")
    assert found(done, "problem", "warning", "unknown") == {
        "broker.authentication": "problem",
        "signers.list": "problem",
        "audit.trail": "warning",
    }


def test_altered_and_missing_streams_are_reported_and_init_mends_them(plain: Fleet) -> None:
    asyncio.run(alter(plain.url, "KV_CCM_FACTS", allow_rollup_hdrs=True))
    asyncio.run(alter(plain.url, "CCM_EVENTS", max_age=3_600_000_000_000))
    asyncio.run(alter(plain.url, "KV_CCM_DATA", republish={"src": "$KV.CCM_DATA.>", "dest": "elsewhere.>"}))
    asyncio.run(delete(plain.url, "KV_CCM_RUNS"))

    altered = plain.ctl("doctor", "--json")
    assert plain.ctl("init").code == 0
    mended = plain.ctl("doctor", "--json")

    streams = {
        id_: state for id_, state in found(altered, "problem", "warning").items() if id_.startswith("stream.")
    }
    assert streams == {
        "stream.CCM_FACTS": "problem",
        "stream.CCM_EVENTS": "warning",
        "stream.CCM_DATA": "problem",
        "stream.CCM_RUNS": "problem",
    }
    assert not [id_ for id_ in found(mended, "problem", "warning") if id_.startswith("stream.")]


async def delete(url: str, stream: str) -> None:
    async with Connection(settings_for(url)) as connection:
        await connection.connect_now()
        await call(connection, f"STREAM.DELETE.{stream}")


def test_server_of_a_cluster_that_is_down_is_named(tmp_path: Path) -> None:
    require_server()
    with initialized_fleet(tmp_path, servers=3) as cluster:
        before = cluster.ctl("doctor", "--json")
        down = cluster.servers[2]
        down.kill()

        def copies() -> list[str]:
            checks = cluster.ctl("doctor", "--json").named("check")
            [one] = [check for check in checks if check["id"] == "stream.copies"]
            return list(one.get("names", []))

        cluster.wait_for(lambda: copies() == [down.settings.name], "its copies to be reported")

    assert "stream.copies" in found(before, "ok")


def test_broker_that_is_away_leaves_the_checks_on_this_host(secured: Fleet) -> None:
    done = secured.ctl("doctor", "--json", "--server", "nats://127.0.0.1:1")

    assert done.code == 2
    assert found(done, "problem") == {"broker.connection": "problem"}
    assert found(done, "ok") == {
        "credentials.file": "ok",
        "credentials.expiry": "ok",
        "credentials.trust": "ok",
        "keys.folder": "ok",
        "keys.seeds": "ok",
    }


def test_fleet_as_init_security_makes_it_has_no_problem(secured: Fleet) -> None:
    done = secured.ctl("doctor", "--json")
    strict = secured.ctl("doctor", "--strict")

    assert (done.code, strict.code) == (0, 2), done.out
    # Advice that does not fail: the root key is beside the others, the first operator's key never expires, web1 has no policy.
    assert found(done, "problem", "warning", "unknown") == {
        "keys.root": "warning",
        "signers.expiry": "warning",
        "nodes.policy": "warning",
    }
    assert len(found(done, "ok")) > 25
    assert "violation" not in secured.broker.log.read_text().lower()


def test_operator_with_read_access_is_shown_the_unknown_checks(secured: Fleet) -> None:
    creds = give(secured, "operator", "looker")

    done = secured.ctl("doctor", "--json", environ={"CCM_CREDS": str(creds), "CCM_KEYS": "/nonexistent"})

    assert (done.code, done.err) == (0, "")
    assert found(done, "unknown", "problem") == {
        "broker.accounts": "unknown",
        "broker.configuration": "unknown",
        "broker.old-credentials": "unknown",
        "signers.published": "unknown",
    }
    assert found(done, "ok")["nodes.signatures"] == "ok"


def test_stolen_node_credentials_learn_nothing_of_streams_and_other_nodes(secured: Fleet) -> None:
    creds = secured.directory / "web1.creds"

    done = secured.ctl("doctor", "--json", environ={"CCM_CREDS": str(creds), "CCM_KEYS": "/nonexistent"})

    unknown = found(done, "unknown")
    assert {id_ for id_ in found(done, "ok") if id_.startswith(("stream.", "nodes."))} == set()
    assert {"nodes.signatures", "stream.CCM_EVENTS"} <= set(unknown)


def test_revocation_that_the_server_has_not_read_is_a_problem(secured: Fleet) -> None:
    give(secured, "operator", "mallory")
    assert secured.ctl("operator", "revoke", "mallory").code == 0

    before = secured.ctl("doctor", "--json")
    secured.broker.reload((keys_of(secured) / "nats-security.conf").read_text())
    after = secured.ctl("doctor", "--json")

    assert found(before, "problem") == {"broker.configuration": "problem"}
    assert found(after, "problem") == {}


def test_signers_list_that_was_not_published_is_a_problem(secured: Fleet) -> None:
    assert secured.ctl("signers", "allow-unsigned", "1h").code == 0

    before = secured.ctl("doctor", "--json")
    assert secured.ctl("signers", "publish").code == 0
    opened = secured.ctl("doctor", "--json")
    assert secured.ctl("signers", "allow-unsigned", "--end").code == 0
    assert secured.ctl("signers", "publish").code == 0
    closed = secured.ctl("doctor", "--json")

    assert found(before, "problem") == {"signers.published": "problem"}
    assert found(opened, "problem", "warning")["signers.unsigned"] == "warning"
    assert "signers.unsigned" in found(closed, "ok")


def test_old_one_account_layout_is_a_problem_until_the_fleet_has_moved(tmp_path: Path) -> None:
    old = a_server(tmp_path)
    keys = OneAccount(keys_of(old))
    server = old.broker
    try:
        server.settings = msgspec.structs.replace(
            server.settings, extra=(keys.folder / "nats-security.conf").read_text()
        )
        server.start()
        creds = keys.give("tester")
        old.environ |= {"NATS_URL": server.url, "CCM_CREDS": str(creds)}
        asyncio.run(make_streams(server.url, creds))

        before = old.ctl("doctor", "--json")
        assert old.ctl("init", "--security", "--migrate").code == 0
        server.reload((keys.folder / "nats-security.conf").read_text())
        keys.give("bob")
        moving = old.ctl("doctor", "--json")
    finally:
        old.close()

    assert before.code == 2
    assert {"broker.accounts", "broker.old-credentials", "credentials.trust"} <= set(found(before, "problem"))
    assert found(moving, "problem", "warning")["broker.accounts"] == "warning"
    assert found(moving, "problem", "warning")["broker.old-credentials"] == "warning"


async def make_streams(url: str, creds: Path) -> None:
    async with Connection(settings_for(url, identity="tester", creds=str(creds))) as connection:
        await connection.connect_now()
        await make_old_streams(connection)


def test_users_without_accounts_are_a_problem(tmp_path: Path) -> None:
    shared = a_server(tmp_path)
    server = shared.broker
    try:
        server.settings = msgspec.structs.replace(
            server.settings, extra="authorization { user: all, password: secret }"
        )
        server.start()
        url = server.url.replace("nats://", "nats://all:secret@")

        done = shared.ctl("doctor", "--json", "--server", url)
    finally:
        shared.close()

    assert found(done, "problem")["broker.accounts"] == "problem"
    assert "secret" not in json.dumps(done.records)
