"""Chooses which server of the broker to try next, the time limit of the attempt, and the pause before it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ccm_agent.model.errors import BusUnavailableError, CcmError

if TYPE_CHECKING:
    import random

    from ccm_agent.bus.connection.settings import BusSettings

_FIRST_PAUSE_S = 0.25
_MOST_DOUBLINGS = 20
"""A factor of a million. More doublings would overflow after some months without a broker."""

_SLOW_S = 1.0
"""An attempt that takes longer to fail indicates an overloaded or silent broker. A broker that is down refuses immediately."""

_REFUSED_PAUSE_S = 30.0
"""The maximum pause after a refusal. It is short, because an operator who corrects the credentials waits for the node."""

_STEADY_S = 30.0
"""A connection that is lost within this time is treated as a failed attempt."""

_RESTARTS = 3
"""
Up to this many short connections in a row are treated as restarts by an operator, so nodes reconnect soon. If there are more,
the broker probably fails under the load of reconnecting clients, and must not be flooded.
"""


class ServerRotation:
    """
    The servers of one broker, in turn.

    A fleet reduces its attempts until the broker can complete them: after each round of all servers, the time limit of an
    attempt and the pause grow. Attempts do not overload a broker that is down, and nodes should reconnect soon after it is
    back. Therefore, pauses exceed `pause_s` only after slow failures or several short connections. Each pause is random and
    starts at zero ("full jitter"), so agents that fail at the same time do not reconnect at the same time.

    Attributes:
        misses: Failed attempts since the last login, plus the consecutive short connections before it.
    """

    def __init__(self, settings: BusSettings, generator: random.Random) -> None:
        """
        Create a rotation in which no server has been tried.

        Args:
            settings: The servers and the limits.
            generator: Generates the order of the servers and the pauses.
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
        """Return the next address to try. The servers are shuffled before each round."""
        if self.misses % len(self._servers) == 0:
            self._random.shuffle(self._servers)
        return self._servers[self.misses % len(self._servers)]

    def missed(self, err: CcmError, after_s: float) -> None:
        """Record a failed attempt, with its error and its duration."""
        self.misses += 1
        self._slow += after_s >= _SLOW_S
        self._is_refused = not isinstance(err, BusUnavailableError)
        self._unanswered = 0 if self._is_refused else self._unanswered + 1

    def ended(self, lasted_s: float) -> None:
        """Record the end of a connection, with its duration."""
        self._short = 0 if lasted_s > _STEADY_S else self._short + 1
        self._slow = max(0, self._short - _RESTARTS)
        self.misses = self._short
        self._unanswered, self._is_refused = 0, False

    @property
    def are_all_tried(self) -> bool:
        """Whether all servers were tried without success."""
        return self.misses >= len(self._servers)

    def limit_s(self) -> float:
        """Return the time limit of the next attempt, which doubles after each round without an answer."""
        settings = self._settings
        return _doubled(
            settings.connect_s, self._unanswered // len(self._servers), settings.longest_connect_s
        )

    def pause_s(self) -> float:
        """Return the pause before the next attempt."""
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
        """Add the members of the cluster that the broker reported during a connection."""
        self._servers = list(dict.fromkeys([*self._settings.servers, *discovered]))


def _doubled(first_s: float, times: int, longest_s: float) -> float:
    doubled: float = first_s * 2.0 ** min(times, _MOST_DOUBLINGS)
    return min(longest_s, doubled)
