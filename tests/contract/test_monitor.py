"""`/metrics` on a real port of this host."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from ccm_agent.agent.node import metrics_server as monitor_module
from ccm_agent.agent.node.metrics_server import CONNECTIONS, MetricsServer
from ccm_agent.metrics.registry import CONTENT_TYPE, Counter, MetricsRegistry
from ccm_agent.testing.nats_server import free_ports

LOOPBACK = "127.0.0.1"


def counted() -> MetricsRegistry:
    registry = MetricsRegistry()
    counter = Counter("ccm_things_total", "Things", ("name",))
    counter.add('a "b"\n')
    registry.add(counter)
    return registry


@asynccontextmanager
async def served(monitor: MetricsServer) -> AsyncIterator[str]:
    task = asyncio.create_task(monitor.run(), name="monitor")
    try:
        async with asyncio.timeout(20):
            address, port = await monitor.served
        yield f"http://{address}:{port}"
    finally:
        task.cancel()
        await asyncio.wait([task])


async def asked(method: str, url: str) -> tuple[int, str, str]:
    """Status, content type and text of an answer."""
    async with aiohttp.ClientSession() as session, session.request(method, url) as answer:
        return answer.status, answer.headers["Content-Type"], await answer.text()


async def test_the_numbers_are_served_as_text_that_prometheus_reads() -> None:
    async with served(MetricsServer(counted(), LOOPBACK, 0)) as url:
        status, kind, text = await asked("GET", f"{url}/metrics")

    assert (status, kind) == (200, CONTENT_TYPE)
    assert text == (
        "# HELP ccm_things_total Things\n"
        "# TYPE ccm_things_total counter\n"
        'ccm_things_total{name="a \\"b\\"\\n"} 1\n'
    )


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/", 404), ("POST", "/metrics", 405)])
async def test_there_is_nothing_else_to_ask_for(method: str, path: str, status: int) -> None:
    async with served(MetricsServer(counted(), LOOPBACK, 0)) as url:
        assert (await asked(method, f"{url}{path}"))[0] == status


async def test_connections_that_ask_for_nothing_take_no_more_than_a_few_files() -> None:
    async with served(MetricsServer(counted(), LOOPBACK, 0)) as url:
        port = int(url.rpartition(":")[2])
        waiting = [await asyncio.open_connection(LOOPBACK, port) for _ in range(CONNECTIONS)]

        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        async with asyncio.timeout(20):
            assert await reader.read() == b""

        for _, one in (*waiting, (reader, writer)):
            one.close()
            await one.wait_closed()
        async with asyncio.timeout(20):
            while await status_of(url) != 200:
                pass  # the server has yet to see that the others are gone


async def status_of(url: str) -> int:
    """Status of an answer; 0 without one."""
    try:
        return (await asked("GET", f"{url}/metrics"))[0]
    except aiohttp.ClientError:
        return 0


async def test_a_connection_that_asks_for_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor_module, "CONNECTION_S", 0.05)
    async with served(MetricsServer(counted(), LOOPBACK, 0)) as url:
        reader, writer = await asyncio.open_connection(LOOPBACK, int(url.rpartition(":")[2]))
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_a_port_that_is_taken_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    (port,) = free_ports(1)
    with socket.socket() as other:
        other.bind((LOOPBACK, port))
        other.listen()
        monitor = MetricsServer(counted(), LOOPBACK, port, retry_s=0.01)
        task = asyncio.create_task(monitor.run(), name="monitor")
        async with asyncio.timeout(20):
            while not caplog.records:  # noqa: ASYNC110 - a log record has no event to wait for
                await asyncio.sleep(0.01)
    async with asyncio.timeout(20):
        assert await monitor.served == (LOOPBACK, port)
    task.cancel()
    await asyncio.wait([task])
    assert "metrics are not served" in caplog.text


async def test_an_invalid_address_does_not_end_the_agent(caplog: pytest.LogCaptureFixture) -> None:
    task = asyncio.create_task(MetricsServer(counted(), "no..host", 0).run(), name="monitor")
    async with asyncio.timeout(20):
        while not caplog.records:  # noqa: ASYNC110 - a log record has no event to wait for
            await asyncio.sleep(0.01)

    assert not task.done()
    task.cancel()
    await asyncio.wait([task])
    assert "metrics are not served" in caplog.text


@pytest.mark.parametrize(
    ("address", "is_hinted"), [(LOOPBACK, True), ("localhost", True), ("::1", True), ("0.0.0.0", False)]
)
async def test_the_log_names_the_key_that_serves_other_hosts(
    address: str, is_hinted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async with served(MetricsServer(counted(), address, 0)):
        pass

    assert any("monitor_address" in record.message for record in caplog.records) is is_hinted
