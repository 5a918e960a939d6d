"""Bundles are removed while other commands store them: what a command stored stays, and can be read."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.access.permissions import Role, operator_permissions
from ccm_agent.bus.layout import MANIFESTS, LayoutOptions, make
from ccm_agent.bus.object_descriptions import digest_field
from ccm_agent.bus.objects import CHUNK_BYTES, NatsObjects
from ccm_agent.bus.streams import call, store
from ccm_agent.model.errors import BusDeniedError, NotFoundError, ProtocolError
from ccm_agent.testing.nats_server import NatsServer
from tests.support.nats_server import Connection, connected, running_server, users_configuration

pytestmark = [pytest.mark.nats, pytest.mark.timeout(90)]

USERS = {
    "admin": operator_permissions("admin", Role(admin=True, apply=(">",))),
    "op": operator_permissions("op", Role(apply=(">",))),
    "planner": operator_permissions("planner", Role(plan=("fact.role.web",))),
}
CONTENT = b"x" * (CHUNK_BYTES * 3)
NAME = hashlib.sha256(CONTENT).hexdigest()
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


# -- an uploader attacks a bundle of another operator


class Attack:
    """What an operator stores who may only plan: everything that the broker lets such an operator store."""

    def __init__(self, connection: Connection, name: str = NAME) -> None:
        self._connection = connection
        self._subject = f"{DESCRIBES}{base64.urlsafe_b64encode(name.encode()).decode()}"
        self._name = name

    async def describe(self, nuid: str, size: int = LIMIT, **others: Any) -> None:
        """Another description of the bundle."""
        meta = {"name": self._name, "bucket": MANIFESTS, "nuid": nuid, "size": size}
        if "digest" not in others:
            others["digest"] = digest_field(bytes.fromhex(self._name))
        await store(self._connection, self._subject, msgspec.json.encode(meta | others))

    async def garbage(self, nuid: str) -> None:
        """Chunks that are not the bundle's, and a description that says that they are."""
        await store(self._connection, f"$O.{MANIFESTS}.C.{nuid}", b"y" * LIMIT)
        await self.describe(nuid)

    async def body(self, body: bytes) -> None:
        """Anything in place of a description."""
        await store(self._connection, self._subject, body)


async def nuid_of(connection: Connection) -> str:
    """The subject of the chunks of the bundle."""
    objects = NatsObjects(connection, MANIFESTS)
    return next(one.nuid for one in await objects._candidates(NAME, LIMIT))


@pytest.fixture
async def planner(server: NatsServer) -> AsyncIterator[Connection]:
    async with connected(server, "planner") as connection:
        yield connection


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"garbage", b'{"deleted":true}', b'{"nuid":"abc","options":{"link":{}}}'],
    ids=["no body", "empty", "not JSON", "deleted", "a link"],
)
async def test_a_description_in_place_of_a_stored_one_takes_nothing_away(
    admin: Connection, operator: Connection, planner: Connection, body: bytes
) -> None:
    await Attack(planner).body(body)
    objects = NatsObjects(operator, MANIFESTS)

    assert await objects.get(NAME, LIMIT) == CONTENT
    assert await objects.digest(NAME) == NAME
    # an operator with the right to remove may, and the bundle can be stored again
    await call(admin, f"STREAM.PURGE.OBJ_{MANIFESTS}", {"filter": f"{DESCRIBES}*"})
    with pytest.raises(NotFoundError):
        await objects.get(NAME, LIMIT)
    await NatsObjects(planner, MANIFESTS).put(NAME, CONTENT)
    assert await objects.get(NAME, LIMIT) == CONTENT


async def test_other_content_under_the_digest_of_a_stored_bundle_takes_nothing_away(
    operator: Connection, planner: Connection
) -> None:
    attack, objects = Attack(planner), NatsObjects(operator, MANIFESTS)
    await store(planner, f"$O.{MANIFESTS}.C.{await nuid_of(operator)}", b"appended")
    for number in range(20):
        await attack.garbage(f"bad{number}")
    await attack.describe(await nuid_of(operator), size=CHUNK_BYTES)
    await attack.describe(await nuid_of(operator), size=1 << 40)

    assert await objects.get(NAME, LIMIT) == CONTENT
    with pytest.raises(ProtocolError):
        await NatsObjects(planner, MANIFESTS).put(NAME, b"y" * LIMIT)


async def test_a_digest_that_another_client_took_before_can_be_stored(
    admin: Connection, operator: Connection, planner: Connection
) -> None:
    await call(admin, f"STREAM.PURGE.OBJ_{MANIFESTS}")
    attack, objects = Attack(planner), NatsObjects(operator, MANIFESTS)
    for number in range(20):
        await attack.garbage(f"bad{number}")
    with pytest.raises(ProtocolError):
        await objects.get(NAME, LIMIT)

    await objects.put(NAME, CONTENT)
    assert await objects.get(NAME, LIMIT) == CONTENT

    for number in range(20, 40):
        await attack.garbage(f"bad{number}")
    assert await objects.get(NAME, LIMIT) == CONTENT
    await NatsObjects(admin, MANIFESTS).put(NAME, CONTENT)  # another operator stores the same
    assert await read_as_before(planner) == CONTENT


async def read_as_before(connection: Connection) -> bytes:
    """What an agent reads that takes the newest description only."""
    return await NatsObjects(connection, MANIFESTS)._read_newest(NAME, LIMIT)


async def test_collection_keeps_the_bundle_and_removes_what_was_stored_in_its_place(
    admin: Connection, operator: Connection, planner: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Attack(planner).garbage("bad1")
    await Attack(planner).body(b"garbage")
    monkeypatch.setattr("ccm_agent.bus.objects.UPLOAD_S", 0)

    await NatsObjects(admin, MANIFESTS).trim()

    assert await read_as_before(operator) == CONTENT
    assert await count_messages(admin) == 4


async def test_removing_a_bundle_keeps_chunks_that_another_one_needs(
    admin: Connection, operator: Connection, planner: Connection
) -> None:
    """A planner describes the chunks of another operator's bundle as those of an old one, and waits until that is removed."""
    other = hashlib.sha256(b"other").hexdigest()
    await Attack(planner, other).describe(await nuid_of(operator))
    collector = NatsObjects(admin, MANIFESTS)
    (listed_other,) = [one for one in await collector.all() if one.name == other]

    assert await collector.remove(other, listed_other.revision) is True

    assert await NatsObjects(operator, MANIFESTS).get(NAME, LIMIT) == CONTENT
    (listed_bundle,) = await collector.all()
    assert await collector.remove(NAME, listed_bundle.revision) is True
    assert await count_messages(admin) == 0


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("name", "chunks", "described", "refusal"),
    [
        pytest.param("site", [b"one"], b"one", "", id="named and whole"),
        pytest.param("site", [b"on"], b"one", "contains only 2 of its 3 bytes", id="too short"),
        pytest.param("site", [b"one", b"!"], b"one", "does not match its digest", id="too long"),
        pytest.param("site", [b"two"], b"one", "does not match its digest", id="other bytes"),
        pytest.param(digest_of(b"one"), [b"one"], b"one", "", id="a digest and whole"),
        pytest.param(
            digest_of(b"one"), [b"two"], b"two", "does not match this digest", id="a digest of others"
        ),
    ],
)
async def test_content_that_is_not_the_described_or_named_one_is_refused(
    admin: Connection, name: str, chunks: list[bytes], described: bytes, refusal: str
) -> None:
    for chunk in chunks:
        await store(admin, f"$O.{MANIFESTS}.C.abc1", chunk)
    await Attack(admin, name).describe(
        "abc1", len(described), digest=digest_field(hashlib.sha256(described).digest())
    )
    objects = NatsObjects(admin, MANIFESTS)

    if refusal:
        with pytest.raises(ProtocolError, match=refusal):
            await objects.get(name, LIMIT)
    else:
        assert await objects.get(name, LIMIT) == described


async def test_an_upload_that_another_client_writes_into_is_repeated(
    server: NatsServer, admin: Connection, planner: Connection
) -> None:
    await call(admin, f"STREAM.PURGE.OBJ_{MANIFESTS}")
    content = b"x" * (CHUNK_BYTES * 20)
    name = hashlib.sha256(content).hexdigest()

    class Watched(Interrupted):
        written_into: list[str]

        async def request(self, subject: str, *words: Any, **more: Any) -> Any:
            answer = await self._inner.request(subject, *words, **more)
            if subject.startswith(f"$O.{MANIFESTS}.C.") and not self.written_into:
                self.written_into.append(subject)
                await store(planner, subject, b"between")
            return answer

    async with connected(server, "op") as inner:
        watched = Watched(inner, "", asyncio.Event().wait)
        watched.written_into = []
        await NatsObjects(watched, MANIFESTS).put(name, content)

    assert watched.written_into
    assert await NatsObjects(planner, MANIFESTS).get(name, len(content)) == content
