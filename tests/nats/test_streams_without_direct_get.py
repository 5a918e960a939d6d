"""Streams that do not allow direct gets, as Choria CCM and other programs create them, are read as the others are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.bus import leader_reads
from ccm_agent.bus.access.permissions import Permissions
from ccm_agent.bus.connection.broker_errors import NoRespondersError
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.layout import LayoutOptions
from ccm_agent.bus.objects import NatsObjects
from ccm_agent.bus.streams import call, read_all, read_last, read_newest
from ccm_agent.model.errors import BusUnavailableError
from ccm_agent.registration.entries import RegistrationQuery
from ccm_agent.registration.lookup import find
from ccm_agent.registration.publish import Publisher
from ccm_agent.testing.nats_server import NatsServer
from tests.support.nats_server import (
    connected,
    one_account_configuration,
    prepare,
    running_server,
    secured_server,
    settings,
)
from tests.support.registrations import an_entry

pytestmark = pytest.mark.nats


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Connection]:
    with running_server(tmp_path) as server:
        await prepare(server, LayoutOptions())
        async with Connection(settings(server, "op")) as connection:
            await connection.connect_now()
            yield connection


async def create(connection: Connection, name: str, subjects: list[str], **others: Any) -> None:
    config = {"name": name, "subjects": subjects, "storage": "file", "num_replicas": 1, "allow_direct": False}
    await call(connection, f"STREAM.CREATE.{name}", config | others)


async def bucket(connection: Connection, name: str) -> NatsKeyValue:
    """A bucket as a client without direct gets creates it."""
    await create(
        connection,
        f"KV_{name}",
        [f"$KV.{name}.>"],
        max_msgs_per_subject=5,
        allow_rollup_hdrs=True,
        deny_delete=True,
    )
    return NatsKeyValue(connection, name)


async def test_a_bucket_is_read(broker: Connection) -> None:
    site = await bucket(broker, "site")
    await site.put("common", b"first")
    revision = await site.put("common", b"second")
    await site.put("role.web", b"web")
    await site.put("gone", b"x")
    await site.delete("gone")

    entry = await site.get("common")

    assert entry is not None
    assert (entry.value, entry.revision) == (b"second", revision)
    assert abs((entry.created - datetime.now(UTC)).total_seconds()) < 60
    assert await site.get("gone") is None
    assert await site.get("never") is None
    assert await site.keys() == ["common", "role.web"]
    assert [one.value for one in await site.history("common")] == [b"first", b"second"]
    assert (await site.get("common", at_least=revision)) == entry
    older = await site.as_of("common", revision - 1)
    assert older is not None
    assert older.value == b"first"


async def test_many_messages_are_read_page_by_page(
    broker: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_reads, "PAGE_MESSAGES", 3)
    site = await bucket(broker, "site")
    for number in range(7):
        await site.put(f"k{number}", str(number).encode())

    found = [one.body async for one in read_all(broker, "KV_site", "$KV.site.>")]
    newest = [one.body for one in await read_newest(broker, "KV_site", ["$KV.site.>"])]

    assert found == newest == [str(number).encode() for number in range(7)]


async def test_an_object_store_is_read(broker: Connection) -> None:
    await create(broker, "OBJ_files", ["$O.files.C.>", "$O.files.M.>"], allow_rollup_hdrs=True)
    files = NatsObjects(broker, "files")
    content = bytes(range(256)) * 2000  # several chunks
    await files.put("a/b", content)

    assert await files.get("a/b", 1 << 20) == content
    assert [one.name for one in await files.all()] == ["a/b"]


async def test_registrations_of_a_stream_of_the_reference_are_read(broker: Connection) -> None:
    await call(broker, "STREAM.DELETE.REGISTRATION")
    await create(
        broker,
        "REGISTRATION",
        ["choria.ccm.registration.v1.>"],
        max_msgs_per_subject=1,
        allow_rollup_hdrs=True,
        allow_msg_ttl=True,
        max_age=60_000_000_000,
    )
    publisher = Publisher(broker, "jetstream")
    for number in (2, 1):
        await publisher.publish(an_entry(number))

    assert await find(broker, "REGISTRATION", RegistrationQuery()) == [an_entry(1), an_entry(2)]
    assert await find(broker, "REGISTRATION", RegistrationQuery("prod", "http", "web", "10.0.0.2")) == [
        an_entry(2)
    ]


async def test_a_copied_message_is_known_as_a_copy(broker: Connection) -> None:
    site = await bucket(broker, "site")
    await broker.request("$KV.CCM_DATA.planted", b"x")
    question = "$JS.API.DIRECT.GET.KV_CCM_DATA.$KV.CCM_DATA.planted"
    await broker.publish(question, b"", reply="$KV.site.planted", confirm=True)
    await broker.request(question)  # answered after the copy was sent
    await site.put("own", b"y")

    copied = await read_last(broker, "KV_site", "$KV.site.planted")
    own = await read_last(broker, "KV_site", "$KV.site.own")

    assert copied is not None
    assert own is not None
    assert (copied.copied, own.copied) == (True, False)


async def test_a_bucket_that_does_not_exist_is_reported_as_before(broker: Connection) -> None:
    with pytest.raises(NoRespondersError) as caught:
        await NatsKeyValue(broker, "none").get("common")

    assert str(caught.value).startswith("the broker has no bucket none (create it with `nats kv add none`)")


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[NatsServer]:
    """A broker with a user who may read by direct get only."""
    direct = Permissions(account="CCM", publish=("$JS.API.DIRECT.GET.>",), subscribe=(">",))
    full = Permissions(account="CCM", publish=(">",), subscribe=(">",))
    users = {"admin": full, "reader": direct}
    with secured_server(tmp_path, one_account_configuration(users)) as server:
        yield server


async def test_the_cause_is_named_where_a_user_may_read_only_directly(limited: NatsServer) -> None:
    async with connected(limited, "admin") as admin, connected(limited, "reader") as reader:
        await (await bucket(admin, "site")).put("common", b"x")

        allowed = await NatsKeyValue(admin, "site").get("common")
        with pytest.raises(BusUnavailableError) as caught:
            await NatsKeyValue(reader, "site").get("common")

    assert allowed is not None
    assert allowed.value == b"x"
    assert str(caught.value) == (
        "the broker has no bucket site, or it does not allow direct reads, and this user may not read it otherwise; "
        "allow them with `nats stream edit KV_site --allow-direct`"
    )
