"""
When something is done again: on its interval, at moments that are this node's own.

A fleet that starts at once would otherwise do it at once each time. The moments follow the monotonic clock: a wall clock that
is set neither skips one nor repeats one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta

from ccm_agent.model.ports import Clock

FIRST_SHARE = 0.5
"""A first time comes after this part of the interval at the earliest, where something was just done."""


MakeTimer = Callable[[str], "IntervalTimer"]
"""A timer of this node for one thing, by its name."""


class IntervalTimer:
    """The next time of one thing on one node; at first there is none."""

    def __init__(self, node: str, name: str, clock: Clock) -> None:
        """
        Args:
            node, name: The node, and the thing: they decide at which moments of the interval its times are.
            clock: Time.
        """
        self._splay = splay(node, name)
        self._clock = clock
        self._due: float | None = None

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the next time, 0 when it has come; None: there is no next time."""
        return None if self._due is None else max(self._due - self._clock.monotonic(), 0.0)

    @property
    def next_time(self) -> datetime | None:
        """The next time by the wall clock, in whole seconds from now."""
        remaining_s = self.remaining_s
        return None if remaining_s is None else self._clock.now() + timedelta(seconds=round(remaining_s))

    @property
    def next_second(self) -> datetime | None:
        """The next time by the wall clock, without the fraction of a second."""
        remaining_s = self.remaining_s
        if remaining_s is None:
            return None
        return (self._clock.now() + timedelta(seconds=remaining_s)).replace(microsecond=0)

    def start(self, interval_s: float, first_share: float = FIRST_SHARE) -> None:
        """
        Start the interval now.

        Args:
            interval_s: The interval.
            first_share: The first time comes after this part of the interval at the earliest, and after all of it at the latest.
        """
        self._due = self._clock.monotonic() + interval_s * (first_share + (1 - first_share) * self._splay)

    def advance(self, interval_s: float) -> None:
        """It is done now; the next time is an interval after it was due. What was missed is not made up for."""
        now = self._clock.monotonic()
        if self._due is None:
            self.start(interval_s)
        elif self._due <= now:
            self._due += interval_s * (1 + (now - self._due) // interval_s)

    def retry_in(self, seconds: float) -> None:
        """It could not be done; the next time is in so many seconds."""
        self._due = self._clock.monotonic() + seconds

    def stop(self) -> None:
        """Cancel the next time."""
        self._due = None


def splay(node: str, name: str) -> float:
    """A part of the interval, from 0 up to 1, that is the same each time and spread evenly over nodes."""
    digest = hashlib.sha256(f"{node}\0{name}".encode()).digest()
    return float(int.from_bytes(digest[:6], "big")) / float(1 << 48)
