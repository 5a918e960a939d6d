"""The Objects port."""

from __future__ import annotations

import asyncio
import hashlib
import random

import pytest

from ccm_agent.model.errors import BusUnavailableError, NotFoundError, ProtocolError

STORE = "CCM_MANIFESTS"
LIMIT = 64 << 20
CHUNK = 128 * 1024


@pytest.mark.parametrize(
    "size",
    [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 10 * CHUNK + 7],
    ids=["empty", "a byte", "almost a chunk", "a chunk", "a chunk and a byte", "many chunks"],
)
async def test_a_stored_object_is_read_back(broker, size) -> None:
    operator, node = await broker.connect("op"), await broker.connect("web1")
    content = random.Random(size).randbytes(size)

    await operator.objects(STORE).put("site", content)

    assert await node.objects(STORE).get("site", LIMIT) == content
    assert await node.objects(STORE).digest("site") == hashlib.sha256(content).hexdigest()


async def test_an_object_that_was_never_put_is_missing(broker) -> None:
    objects = (await broker.connect("web1")).objects(STORE)

    assert await objects.digest("nothing") is None
    with pytest.raises(NotFoundError):
        await objects.get("nothing", LIMIT)


async def test_an_object_larger_than_its_reader_takes_is_refused(broker) -> None:
    objects = (await broker.connect("web1")).objects(STORE)
    await objects.put("site", b"x" * 1000)

    assert await objects.get("site", 1000) == b"x" * 1000
    with pytest.raises(ProtocolError):
        await objects.get("site", 999)


async def test_a_newer_object_of_the_same_name_replaces_it(broker) -> None:
    objects = (await broker.connect("op")).objects(STORE)
    await objects.put("site", b"one" * CHUNK)

    await objects.put("site", b"two")

    assert await objects.get("site", LIMIT) == b"two"


async def test_all_objects_are_listed_with_digest_and_size_oldest_first(broker) -> None:
    objects = (await broker.connect("op")).objects(STORE)
    bundle = b"seven" * CHUNK
    contents = {"dir/site.tar.gz": b"one", hashlib.sha256(bundle).hexdigest(): bundle, "empty": b""}

    for name, content in contents.items():
        await objects.put(name, content)

    assert [(one.name, one.digest, one.size_bytes) for one in await objects.all()] == [
        (name, hashlib.sha256(content).hexdigest(), len(content)) for name, content in contents.items()
    ]


async def test_an_object_that_is_stored_again_is_renewed(broker) -> None:
    objects = (await broker.connect("op")).objects(STORE)
    await objects.put("site", b"one")
    await objects.put("other", b"two")
    before = {one.name: one for one in await objects.all()}

    await objects.put("site", b"one")

    after = await objects.all()
    assert [one.name for one in after] == ["other", "site"]
    assert after[1].revision > before["site"].revision
    assert after[1].time > before["site"].time
    assert await objects.get("site", LIMIT) == b"one"


async def test_an_object_is_removed_with_its_bytes(broker) -> None:
    objects = (await broker.connect("op")).objects(STORE)
    await objects.put("site", b"one" * CHUNK)
    await objects.put("site", b"one" * CHUNK)
    await objects.put("other", b"two")
    revisions = {one.name: one.revision for one in await objects.all()}

    assert await objects.remove("site", revisions["site"]) is True
    assert await objects.remove("site", revisions["site"]) is False

    assert [one.name for one in await objects.all()] == ["other"]
    assert await objects.digest("site") is None
    with pytest.raises(NotFoundError):
        await objects.get("site", LIMIT)
    await objects.put("site", b"one" * CHUNK)
    assert await objects.get("site", LIMIT) == b"one" * CHUNK


async def test_an_object_that_was_stored_again_is_not_removed(broker) -> None:
    objects = (await broker.connect("op")).objects(STORE)
    await objects.put("site", b"one")
    listed = (await objects.all())[0]
    await objects.put("site", b"one")

    assert await objects.remove("site", listed.revision) is False

    assert await objects.get("site", LIMIT) == b"one"


async def test_trimming_keeps_each_object(broker) -> None:
    objects = (await broker.connect("op")).objects(STORE)
    for _ in range(3):
        await objects.put("site", b"one")
        await objects.put("other", b"two")
    before = await objects.all()

    await objects.trim()

    assert await objects.all() == before
    assert [await objects.get(name, LIMIT) for name in ("site", "other")] == [b"one", b"two"]


async def test_a_digest_names_no_other_content(broker) -> None:
    objects = (await broker.connect("op")).objects(STORE)
    digest = hashlib.sha256(b"one").hexdigest()

    with pytest.raises(ProtocolError):
        await objects.put(digest, b"two")
    await objects.put(digest, b"one")

    assert await objects.get(digest, LIMIT) == b"one"


async def test_names_may_be_any_text(broker) -> None:
    objects = (await broker.connect("op")).objects(STORE)
    names = ["a b", "a.b", "*", ">", "é", "dir/site.tar.gz", "0" * 63]

    for name in names:
        await objects.put(name, name.encode())

    assert [await objects.get(name, LIMIT) for name in names] == [name.encode() for name in names]


async def test_watchers_are_notified_when_an_object_changes(broker) -> None:
    operator, node = await broker.connect("op"), await broker.connect("web1")
    await operator.objects(STORE).put("site a/b", b"one")
    heard: asyncio.Queue[int] = asyncio.Queue()
    stop = await node.objects(STORE).watch_changes("site a/b", heard.put_nowait)

    await operator.objects(STORE).put("another", b"one")
    await operator.objects(STORE).put("site a/b", b"two")
    async with asyncio.timeout(10):
        revision = await heard.get()

    assert await node.objects(STORE).digest("site a/b", revision) == hashlib.sha256(b"two").hexdigest()
    await stop()
    await operator.objects(STORE).put("site a/b", b"three")
    assert heard.empty()


async def test_without_a_broker_every_call_raises(broker) -> None:
    objects = (await broker.connect("op")).objects(STORE)
    await broker.stop()

    for call in (objects.get("site", LIMIT), objects.put("site", b"x"), objects.digest("site")):
        with pytest.raises(BusUnavailableError):
            await call
