"""Real servers for tests, with the project's streams on them, and the fake that has to behave as they do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import pytest
from msgspec import Struct

from ccm_agent.bus.access.accounts import Account, as_configuration
from ccm_agent.bus.access.permissions import Permissions
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import BusSettings, settings_for
from ccm_agent.bus.events import NatsEvents
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.layout import LayoutOptions, make
from ccm_agent.bus.objects import NatsObjects
from ccm_agent.bus.requests import SCHEDULES_STREAM
from ccm_agent.bus.schedule_index import INDEX_SUBJECT, ScheduleIndex, read_index
from ccm_agent.bus.streams import call, store
from ccm_agent.bus.subjects import due_subject, parse_scheduled, schedule_subject
from ccm_agent.model.errors import BusError, BusSetupError
from ccm_agent.model.secret import Secret
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_agent.testing.nats_server import NatsServer, ServerSettings, cluster_servers, find_server
from tests.support.signing import OwnRequests

if TYPE_CHECKING:
    from ccm_agent.model.ports import BrokerConnection, Events

WAIT_S = 30.0
"""How long a test waits for what must happen; only a failure takes so long."""


class Ports(Struct, frozen=True, kw_only=True):
    """All bus ports of one process."""

    link: BrokerConnection
    requests: OwnRequests
    events: Events
    bucket: Any
    objects: Any


def settings(server: NatsServer | list[NatsServer], identity: str, **others: Any) -> BusSettings:
    """Settings with short pauses, so that tests come back quickly."""
    servers = server if isinstance(server, list) else [server]
    fields = {"spread_s": 0.02, "pause_s": 0.2} | others
    return settings_for([each.url for each in servers], identity=identity, **fields)


def ports_on(connection: Connection) -> Ports:
    """The ports on a connection."""
    return Ports(
        link=connection,
        requests=OwnRequests(connection),
        events=NatsEvents(connection),
        bucket=lambda name: NatsKeyValue(connection, name),
        objects=lambda name: NatsObjects(connection, name),
    )


class Broker(Protocol):
    """What a contract test does to a broker, whether it is real or not."""

    async def connect(self, identity: str) -> Ports:
        """The ports of a new process, connected."""

    async def stop(self) -> None:
        """Make the broker go away, and wait until everybody noticed."""

    async def start(self) -> None:
        """Make it come back, and wait until everybody is connected again."""

    async def put_plain(self, bucket: str, key: str, value: bytes) -> None:
        """Write a key as other programs do, without our headers."""

    async def copy_to(self, subject: str, stream: str, stored: str) -> None:
        """Have the newest message on a stored subject delivered to another subject, as a direct get with `reply` does."""

    async def fire(self, subject: str, body: bytes) -> None:
        """A request that was scheduled is due."""


class RealBroker:
    """A nats-server of the test's own."""

    def __init__(self, server: NatsServer, stack: contextlib.AsyncExitStack) -> None:
        self.server = server
        self._stack = stack
        self._connections: list[Connection] = []

    async def connect(self, identity: str) -> Ports:
        connection = await self._stack.enter_async_context(Connection(settings(self.server, identity)))
        await connection.connect_now()
        self._connections.append(connection)
        return ports_on(connection)

    async def stop(self) -> None:
        await asyncio.to_thread(self.server.kill)
        async with asyncio.timeout(WAIT_S):
            for connection in self._connections:
                await connection.wait_lost()

    async def start(self) -> None:
        await asyncio.to_thread(self.server.start)
        async with asyncio.timeout(WAIT_S):
            for connection in self._connections:
                await connection.wait_connected()

    async def put_plain(self, bucket: str, key: str, value: bytes) -> None:
        async with Connection(settings(self.server, "op")) as operator:
            await operator.connect_now()
            await operator.request(f"$KV.{bucket}.{key}", value)

    async def copy_to(self, subject: str, stream: str, stored: str) -> None:
        async with Connection(settings(self.server, "thief")) as thief:
            await thief.connect_now()
            question = f"$JS.API.DIRECT.GET.{stream}.{stored}"
            await thief.publish(question, b"", reply=subject, confirm=True)
            await thief.request(question)  # answered after the copy was sent

    async def fire(self, subject: str, body: bytes) -> None:
        protocol, scope, name = parse_scheduled(subject)
        schedule = schedule_subject(protocol, scope, name or "one")
        # what should have happened already happens at once
        headers = {"Nats-Schedule": "@at 2026-01-01T00:00:00Z", "Nats-Schedule-Target": due_subject(subject)}
        async with Connection(settings(self.server, "op")) as operator:
            await operator.connect_now()
            if name:
                index, _ = await read_index(operator, SCHEDULES_STREAM)
                index = ScheduleIndex(schedules=sorted({*index.schedules, schedule}))
                await store(operator, INDEX_SUBJECT, msgspec.json.encode(index), {})
            await store(operator, schedule, body, headers)


class FakeBroker:
    """The memory bus."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()

    async def connect(self, identity: str) -> Ports:
        bus = MemoryBus(self.broker, identity)
        return Ports(
            link=bus.link, requests=bus.requests, events=bus.events, bucket=bus.bucket, objects=bus.objects
        )

    async def stop(self) -> None:
        self.broker.stop()

    async def start(self) -> None:
        self.broker.start()

    async def put_plain(self, bucket: str, key: str, value: bytes) -> None:
        await MemoryBus(self.broker, "op").bucket(bucket).put(key, value)

    async def copy_to(self, subject: str, stream: str, stored: str) -> None:
        headers = {
            "Nats-Stream": stream,
            "Nats-Subject": stored,
            "Nats-Sequence": "1",
            "Nats-Time-Stamp": "x",
        }
        self.broker.inject(subject, b'{"protocol":"x"}', headers)

    async def fire(self, subject: str, body: bytes) -> None:
        self.broker.fire(subject, body)


class Heard:
    """What a callback was given, to wait for."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._more = asyncio.Event()

    def __call__(self, *item: Any) -> None:
        self.items.append(item[0] if len(item) == 1 else item)
        self._more.set()

    async def wait(self, count: int) -> list[Any]:
        """The items, as soon as there are so many."""
        async with asyncio.timeout(WAIT_S):
            while len(self.items) < count:
                self._more.clear()
                await self._more.wait()
        return self.items


def require_server() -> None:
    """Skip the test where there is no nats-server, and say how to get one."""
    try:
        find_server()
    except BusSetupError as err:
        pytest.skip(str(err))


@contextlib.contextmanager
def running_server(directory: Path, extra: str = "", **others: Any) -> Iterator[NatsServer]:
    """A server with its store in a directory."""
    require_server()
    server = NatsServer(ServerSettings(directory=directory, extra=extra, **others))
    try:
        server.start()
        yield server
    finally:
        server.stop()


def users_configuration(users: Mapping[str, Permissions], *, moving: bool = False) -> str:
    """What a server's configuration says of its accounts and users; each user has its own name for a password."""
    entries = dict.fromkeys(Account, "")
    for name, allowed in users.items():
        entries[allowed.account] += (
            f'      {{ user: "{name}", password: "{name}", permissions: {allowed.as_configuration()} }}\n'
        )
    return as_configuration(entries, moving=moving)


def one_account_configuration(users: Mapping[str, Permissions]) -> str:
    """The same with all users in the account that holds the streams, as before there were several accounts."""
    lines = "\n".join(
        f'{{ user: "{name}", password: "{name}", permissions: {allowed.as_configuration()} }}'
        for name, allowed in users.items()
    )
    return f"authorization {{ users: [\n{lines}\n] }}\n"


@contextlib.contextmanager
def secured_server(directory: Path, known: str) -> Iterator[NatsServer]:
    """A server that knows its users, with the project's streams as its user `admin` makes them."""
    with running_server(directory, known) as server:

        async def prepare() -> None:
            async with connected(server, "admin") as admin:
                await make(admin, LayoutOptions(secure=True))

        asyncio.run(prepare())
        yield server


@contextlib.asynccontextmanager
async def connected_plain(server: NatsServer, name: str) -> AsyncIterator[Connection]:
    """A connection to a server that asks for no credentials."""
    async with Connection(settings(server, name)) as connection:
        await connection.connect_now()
        yield connection


@contextlib.asynccontextmanager
async def connected(server: NatsServer, name: str) -> AsyncIterator[Connection]:
    """A connection of one of a server's users: by the credentials in its directory, or else by name."""
    creds = server.settings.directory / f"{name}.creds"
    by_name = {"user": name, "password": Secret(name)}
    chosen = settings(server, name, **({"creds": str(creds)} if creds.exists() else by_name))
    async with Connection(chosen) as connection:
        await connection.connect_now()
        yield connection


@contextlib.contextmanager
def running_cluster(directory: Path, extra: str = "", **others: str) -> Iterator[list[NatsServer]]:
    """Three servers that know each other; `others` as of `cluster_servers`."""
    require_server()
    servers = list(cluster_servers(directory, extra=extra, **others))
    try:
        for server in servers:
            server.launch()
        for server in servers:
            server.wait_ready()
        yield servers
    finally:
        for server in servers:
            server.stop()


@contextlib.asynccontextmanager
async def real_broker(directory: Path, layout: LayoutOptions | None = None) -> AsyncIterator[RealBroker]:
    """A server with the project's streams."""
    with running_server(directory) as server:
        async with contextlib.AsyncExitStack() as stack:
            await prepare(server, layout)
            yield RealBroker(server, stack)


async def prepare(
    server: NatsServer | list[NatsServer], layout: LayoutOptions | None = None, **others: Any
) -> None:
    """Make the project's streams, as an operator. A cluster that has just been started loses the first question or two."""
    async with Connection(settings(server, "op", **({"answer_s": 1.0} | others))) as connection:
        await connection.connect_now()
        await make(connection, layout)


async def recreate(connection: Connection, stream: str, **changed: Any) -> None:
    """
    Delete a stream, and create it without messages.

    Of a stream that is deleted and created at once, nats-server 2.15.0 sometimes restores the old messages.
    """
    config = (await call(connection, f"STREAM.INFO.{stream}"))["config"] | changed
    for _ in range(50):
        await call(connection, f"STREAM.DELETE.{stream}")
        made = await call(connection, f"STREAM.CREATE.{stream}", config)
        if not made["state"]["messages"]:
            return
    raise AssertionError(f"{stream} is never empty")


async def eventually(attempt: Any) -> Any:
    """The result of the first attempt that no BusError ends: a cluster tells nobody when it has a leader again."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return await attempt()
            except BusError:
                await asyncio.sleep(0.05)
