"""
One ticker for everything that a node does now and then, each node at moments of its own.

The moments of a thing are spread over its whole interval by the name of the node: a fleet that starts at once works in turns.
They follow the monotonic clock: a wall clock that is set neither skips one nor repeats one.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable

from msgspec import Struct

from ccm_agent.model.ports import Clock


class _Entry(Struct, kw_only=True):
    name: str
    interval_s: float
    due: float
    tick: Callable[[], None]


class Ticker:
    """The ticker of one agent."""

    def __init__(self, node: str, clock: Clock) -> None:
        """Nothing ticks yet."""
        self._node = node
        self._clock = clock
        self._entries: list[_Entry] = []
        self._changed = asyncio.Event()

    def every(self, interval_s: float, name: str, tick: Callable[[], None]) -> None:
        """
        Call something on each interval, first after a part of it that this node and this name have to themselves.

        Args:
            interval_s: 0 is never.
            name: Of the thing; two things of one node are spread too.
            tick: Only queues.
        """
        if interval_s <= 0:
            return
        first = self._clock.monotonic() + interval_s * splay(self._node, name)
        self._entries.append(_Entry(name=name, interval_s=interval_s, due=first, tick=tick))
        self._changed.set()

    def clear(self) -> None:
        """Forget everything that was to be called."""
        self._entries.clear()
        self._changed.set()

    def rests(self) -> dict[str, float]:
        """In how many seconds each thing is called next, by name."""
        now = self._clock.monotonic()
        return {entry.name: max(entry.due - now, 0.0) for entry in self._entries}

    async def run(self) -> None:
        """Tick, for ever."""
        while True:
            self._changed.clear()
            now = self._clock.monotonic()
            for entry in [one for one in self._entries if one.due <= now]:
                # after a machine has slept, what it missed is done once
                late_s = (now - entry.due) % entry.interval_s
                entry.due = now - late_s + entry.interval_s
                entry.tick()
            await self._wait(min((one.due for one in self._entries), default=None))

    async def _wait(self, due: float | None) -> None:
        """Until then, or until something is added."""
        changed = asyncio.create_task(self._changed.wait(), name="scheduler:changed")
        tasks: set[asyncio.Task[object]] = {changed}
        if due is not None:
            delay_s = max(due - self._clock.monotonic(), 0)
            tasks.add(asyncio.create_task(self._clock.sleep(delay_s), name="scheduler:sleep"))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


def splay(node: str, name: str) -> float:
    """A part of the interval, from 0 up to 1, that is the same each time and spread evenly over nodes."""
    digest = hashlib.sha256(f"{node}\0{name}".encode()).digest()
    return float(int.from_bytes(digest[:6], "big")) / float(1 << 48)
