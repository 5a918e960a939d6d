"""
Nodes that come back while a run is in progress.

A node writes its presence when it starts, and with each heartbeat. A presence that is newer than the request proves that an agent
is there now, which may not have been there when the request was sent.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ccm_ctl.fleet.ports import Fleet

LOOK_S = 2.0
"""How often presences are read."""

LOOKED_AT = 400
"""Of how many nodes at once; of more nodes the next ones are read the next time."""


class ReturningNodes:
    """
    Finds nodes that have come back.

    Args:
        fleet: The bus.
        sent: When the run's first request was sent, by the broker's clock.
        now: The same moment, in monotonic seconds.
    """

    def __init__(self, fleet: Fleet, sent: datetime, now: float) -> None:
        self._bucket = fleet.nodes
        self._sent = sent
        self._now = now
        self._looked_at = float("-inf")
        self._next = 0

    async def find(self, asked: dict[str, float]) -> list[str]:
        """
        Which of these nodes have a presence that is newer than their request.

        Args:
            asked: When each was asked, in monotonic seconds; 0 for one that was not.

        Raises:
            BusUnavailableError: The broker is away.
        """
        now = asyncio.get_running_loop().time()
        if not asked or now - self._looked_at < LOOK_S:
            return []
        self._looked_at = now
        names = self._part(sorted(asked))
        found = []
        for entry in await self._bucket.matching([f"presence.{name}" for name in names]):
            name = entry.key.removeprefix("presence.")
            if entry.value and entry.created > self._broker_time(asked.get(name, now)):
                found.append(name)
        return sorted(found)

    def _part(self, names: Sequence[str]) -> Sequence[str]:
        begin = self._next if self._next < len(names) else 0
        self._next = begin + LOOKED_AT
        return names[begin : begin + LOOKED_AT]

    def _broker_time(self, moment: float) -> datetime:
        return self._sent + timedelta(seconds=max(0.0, moment - self._now))
