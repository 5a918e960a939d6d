"""
Nodes that come back while a run is in progress.

A node writes its presence when it starts, and with each heartbeat. A presence that is newer than the request proves that an agent
is running now. The agent may have been offline when the request was sent.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ccm_ctl.fleet.ports import Fleet

LOOK_S = 2.0
"""The interval, in seconds, at which presences are read."""

LOOKED_AT = 400
"""Presences per read. With more nodes, the next read continues with the rest."""

TIMES = 3
"""
The maximum number of times that a node can be found in one run. A node that is present but never answers must not be asked
forever.
"""


class ReturningNodes:
    """
    Finds nodes that have come back.

    Args:
        fleet: The fleet, whose presences are read.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._bucket = fleet.nodes
        self._sent: datetime | None = None
        self._now = 0.0
        self._times: Counter[str] = Counter()
        self._looked_at = float("-inf")
        self._next = 0

    def begin(self, sent: datetime, now: float) -> None:
        """
        Record that the run's first request has been sent.

        Args:
            sent: The time by the broker's clock.
            now: The same moment, in monotonic seconds.
        """
        self._sent, self._now = sent, now

    async def find(self, asked: dict[str, float]) -> list[str]:
        """
        Return the nodes that are present now, and were not present when the request was sent to them.

        Args:
            asked: When the request was sent to each, in monotonic seconds. 0: it was not sent, because the node was offline.

        Raises:
            BusUnavailableError: The broker cannot be reached.
        """
        now = asyncio.get_running_loop().time()
        if not asked or now - self._looked_at < LOOK_S:
            return []
        self._looked_at = now
        names = self._part(sorted(name for name in asked if self._times[name] < TIMES))
        found = []
        for entry in await self._bucket.matching([f"presence.{name}" for name in names]):
            name = entry.key.removeprefix("presence.")
            if name in asked and self._is_newer(entry.created, asked[name]):
                found.append(name)
        self._times.update(found)
        return sorted(found)

    def _part(self, names: Sequence[str]) -> Sequence[str]:
        begin = self._next if self._next < len(names) else 0
        self._next = begin + LOOKED_AT
        return names[begin : begin + LOOKED_AT]

    def _is_newer(self, created: datetime, asked: float) -> bool:
        if not asked:
            return True
        return self._sent is not None and created > self._sent + timedelta(
            seconds=max(0.0, asked - self._now)
        )
