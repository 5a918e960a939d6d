"""Which server of the broker is tried next, and after which pause."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ccm_agent.bus.connection.settings import BusSettings

_FIRST_PAUSE_S = 0.25
_STEADY_S = 5.0
"""A connection that was lost sooner counts as a miss: a broker that drops all its clients must not be flooded by them."""


class ServerRotation:
    """
    The servers of one broker, in turn.

    Attributes:
        misses: Attempts in a row without a connection that lasted.
    """

    def __init__(self, settings: BusSettings) -> None:
        self.misses = 0
        self._settings = settings
        self._servers = list(settings.servers)

    def next(self) -> str:
        """The address to try now; each round has another order."""
        if self.misses % len(self._servers) == 0:
            random.shuffle(self._servers)
        return self._servers[self.misses % len(self._servers)]

    def missed(self) -> None:
        """There was no connection."""
        self.misses += 1

    def ended(self, lasted_s: float) -> None:
        """A connection has ended after this time."""
        self.misses = 0 if lasted_s > _STEADY_S else self.misses + 1

    @property
    def are_all_tried(self) -> bool:
        """Each server was tried in vain."""
        return self.misses >= len(self._servers)

    def pause_s(self) -> float:
        """How long to wait before the next attempt: longer after each round, and at random, for a fleet reconnects at once."""
        if self.misses == 0:
            return random.uniform(0.0, self._settings.spread_s)
        if not self.are_all_tried:
            return 0.0
        rounds = self.misses // len(self._servers)
        longest: float = min(self._settings.pause_s, _FIRST_PAUSE_S * 2.0 ** min(rounds, 10))
        return random.uniform(0.5, 1.0) * longest

    def learn(self, discovered: Iterable[str]) -> None:
        """The members of the cluster that the broker named while a connection lived."""
        self._servers = list(dict.fromkeys([*self._settings.servers, *discovered]))
