"""The dashboard with 2,000 nodes, in a real Chromium: first paint, frames while events arrive, and the cost of 20 browsers."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.fleet import initialized_fleet
from bench.measure import Line
from bench.node_processes import cpu_s
from bench.simulated import enter_inventory
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.events import NatsEvents
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import TRANSACTION_EVENT, TransactionEvent

NODES = 2000
BROWSERS = 20
RATE = 100
SECONDS = int(os.environ.get("BENCH_SECONDS", "600"))
"""The duration, ten minutes by default. BENCH_SECONDS=30 gives a first impression."""


def measure() -> list[Line]:
    """Measure one dashboard."""
    chromium = find_chromium()
    with initialized_fleet() as (server, environ, home):
        asyncio.run(fill(server.url))
        with served(environ, home) as (process, address):
            return asyncio.run(drive(server.url, chromium, address, process.pid))


def find_chromium() -> str:
    """Return the path of the browser."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise RuntimeError("no chromium; on Debian: apt-get install chromium")
    return chromium


@contextmanager
def served(
    environ: dict[str, str], folder: Path, port: int = 0
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run a dashboard, and return its one-time URL."""
    printed = folder / "address"
    with printed.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "ccm_ctl", "dashboard", "--port", str(port)], env=environ, stdout=out
        )
    try:
        while not printed.read_text().strip():
            time.sleep(0.05)
        yield process, printed.read_text().strip()
    finally:
        process.terminate()
        process.wait()


async def fill(url: str, count: int = NODES) -> None:
    """Write records of nodes, as agents write them."""
    names = [f"node{number}" for number in range(count)]
    await enter_inventory(url, names, lambda number: {"role": f"role{number % 10}", "rack": number % 40})


async def drive(url: str, chromium: str, printed: str, pid: int) -> list[Line]:
    """Measure one Chromium and BROWSERS readers, while RATE events per second arrive."""
    from playwright.async_api import async_playwright

    address = printed.partition("/#")[0]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = await browser.new_page()
        await page.goto(printed)
        await page.wait_for_selector(".heat-map .body [role=row]")
        began = time.perf_counter()
        await page.reload()
        await page.wait_for_selector(".heat-map .body [role=row]")
        paint_s = time.perf_counter() - began
        [cookie] = await page.context.cookies()
        heap_before = await heap(page)
        cpu_before, load_began = cpu_s(pid), time.perf_counter()
        frames = asyncio.create_task(page.evaluate(FRAMES, SECONDS * 1000), name="frames")
        sent, counted = await load(url, address, {cookie["name"]: cookie["value"]})
        took_s = time.perf_counter() - load_began
        cpu = (cpu_s(pid) - cpu_before) / took_s
        per_second, longest_ms = await frames
        grown = (await heap(page) - heap_before) / 2**20
        await browser.close()
    wrong = sum(numbers != sent for numbers in counted)
    return [
        Line(f"first rows of {NODES} nodes", paint_s, "s", 1.0),
        Line(
            f"browsers of {BROWSERS} that missed or doubled one of {len(sent)} events",
            wrong,
            "",
            0,
            f"within {took_s:.0f} s",
        ),
        Line(
            f"frames a second that are missing from 60 at {RATE} events a second",
            max(0.0, 60 - per_second),
            "",
            3,
        ),
        Line("longest frame", longest_ms, "ms"),
        Line("memory of the dashboard", rss_mib(pid), "MiB", 150),
        Line("share of one core", cpu * 100, "%", 60, "CPU time of the process"),
        Line("growth of the page's heap", grown, "MiB"),
    ]


FRAMES = """(duration) => new Promise((done) => {
  const begin = performance.now(); let last = begin, count = 0, longest = 0;
  const frame = (now) => {
    count += 1; longest = Math.max(longest, now - last); last = now;
    if (now - begin < duration) requestAnimationFrame(frame); else done([count / ((now - begin) / 1000), longest]);
  };
  requestAnimationFrame(frame);
})"""


async def heap(page: Any) -> float:
    """Return the size of the page's heap in bytes after a garbage collection."""
    session = await page.context.new_cdp_session(page)
    await session.send("HeapProfiler.collectGarbage")
    return float((await session.send("Runtime.getHeapUsage"))["usedSize"])


async def load(url: str, address: str, cookies: dict[str, str]) -> tuple[list[int], list[list[int]]]:
    """Publish events while browsers read. Returns the stored sequences, and those that each browser received."""
    import aiohttp

    counted: list[list[int]] = [[] for _ in range(BROWSERS)]
    no_limit = aiohttp.ClientTimeout(total=None)  # the default is five minutes
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), timeout=no_limit) as http:
        readers = [asyncio.create_task(read(http, address, cookies, one), name="browser") for one in counted]
        await asyncio.sleep(1)
        sent = await publish(url)
        await asyncio.sleep(2)  # events in transit arrive within this time; later ones are late
        for reader in readers:
            reader.cancel()
        ended = await asyncio.gather(*readers, return_exceptions=True)
    if failed := [one for one in ended if isinstance(one, Exception)]:
        raise failed[0]
    return sent, counted


async def read(http: Any, address: str, cookies: dict[str, str], found: list[int]) -> None:
    """Read the sequences of events, as a browser does."""
    header = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
    async with http.get(f"{address}/api/stream?after=0", headers=header) as answer:
        if answer.status != 200:
            raise RuntimeError(f"the stream answered {answer.status}")
        async for line in answer.content:
            if line.startswith(b"data: ") and b'"id":' in line:
                found.append(int(json.loads(line[6:])["id"]))


async def publish(url: str) -> list[int]:
    """Publish RATE events per second for SECONDS, without waiting for acknowledgments, and return their sequences."""
    sequences = []
    async with Connection(settings_for(url)) as connection:
        await connection.connect_now()
        events, began = NatsEvents(connection), time.monotonic()

        async def one(number: int) -> None:
            node, run = f"node{number % NODES}", new_id()
            subject = event_subject(TRANSACTION_EVENT, node, run)
            stored = await events.publish(subject, new_id(), msgspec.json.encode(event(node, run)))
            sequences.append(stored.sequence)

        async with asyncio.TaskGroup() as group:
            for number in range(RATE * SECONDS):
                await asyncio.sleep(max(0.0, began + number / RATE - time.monotonic()))
                group.create_task(one(number), name="publish")
    return sorted(sequences)


def event(node: str, run: str) -> TransactionEvent:
    """Return an event about a changed file."""
    from datetime import UTC, datetime

    return TransactionEvent(
        protocol=TRANSACTION_EVENT, event_id=new_id(), timestamp=datetime.now(UTC), type="file", provider="posix",
        name="/etc/motd", requested_ensure="present", final_ensure="present", duration=1_000_000, properties={}, status={},
        error=[], changed=True, refreshed=False, failed=False, skipped=False, noop=False, unmet_requirements=[], node=node,
        run=run, number=2,
    )  # fmt: skip


def rss_mib(pid: int) -> float:
    """Return the peak memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024
