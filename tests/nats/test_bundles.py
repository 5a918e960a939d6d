"""Bundles are removed while other commands store them: what a command stored stays, and can be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from ccm_agent.bus.layout import MANIFESTS, LayoutOptions, make
from ccm_agent.bus.objects import CHUNK_BYTES, NatsObjects
from ccm_agent.bus.permissions import Role, operator_permissions
from ccm_agent.bus.streams import call
from ccm_agent.model.errors import BusDeniedError
from ccm_agent.testing.nats_server import NatsServer
from tests.support.nats_server import Connection, connected, running_server, users_configuration

pytestmark = [pytest.mark.nats, pytest.mark.timeout(90)]

USERS = {
    "admin": operator_permissions("admin", Role(admin=True)),
    "op": operator_permissions("op", Role(apply=(">",))),
}
NAME = "a" * 64
CONTENT = b"x" * (CHUNK_BYTES * 3)
LIMIT = len(CONTENT)

PURGES = f"$JS.API.STREAM.PURGE.OBJ_{MANIFESTS}"
DESCRIBES = f"$O.{MANIFESTS}.M."


class Interrupted:
    """A connection on which something else happens before the first request to a subject that begins so."""

    def __init__(self, inner: Connection, prefix: str, happens: Callable[[], Awaitable[Any]]) -> None:
        self._inner, self._prefix = inner, prefix
        self._happens: Callable[[], Awaitable[Any]] | None = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def request(self, subject: str, *words: Any, **more: Any) -> Any:
        """As the connection does."""
        if subject.startswith(self._prefix) and self._happens is not None:
            happens, self._happens = self._happens, None
            await happens()
        return await self._inner.request(subject, *words, **more)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with running_server(tmp_path_factory.mktemp("nats"), users_configuration(USERS)) as one:
        yield one


@pytest.fixture
async def admin(server: NatsServer) -> AsyncIterator[Connection]:
    async with connected(server, "admin") as connection:
        await make(connection, LayoutOptions(secure=True))
        await call(connection, f"STREAM.PURGE.OBJ_{MANIFESTS}")
        yield connection


@pytest.fixture
async def operator(server: NatsServer, admin: Connection) -> AsyncIterator[Connection]:
    async with connected(server, "op") as connection:
        await NatsObjects(connection, MANIFESTS).put(NAME, CONTENT)
        yield connection


async def listed(connection: Connection) -> int:
    """The revision of the only bundle."""
    (one,) = await NatsObjects(connection, MANIFESTS).all()
    return one.revision


async def count_messages(connection: Connection) -> int:
    info = await call(connection, f"STREAM.INFO.OBJ_{MANIFESTS}")
    count: int = info["state"]["messages"]
    return count


async def test_an_operator_with_admin_alone_removes_a_bundle_and_nothing_is_left_of_it(
    admin: Connection, operator: Connection
) -> None:
    objects = NatsObjects(operator, MANIFESTS)
    await objects.put(NAME, CONTENT)

    assert await NatsObjects(admin, MANIFESTS).remove(NAME, await listed(admin)) is True

    assert await count_messages(admin) == 0


async def test_an_operator_without_admin_removes_nothing(operator: Connection) -> None:
    objects = NatsObjects(operator, MANIFESTS)

    with pytest.raises(BusDeniedError):
        await objects.remove(NAME, await listed(operator))

    assert await objects.get(NAME, LIMIT) == CONTENT


async def test_a_bundle_that_is_renewed_right_before_it_is_removed_stays(
    admin: Connection, operator: Connection
) -> None:
    objects = NatsObjects(operator, MANIFESTS)
    revision = await listed(admin)
    interrupted = Interrupted(admin, PURGES, lambda: objects.put(NAME, CONTENT))

    is_removed = await NatsObjects(interrupted, MANIFESTS).remove(NAME, revision)

    assert is_removed is False
    assert await objects.get(NAME, LIMIT) == CONTENT


async def test_a_bundle_that_is_removed_right_before_it_is_renewed_is_stored_again(
    admin: Connection, operator: Connection
) -> None:
    collector = NatsObjects(admin, MANIFESTS)
    revision = await listed(admin)
    interrupted = Interrupted(operator, DESCRIBES, lambda: collector.remove(NAME, revision))

    await NatsObjects(interrupted, MANIFESTS).put(NAME, CONTENT)

    assert await listed(admin) > revision
    assert await NatsObjects(operator, MANIFESTS).get(NAME, LIMIT) == CONTENT
    assert await count_messages(admin) == 4


async def test_a_bundle_that_is_stored_again_between_its_description_and_its_bytes_stays(
    admin: Connection, operator: Connection
) -> None:
    """The description is gone, the bytes are not yet, and the other operator had read the description before."""
    objects = NatsObjects(operator, MANIFESTS)
    revision = await listed(admin)

    async def other_command() -> None:
        # Right before the purge of the bytes: the first request on the subject is the purge of the description.
        await call(admin, f"STREAM.PURGE.OBJ_{MANIFESTS}", {"filter": f"$O.{MANIFESTS}.M.*"})
        await objects.put(NAME, CONTENT)

    interrupted = Interrupted(admin, PURGES, other_command)

    assert await NatsObjects(interrupted, MANIFESTS).remove(NAME, revision) is False

    assert await objects.get(NAME, LIMIT) == CONTENT
    assert await count_messages(admin) == 4  # the bytes of before are gone


async def test_stored_object_can_be_read_while_it_is_removed_concurrently(
    admin: Connection, operator: Connection
) -> None:
    objects, collector = NatsObjects(operator, MANIFESTS), NatsObjects(admin, MANIFESTS)
    removed = 0

    for _ in range(60):
        revision = await listed(admin)
        _, is_removed = await asyncio.gather(objects.put(NAME, CONTENT), collector.remove(NAME, revision))
        removed += is_removed
        assert await objects.get(NAME, LIMIT) == CONTENT

    await collector.trim()
    assert await count_messages(admin) == 4, f"removed {removed} times"
