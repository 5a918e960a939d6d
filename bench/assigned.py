"""
Nodes with an assignment, several per process: `python -m bench.assigned ours|bare URL FIRST COUNT`.

`ours` are real agents on real connections, with a replaced engine. `bare` are nats-py programs with a subscription to the
notification. They read the key with a direct get and do nothing with it. Each process prints `ready` when all of its nodes are
subscribed, and `NUMBER TIME` when the last of them has received a revision. It ends when its input ends.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from bench.simulated import MEMORY, ended, serve_bare, simulated_agent

BUCKET = "CCM_ASSIGNMENTS"
KEY = "all.site"
PAUSE_S = 20.0
"""Nodes begin to apply within this time. On two cores, thousands of nodes would delay each other's messages."""


class Numbered(msgspec.Struct):
    """The field of a document that is used here."""

    number: int


class Tally:
    """Counts the nodes that have received each revision, and prints a line when all have."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._given: Counter[int] = Counter()

    def given(self, number: int) -> None:
        """Count one more node."""
        self._given[number] += 1
        if self._given[number] == self._nodes:
            print(f"{number} {time.time():.6f}", flush=True)


class Watched:
    """The bucket of one agent. The agent has received a revision when a read returns it."""

    def __init__(self, inner: Any, tally: Tally) -> None:
        self._inner = inner
        self._tally = tally
        self._newest = 0

    async def matching(self, patterns: Sequence[str], **options: Any) -> Any:
        entries = await self._inner.matching(patterns, **options)
        for entry in entries:
            number = msgspec.json.decode(entry.value, type=Numbered).number
            if number > self._newest:
                self._newest = number
                self._tally.given(number)
        return entries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def ours(url: str, first: int, count: int) -> None:
    """Run real agents with a replaced engine."""
    tally, stop, up = Tally(count), asyncio.Event(), 0

    def one_more() -> None:
        nonlocal up
        up += 1
        if up == count:
            print("ready", flush=True)

    def watched(bucket: Callable[[str], Any]) -> Callable[[str], Any]:
        return lambda name: Watched(bucket(name), tally) if name == BUCKET else bucket(name)

    with tempfile.TemporaryDirectory(prefix="bench-", dir=MEMORY) as folder:
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            for i in range(first, first + count):
                node = f"node{i:05}"
                agent = await simulated_agent(
                    url, node, Path(folder), stack, change_pause_s=PAUSE_S, bucket=watched
                )
                group.create_task(agent.run(stop, one_more, lambda: None), name=node)
            await ended()
            stop.set()


async def bare(url: str, first: int, count: int) -> None:
    """Wait for a notification and make a direct get, without any further work."""
    import nats

    tally = Tally(count)
    question = f"$JS.API.DIRECT.GET.KV_{BUCKET}.$KV.{BUCKET}.{KEY}"

    async def connect(node: str) -> Any:
        client = await nats.connect(url, pending_size=0, inbox_prefix=f"_INBOX_{node}")

        async def poked(_message: Any) -> None:
            answer = await client.request(question, b"", timeout=60)
            tally.given(msgspec.json.decode(answer.data, type=Numbered).number)

        await client.subscribe(f"choria.ccm.poke.{BUCKET}.all.*", cb=poked)
        await client.flush()
        return client

    await serve_bare(connect, first, count)


if __name__ == "__main__":
    kind, address, *numbers = sys.argv[1:]
    programs = {"ours": ours, "bare": bare}
    asyncio.run(programs[kind](address, *map(int, numbers)))
