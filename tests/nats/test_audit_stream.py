"""The audit stream on a real broker: who may write there, and that nobody can remove an entry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.access.audit import AUDIT_NODES_STREAM, AUDIT_STREAM, AUDIT_STREAMS, operator_subject
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.events import EVENTS_STREAM
from ccm_agent.bus.streams import Ack, call, read_all, store
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.errors import BusDeniedError, BusError
from ccm_agent.model.wire import AGENT_STARTUP
from tests.support.nats_server import WAIT_S, settings
from tests.support.secured import Secured, secured_broker

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

_MARK = "# Accounts: "


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("fleet"), Secured) as one:
        for kind, name in (("operator", "ann"), ("operator", "bob"), ("node", "web1"), ("node", "web2")):
            one.give(kind, name)
        yield one


@asynccontextmanager
async def connected(one: Secured, name: str) -> AsyncIterator[Connection]:
    """A connection with the credentials of a user; `tester` is an operator with `--admin`."""
    creds = one.keys / "tester.creds" if name == "tester" else one.directory / f"{name}.creds"
    async with Connection(settings(one.fleet.servers[0], name, creds=str(creds))) as connection:
        await connection.connect_now()
        yield connection


async def audited(connection: Connection, subject: str) -> list[bytes]:
    """The bodies that the audit streams have on a subject."""
    return [each.body for name in AUDIT_STREAMS async for each in read_all(connection, name, subject)]


@pytest.mark.parametrize("name", ["tester", "ann"])
async def test_operator_writes_and_reads_the_audit_trail(fleet: Secured, name: str) -> None:
    subject = operator_subject(name)
    async with connected(fleet, name) as operator:
        ack = await store(operator, subject, b"an entry")

        assert isinstance(ack, Ack)
        assert ack.stream == AUDIT_STREAM
        assert await audited(operator, subject) == [b"an entry"]


async def test_operator_cannot_write_as_another(fleet: Secured) -> None:
    async with connected(fleet, "bob") as bob, connected(fleet, "tester") as admin:
        for writer in (bob, admin):
            with pytest.raises(BusDeniedError):
                await store(writer, operator_subject("carol"), b"forged")

        assert await audited(bob, operator_subject("carol")) == []
        await store(bob, operator_subject("bob"), b"his own")
        assert await audited(bob, operator_subject("bob")) == [b"his own"]


async def test_node_events_are_copied_and_only_under_its_own_name(fleet: Secured) -> None:
    own, other = event_subject(AGENT_STARTUP, "web1"), event_subject(AGENT_STARTUP, "web2")
    async with connected(fleet, "web1") as node, connected(fleet, "ann") as reader:
        ack = await store(node, own, b"started", {"Nats-Msg-Id": "1"})
        with pytest.raises(BusDeniedError):
            await store(node, other, b"forged", {"Nats-Msg-Id": "2"})

        # the acknowledgement after which a node deletes an event is that of the events
        assert ack.stream == EVENTS_STREAM
        async with asyncio.timeout(WAIT_S):
            while await audited(reader, own) != [b"started"]:
                pass  # the other stream has acknowledged it
        assert await audited(reader, other) == []


async def test_admin_cannot_remove_what_was_audited(fleet: Secured) -> None:
    event = event_subject(AGENT_STARTUP, "web2")
    async with connected(fleet, "web2") as node, connected(fleet, "tester") as admin:
        await store(node, event, b"started", {"Nats-Msg-Id": "3"})
        entry = operator_subject("tester")
        await store(admin, entry, b"kept")
        async with asyncio.timeout(WAIT_S):
            while b"started" not in await audited(admin, event):
                pass
        before = await audited(admin, ">")

        for verb in ("PURGE", "DELETE", "MSG.DELETE"):
            for name in (AUDIT_STREAM, AUDIT_NODES_STREAM):
                with pytest.raises(BusError):
                    await call(admin, f"STREAM.{verb}.{name}", {"seq": 1} if "MSG" in verb else None)
        # a stream of the same name in his own account takes nothing of this one
        purged = await call(admin, f"STREAM.PURGE.{EVENTS_STREAM}")

        assert purged["purged"] > 0
        assert await audited(admin, ">") == before
        assert b"kept" in before


def test_a_fleet_of_an_earlier_version_gets_the_account_and_the_stream(tmp_path: Path) -> None:
    with secured_broker(tmp_path, Secured) as one:
        make_older(one)
        restart(one)

        told = one.fleet.ctl("init", "--security")

        assert told.code == 0
        assert "nats-server --signal reload" in told.err
        assert "the audit streams were not created" in told.err
        assert AUDIT_STREAM not in told.out
        restart(one)
        made = one.fleet.ctl("init", "--security")
        assert (made.code, made.err) == (0, "")
        assert AUDIT_STREAM in made.out
        assert (one.keys / "audit.seed").stat().st_mode & 0o777 == 0o600


def test_a_lost_key_of_the_account_is_not_replaced(tmp_path: Path) -> None:
    with secured_broker(tmp_path, Secured) as one:
        seed, configuration = one.keys / "audit.seed", one.keys / "nats-security.conf"
        kept = seed.read_bytes()
        seed.unlink()
        configuration.write_text(without_mark(configuration.read_text()))

        told = one.fleet.ctl("init", "--security")

        assert "copy the file from where it was created" in told.err
        assert not seed.exists()
        seed.write_bytes(kept)
        seed.chmod(0o600)
        assert one.fleet.ctl("init", "--security").code == 0


def make_older(one: Secured) -> None:
    """Take the audit account out of the keys and of the servers' configuration."""
    from ccm_agent.bus.access.credentials import name_in_jwt

    path = one.keys / "nats-security.conf"
    (one.keys / "audit.seed").unlink()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(
        without_mark(
            "".join(line for line in lines if name_in_jwt(line.rpartition(" ")[2].strip()) != "audit")
        )
    )


def without_mark(text: str) -> str:
    """The configuration as an earlier version wrote it."""
    return "\n".join(line for line in text.splitlines() if not line.startswith(_MARK)) + "\n"


def restart(one: Secured) -> None:
    """Give the servers the configuration that is in the folder of the keys."""
    [server] = one.fleet.servers
    server.stop()
    server.settings = msgspec.structs.replace(
        server.settings, extra=(one.keys / "nats-security.conf").read_text()
    )
    server.start()
    one.fleet.environ["NATS_URL"] = server.url
