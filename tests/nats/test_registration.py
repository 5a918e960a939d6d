"""Registrations on a real broker: published, read, expired, removed, watched, and doubted after the broker was away."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.layout import LayoutOptions
from ccm_agent.bus.streams import call, read_last, read_newest, store
from ccm_agent.bus.subjects import REGISTRATION_PREFIX, registration_subject
from ccm_agent.model.errors import BusSetupError, BusUnavailableError, UnsettledError, UsageError
from ccm_agent.model.records.registration import RegistrationChange, encode_entry, instance_of
from ccm_agent.registration.entries import RegistrationQuery, entry_subject
from ccm_agent.registration.lookup import RegistrationLookup, find, read
from ccm_agent.registration.publish import Publisher, make_stream, remove
from ccm_agent.registration.watch import watch
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.nats_server import NatsServer
from ccm_agent.testing.records import FakeRecords
from tests.support.nats_server import WAIT_S, prepare, recreate, running_server, settings
from tests.support.registrations import an_entry

pytestmark = pytest.mark.nats

STREAM = "REGISTRATION"


@contextlib.asynccontextmanager
async def connected(server: NatsServer) -> AsyncIterator[Connection]:
    async with Connection(settings(server, "op")) as connection:
        await connection.connect_now()
        yield connection


@pytest.fixture(params=["as the reference makes it", "secured"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Connection]:
    """A connection to a broker with the stream in each of its two layouts."""
    with running_server(tmp_path) as server:
        await prepare(server, LayoutOptions(secure=request.param == "secured"))
        async with connected(server) as connection:
            yield connection


async def until(happened: Any) -> None:
    """Look until something has happened on the broker."""
    async with asyncio.timeout(WAIT_S):
        while not await happened():  # noqa: ASYNC110 - the broker tells nobody
            await asyncio.sleep(0.05)


async def addresses(connection: Connection, *query: str) -> list[str]:
    return [entry.address for entry in await find(connection, STREAM, RegistrationQuery(*query))]


async def test_registrations_is_found(broker: Connection) -> None:
    publisher = Publisher(broker, "jetstream")
    first = an_entry(2, ttl="10m0s", annotations={"host": "web2"})

    for entry in (first, an_entry(1, port=9090), an_entry(1), an_entry(3, service="db")):
        await publisher.publish(entry)

    assert await find(broker, STREAM, RegistrationQuery("prod", "http", "web")) == [
        an_entry(1),
        an_entry(1, port=9090),
        first,
    ]
    assert await addresses(broker, "*", "*", "*", "10.0.0.3") == ["10.0.0.3"]
    assert await addresses(broker, "test") == []


async def test_an_entry_that_is_registered_again_takes_the_place_of_the_older_one(broker: Connection) -> None:
    publisher = Publisher(broker, "jetstream")
    await publisher.publish(an_entry(priority=1))

    await publisher.publish(an_entry(priority=2))

    assert [entry.priority for entry in await find(broker, STREAM, RegistrationQuery())] == [2]
    assert (await call(broker, f"STREAM.INFO.{STREAM}"))["state"]["messages"] == 1


async def test_an_entry_travels_with_the_headers_of_the_reference_where_the_stream_takes_them(
    broker: Connection,
) -> None:
    rolls_up = (await call(broker, f"STREAM.INFO.{STREAM}"))["config"].get("allow_rollup_hdrs", False)

    await Publisher(broker, "jetstream").publish(an_entry(ttl="10m"))

    stored = await read_last(broker, STREAM, entry_subject(an_entry()))
    assert stored is not None
    named = {name: value for name, value in stored.headers.items() if name in ("Nats-TTL", "Nats-Rollup")}
    assert named == {"Nats-TTL": "10m0s"} | ({"Nats-Rollup": "sub"} if rolls_up else {})
    assert json.loads(stored.body)["ttl"] == "10m0s"


async def test_an_entry_that_is_not_renewed_is_gone_after_its_ttl(broker: Connection) -> None:
    publisher = Publisher(broker, "jetstream")
    await publisher.publish(an_entry(1, ttl="1s"))
    await publisher.publish(an_entry(2, ttl="never"))

    async def expired() -> bool:
        return await addresses(broker) == ["10.0.0.2"]

    await until(expired)


async def test_an_entry_is_removed_at_once(broker: Connection) -> None:
    publisher = Publisher(broker, "jetstream")
    await publisher.publish(an_entry(1))
    await publisher.publish(an_entry(2))

    assert await remove(broker, an_entry(1)) is True

    assert await addresses(broker) == ["10.0.0.2"]
    assert await remove(broker, an_entry(7)) is False


async def test_registrations_sent_by_the_references_core_destination_are_found(broker: Connection) -> None:
    await Publisher(broker, "nats").publish(an_entry(ttl="10m"))

    async def found() -> bool:
        return await addresses(broker) == ["10.0.0.1"]

    await until(found)
    stored = await read_last(broker, STREAM, entry_subject(an_entry()))
    assert stored is not None
    assert not {"Nats-TTL", "Nats-Rollup"} & set(stored.headers)


async def test_an_entry_of_the_reference_s_own_writer_is_read(broker: Connection) -> None:
    # as registration/nats.go writes it, its TTL as an older release had it
    body = (
        b'{"cluster":"prod","service":"web","protocol":"http","address":"10.0.0.9","port":80,"priority":1,'
        b'"annotations":{"version":"1.2.3"},"ttl":600000000000}'
    )
    entry = an_entry(9, port=80, priority=1)
    subject = registration_subject("prod", "http", "web", "10.0.0.9", instance_of(entry))

    await store(broker, subject, body, {"Nats-TTL": "10m0s"})

    assert await find(broker, STREAM, RegistrationQuery()) == [
        an_entry(9, port=80, priority=1, annotations={"version": "1.2.3"}, ttl="10m0s")
    ]


async def test_more_entries_than_the_broker_gives_at_once_are_all_found(broker: Connection) -> None:
    publisher = Publisher(broker, "nats")
    for number in range(1300):
        await publisher.publish(an_entry(port=number + 1))

    async def all_there() -> bool:
        return len(await find(broker, STREAM, RegistrationQuery())) == 1300

    await until(all_there)


async def test_registrations_and_removals_are_watched(broker: Connection) -> None:
    publisher = Publisher(broker, "jetstream")
    await publisher.publish(an_entry(1, service="db"))
    await publisher.publish(an_entry(1))
    marks = (await call(broker, f"STREAM.INFO.{STREAM}"))["config"].get("subject_delete_marker_ttl", 0) > 0

    async with (
        asyncio.timeout(WAIT_S),
        aclosing(watch(broker, STREAM, RegistrationQuery(service="web"), 0.05)) as changes,
    ):
        seen = [await anext(changes)]
        await publisher.publish(an_entry(1))
        seen.append(await anext(changes))
        await publisher.publish(an_entry(2, ttl="1s"))
        seen += [await anext(changes), await anext(changes)]
        await remove(broker, an_entry(1))
        seen.append(await anext(changes))

    assert seen == [
        RegistrationChange(action="register", entry=an_entry(1)),
        RegistrationChange(action="register", entry=an_entry(1)),
        RegistrationChange(action="register", entry=an_entry(2, ttl="1s")),
        RegistrationChange(
            action="remove", entry=an_entry(2, ttl="1s"), reason="MaxAge" if marks else "Gone"
        ),
        RegistrationChange(action="remove", entry=an_entry(1), reason="Remove"),
    ]


# ---- the stream


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A broker with nothing on it."""
    with running_server(tmp_path) as server:
        yield server


async def test_error_about_a_missing_stream_names_the_command_that_creates_it(server: NatsServer) -> None:
    async with connected(server) as connection:
        with pytest.raises(BusUnavailableError, match="init"):
            await find(connection, STREAM, RegistrationQuery())
        with pytest.raises(BusUnavailableError, match="init"):
            await Publisher(connection, "jetstream").publish(an_entry())


async def test_the_stream_is_made_as_the_reference_makes_it(server: NatsServer) -> None:
    async with connected(server) as connection:
        made = await make_stream(connection, max_age_s=300)
        again = await make_stream(connection, max_age_s=60)

    wanted = {
        "name": STREAM,
        "subjects": ["choria.ccm.registration.v1.>"],
        "retention": "limits",
        "max_msgs_per_subject": 1,
        "allow_msg_ttl": True,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "deny_purge": False,
        "num_replicas": 1,
        "max_age": 300_000_000_000,
        "subject_delete_marker_ttl": 300_000_000_000,
    }
    assert {field: made.get(field, False) for field in wanted} == wanted
    assert (again["max_age"], again["subject_delete_marker_ttl"]) == (60_000_000_000, 60_000_000_000)


async def test_omitted_options_leave_settings_unchanged(server: NatsServer) -> None:
    async with connected(server) as connection:
        made = await make_stream(connection, max_age_s=86_400)
        again = await make_stream(connection)

    assert (again["max_age"], again["num_replicas"]) == (made["max_age"], 1)
    assert again["subject_delete_marker_ttl"] == made["subject_delete_marker_ttl"]


async def test_a_secured_stream_stays_secured(server: NatsServer) -> None:
    await prepare(server, LayoutOptions(secure=True))

    async with connected(server) as connection:
        made = await make_stream(connection, max_age_s=300)

    assert made["max_age"] == 300_000_000_000
    assert not made.get("allow_rollup_hdrs")
    assert not made.get("subject_delete_marker_ttl")


async def test_room_that_an_operator_made_for_entries_stays(server: NatsServer) -> None:
    async with connected(server) as connection:
        made = await make_stream(connection, max_age_s=300)
        await call(connection, f"STREAM.UPDATE.{STREAM}", {**made, "max_bytes": 1 << 30})
        again = await make_stream(connection, max_age_s=300)

    assert (made["max_bytes"], again["max_bytes"]) == (256 << 20, 1 << 30)


async def test_more_replicas_than_there_are_servers_are_refused(server: NatsServer) -> None:
    async with connected(server) as connection:
        with pytest.raises(BusSetupError):
            await make_stream(connection, replicas=3)
        with pytest.raises(UsageError):
            await make_stream(connection, replicas=6)


# ---- after the broker was away


class Host:
    """A node's processes that look registrations up: what they remember, and their clock."""

    def __init__(self, server: NatsServer, settle_s: float = 600) -> None:
        self.records = FakeRecords()
        self.clock = FakeClock()
        self.settle_s = settle_s
        self._server = server

    @contextlib.asynccontextmanager
    async def process(self) -> AsyncIterator[RegistrationLookup]:
        """One process: a connection of its own, made when it is asked for."""
        async with Connection(settings(self._server, "lb1", connect_s=0.5)) as connection:

            async def connect() -> Connection:
                if not connection.connected:
                    await connection.connect_now()
                return connection

            yield RegistrationLookup("broker", connect, self.records, self.clock, settle_s=self.settle_s)

    async def ask(self, *query: str) -> list[str]:
        """What a process of its own is told, as with `ccm apply`."""
        async with self.process() as lookup:
            return [entry.address for entry in await lookup.find(RegistrationQuery(*query))]


async def register(server: NatsServer, *numbers: int, **fields: Any) -> None:
    async with connected(server) as connection:
        for number in numbers:
            await Publisher(connection, "jetstream").publish(an_entry(number, **fields))


async def forget_all(server: NatsServer) -> None:
    """What a restart does to a stream in memory, or to entries whose TTL ends meanwhile; by direct deletion, without a mark."""
    async with connected(server) as connection:
        await recreate(connection, STREAM)


async def restart(server: NatsServer) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


@pytest.fixture
async def pool(server: NatsServer) -> NatsServer:
    """A broker with two web servers registered on it."""
    await prepare(server)
    await register(server, 1, 2)
    return server


async def test_a_pool_that_was_always_empty_is_believed(server: NatsServer) -> None:
    await prepare(server)
    host = Host(server)

    assert await host.ask() == []


async def test_a_pool_that_empties_while_the_broker_is_there_is_believed(pool: NatsServer) -> None:
    host = Host(pool)
    assert await host.ask() == ["10.0.0.1", "10.0.0.2"]

    await forget_all(pool)

    assert await host.ask() == []


async def test_after_a_restart_an_empty_pool_is_not_believed_by_the_next_process(pool: NatsServer) -> None:
    host = Host(pool)
    await host.ask()
    await restart(pool)
    await forget_all(pool)

    with pytest.raises(UnsettledError, match=r"2 known entries are missing.*Nodes have 10m left"):
        await host.ask("prod", "http", "web", "*")


async def test_after_a_restart_a_pool_that_shrank_is_not_believed_either(pool: NatsServer) -> None:
    host = Host(pool)
    await host.ask()
    await restart(pool)
    await forget_all(pool)
    await register(pool, 2)

    with pytest.raises(UnsettledError, match="1 known entries are missing"):
        await host.ask()


async def test_after_a_restart_a_complete_pool_is_accepted(pool: NatsServer) -> None:
    host = Host(pool)
    await host.ask()

    await restart(pool)

    assert await host.ask() == ["10.0.0.1", "10.0.0.2"]


async def test_when_nodes_had_the_time_to_register_again_the_answer_is_believed(pool: NatsServer) -> None:
    host = Host(pool)
    await host.ask()
    await restart(pool)
    await forget_all(pool)
    await register(pool, 2)
    with pytest.raises(UnsettledError):
        await host.ask()

    await host.clock.advance(599)
    with pytest.raises(UnsettledError):
        await host.ask()
    await host.clock.advance(1)

    assert await host.ask() == ["10.0.0.2"]
    assert await host.ask() == ["10.0.0.2"]


async def test_zero_settle_time_reports_at_once(pool: NatsServer) -> None:
    host = Host(pool, settle_s=0)
    await host.ask()
    await restart(pool)
    await forget_all(pool)

    assert await host.ask() == []


async def test_other_services_are_not_doubted(pool: NatsServer) -> None:
    host = Host(pool)
    await host.ask()
    await restart(pool)
    await forget_all(pool)

    assert await host.ask("prod", "http", "db") == []


async def test_a_node_removed_by_an_operator_is_not_waited_for(pool: NatsServer) -> None:
    host = Host(pool)
    await host.ask()
    await restart(pool)
    async with connected(pool) as connection:
        await remove(connection, an_entry(1))

    assert await host.ask() == ["10.0.0.2"]


async def test_a_broker_that_is_away_is_an_error_and_remembered(pool: NatsServer) -> None:
    host = Host(pool)
    await host.ask()
    await host.clock.advance(10_000)
    await asyncio.to_thread(pool.kill)

    with pytest.raises(BusUnavailableError):
        await host.ask()
    await asyncio.to_thread(pool.start)
    await forget_all(pool)

    with pytest.raises(UnsettledError):
        await host.ask()


async def test_one_process_that_lost_its_connection_doubts_too(pool: NatsServer) -> None:
    host = Host(pool)
    async with host.process() as lookup:
        await lookup.find(RegistrationQuery())
        await restart(pool)
        await forget_all(pool)
        await host.clock.advance(10_000)

        async def answered() -> bool:
            try:
                await lookup.find(RegistrationQuery())
            except UnsettledError:
                return True
            except BusUnavailableError:
                return False
            raise AssertionError("an empty pool was believed")

        await until(answered)


async def test_a_query_with_more_than_a_thousand_matches_can_be_doubted(pool: NatsServer) -> None:
    async with connected(pool) as connection:
        for number in range(1100):
            await Publisher(connection, "nats").publish(an_entry(port=number + 1))

        async def stored() -> bool:
            return len(await read_newest(connection, STREAM, [RegistrationQuery().pattern])) >= 1100

        await until(stored)
    host = Host(pool)
    assert len(await host.ask()) >= 1100

    await restart(pool)
    await forget_all(pool)

    with pytest.raises(UnsettledError):
        await host.ask()


async def test_what_no_query_selects_is_not_among_everything(broker: Connection) -> None:
    entry = an_entry(1)
    await store(broker, entry_subject(entry), encode_entry(entry))
    await store(broker, f"{REGISTRATION_PREFIX}.of.three.tokens", b"{}")

    assert [one.subject for one in await read(broker, STREAM, RegistrationQuery())] == [entry_subject(entry)]
