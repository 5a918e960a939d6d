"""A clock that advances only when a test advances it."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class FakeClock:
    """A `Clock` that a test controls."""

    def __init__(self, now: datetime = NOON) -> None:
        self._now = now
        self._monotonic = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> datetime:
        """See `Clock.now`."""
        return self._now

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._monotonic + seconds, self._count, future))
        await future

    @property
    def sleepers(self) -> int:
        """Return the number of sleeping tasks."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Advance the time. Wake the tasks whose sleep has ended, in order."""
        end = self._monotonic + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, future = heapq.heappop(self._sleepers)
            self._pass(due - self._monotonic)
            if not future.done():
                future.set_result(None)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        self._pass(end - self._monotonic)

    def jump(self, seconds: float) -> None:
        """Change the wall clock, as a time server does. The monotonic clock does not change."""
        self._now += timedelta(seconds=seconds)

    def _pass(self, seconds: float) -> None:
        self._monotonic += seconds
        self._now += timedelta(seconds=seconds)
