"""
Outages: the time until a page of the dashboard is correct after the broker was down, the dashboard restarted, or the page
slept.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from bench.dashboard import event, fill, find_chromium, served
from bench.fleet import initialized_fleet
from bench.measure import Line
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.events import NatsEvents
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import TRANSACTION_EVENT
from ccm_agent.testing.nats_server import NatsServer

NODES = 200
AWAY_S = float(os.environ.get("BENCH_AWAY_S", "60"))
LIMIT_S = 3.0
WITHIN_MS = 120_000


def measure() -> list[Line]:
    """Return the seconds from the end of each outage until the page shows the events since."""
    chromium = find_chromium()
    with initialized_fleet() as (server, environ, home):
        asyncio.run(fill(server.url, NODES))
        with served(environ, home) as (process, printed):
            port = int(printed.partition("/#")[0].rpartition(":")[2])
            process.terminate()
            process.wait()
        taken = asyncio.run(drive(server, chromium, environ, home, port))
    return [Line(f"a page is right after {name}", took, "s", LIMIT_S) for name, took in taken.items()]


async def drive(
    server: NatsServer, chromium: str, environ: dict[str, str], home: Path, port: int
) -> dict[str, float]:
    """Measure one page with three outages, one after the other."""
    from playwright.async_api import async_playwright

    taken: dict[str, float] = {}
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = await browser.new_page()
        with served(environ, home, port) as (_, printed):
            await page.goto(printed)
            await page.wait_for_selector(".heat-map .body [role=row]")

            async def broker_back() -> None:
                await asyncio.to_thread(server.start)

            async def awake() -> None:
                await page.context.set_offline(False)

            await page.context.set_offline(True)
            await publish(server.url, "/slept")
            taken[f"{AWAY_S:g} s without its connection"] = await seconds_until(page, "/slept", awake)
            await asyncio.to_thread(server.stop)
            taken[f"{AWAY_S:g} s without the broker"] = await seconds_until(
                page, "/gone", broker_back, lambda: publish(server.url, "/gone")
            )
        await publish(server.url, "/restarted")

        async def restart() -> None:
            stack.enter_context(served(environ, home, port))

        with ExitStack() as stack:
            taken[f"a restart after {AWAY_S:g} s"] = await seconds_until(page, "/restarted", restart)
        await browser.close()
    return taken


async def seconds_until(
    page: Any,
    text: str,
    restore: Callable[[], Awaitable[None]],
    then: Callable[[], Awaitable[None]] | None = None,
) -> float:
    """Wait for the duration of the outage, restore, and measure until the page is live and shows an event."""
    await asyncio.sleep(AWAY_S)
    await restore()
    began = time.perf_counter()
    if then is not None:
        await then()
    await page.locator(".events .text").filter(has_text=text).first.wait_for(timeout=WITHIN_MS)
    await page.locator(".connection").filter(has_text="live").wait_for(timeout=WITHIN_MS)
    return time.perf_counter() - began


async def publish(url: str, name: str) -> None:
    """Publish one event about a file with this name."""
    async with Connection(settings_for(url)) as connection:
        await connection.connect_now()
        node, run = "node1", new_id()
        said = msgspec.structs.replace(event(node, run), name=name)
        subject = event_subject(TRANSACTION_EVENT, node, run)
        await NatsEvents(connection).publish(subject, new_id(), msgspec.json.encode(said))
