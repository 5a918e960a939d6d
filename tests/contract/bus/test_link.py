"""The Link port."""

from __future__ import annotations

import asyncio

from tests.support.nats_server import WAIT_S, Heard


async def test_a_link_reports_whether_the_broker_is_connected(broker) -> None:
    link = (await broker.connect("web1")).link
    assert link.connected

    await broker.stop()
    assert not link.connected

    await broker.start()
    assert link.connected


async def test_a_link_reports_since_when(broker) -> None:
    link = (await broker.connect("web1")).link
    first = link.since

    await broker.stop()
    second = link.since
    await broker.start()

    assert first < second < link.since


async def test_waiters_for_the_broker_continues_when_it_is_back(broker) -> None:
    link = (await broker.connect("web1")).link
    await broker.stop()

    waiting = asyncio.ensure_future(link.wait_connected())
    await asyncio.sleep(0)
    assert not waiting.done()
    await broker.start()

    async with asyncio.timeout(WAIT_S):
        await waiting


async def test_hooks_are_called_on_each_return_until_they_are_removed(broker) -> None:
    link = (await broker.connect("web1")).link
    one, other = Heard(), Heard()
    remove = link.on_connect(lambda: one("back"))
    link.on_connect(lambda: other("back"))

    await broker.stop()
    await broker.start()
    await other.wait(1)
    remove()
    await broker.stop()
    await broker.start()
    await other.wait(2)

    assert one.items == ["back"]


async def test_a_hook_finds_subscriptions_in_place(broker) -> None:
    ports = await broker.connect("web1")
    bucket = ports.bucket("CCM_DATA")
    heard, writing = Heard(), []
    await bucket.watch_changes("common", heard)
    ports.link.on_connect(lambda: writing.append(asyncio.ensure_future(bucket.put("common", b"one"))))

    await broker.stop()
    await broker.start()

    assert await heard.wait(1) == [("common", 1)]
    await writing[0]
