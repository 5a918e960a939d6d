"""Which server of the broker is tried next, for how long, and after which pause."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ccm_agent.model.errors import BusUnavailableError, CcmError

if TYPE_CHECKING:
    import random

    from ccm_agent.bus.connection.settings import BusSettings

_FIRST_PAUSE_S = 0.25
_MOST_DOUBLINGS = 20
"""A million times; more would overflow after some months without a broker."""

_SLOW_S = 1.0
"""An attempt that failed later met an overloaded broker, or got no answer at all; a broker that is down refuses at once."""

_REFUSED_PAUSE_S = 30.0
"""The limit of the pause after a refusal: the broker is not overloaded, and an operator who corrects credentials waits for it."""

_STEADY_S = 30.0
"""A connection that was lost sooner counts as a miss."""

_RESTARTS = 3
"""
Up to this many short connections in a row are taken for restarts by an operator, so nodes return soon. After more of them, the
broker probably fails under its returning clients and must not be flooded.
"""


class ServerRotation:
    """
    The servers of one broker, in turn.

    Attempts of a fleet become fewer until the broker can complete them: with each round of all servers the time for one attempt
    grows, and the pause as well. A broker that is down is not overloaded by attempts, and nodes should be back soon after it, so
    pauses grow beyond `pause_s` only after slow failures or several short connections. They are random from zero on ("full
    jitter"), so agents that failed together do not return together.

    Attributes:
        misses: Failed attempts since the last login, and the short connections in a row before it.
    """

    def __init__(self, settings: BusSettings, generator: random.Random) -> None:
        """
        Nothing was tried yet.

        Args:
            settings: The servers and the limits.
            generator: Source of the order of servers and of pauses.
        """
        self.misses = 0
        self._settings = settings
        self._random = generator
        self._servers = list(settings.servers)
        self._unanswered = 0
        self._slow = 0
        self._short = 0
        self._is_refused = False

    def next(self) -> str:
        """The address to try now; each round has another order."""
        if self.misses % len(self._servers) == 0:
            self._random.shuffle(self._servers)
        return self._servers[self.misses % len(self._servers)]

    def missed(self, err: CcmError, after_s: float) -> None:
        """There was no connection, for this reason and after this time."""
        self.misses += 1
        self._slow += after_s >= _SLOW_S
        self._is_refused = not isinstance(err, BusUnavailableError)
        self._unanswered = 0 if self._is_refused else self._unanswered + 1

    def ended(self, lasted_s: float) -> None:
        """A connection has ended after this time."""
        self._short = 0 if lasted_s > _STEADY_S else self._short + 1
        self._slow = max(0, self._short - _RESTARTS)
        self.misses = self._short
        self._unanswered, self._is_refused = 0, False

    @property
    def are_all_tried(self) -> bool:
        """Each server was tried in vain."""
        return self.misses >= len(self._servers)

    def limit_s(self) -> float:
        """How long the next attempt may take: twice as long after each round without an answer."""
        settings = self._settings
        return _doubled(
            settings.connect_s, self._unanswered // len(self._servers), settings.longest_connect_s
        )

    def pause_s(self) -> float:
        """How long to wait before the next attempt."""
        if self.misses == 0:
            return self._random.uniform(0.0, self._settings.spread_s)
        if not self.are_all_tried:
            return 0.0
        settings, count = self._settings, len(self._servers)
        if self._is_refused:
            limit_s = min(settings.longest_pause_s, _REFUSED_PAUSE_S)
        else:
            limit_s = _doubled(settings.pause_s, self._slow // count, settings.longest_pause_s)
        return self._random.uniform(0.0, _doubled(_FIRST_PAUSE_S, self.misses // count, limit_s))

    def learn(self, discovered: Iterable[str]) -> None:
        """The members of the cluster that the broker named while a connection lived."""
        self._servers = list(dict.fromkeys([*self._settings.servers, *discovered]))


def _doubled(first_s: float, times: int, longest_s: float) -> float:
    doubled: float = first_s * 2.0 ** min(times, _MOST_DOUBLINGS)
    return min(longest_s, doubled)
