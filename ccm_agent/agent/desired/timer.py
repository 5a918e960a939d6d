"""
Timers for repeated work. Each node has its own times within the interval.

Otherwise, a fleet that starts at the same time would always do the work at the same time. Timers use the monotonic clock, so a
change of the wall clock neither skips nor repeats a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta

from ccm_agent.model.ports import Clock

FIRST_SHARE = 0.5
"""The earliest first time, as a fraction of the interval, if the work was just done."""


MakeTimer = Callable[[str], "IntervalTimer"]
"""Creates a timer of this node, given its name."""


class IntervalTimer:
    """The next time of one kind of work on one node; it is not set initially."""

    def __init__(self, node: str, name: str, clock: Clock) -> None:
        """
        Args:
            node, name: The node and the work; they determine the times within the interval.
            clock: Returns the current time.
        """
        self._splay = splay(node, name)
        self._clock = clock
        self._due: float | None = None

    @property
    def remaining_s(self) -> float | None:
        """Return the seconds until the next time, 0 if it has passed; None: there is no next time."""
        return None if self._due is None else max(self._due - self._clock.monotonic(), 0.0)

    @property
    def next_time(self) -> datetime | None:
        """Return the next time by the wall clock, as a whole number of seconds from now."""
        remaining_s = self.remaining_s
        return None if remaining_s is None else self._clock.now() + timedelta(seconds=round(remaining_s))

    @property
    def next_second(self) -> datetime | None:
        """Return the next time by the wall clock, without the fraction of a second."""
        remaining_s = self.remaining_s
        if remaining_s is None:
            return None
        return (self._clock.now() + timedelta(seconds=remaining_s)).replace(microsecond=0)

    def start(self, interval_s: float, first_share: float = FIRST_SHARE) -> None:
        """
        Start the interval now.

        Args:
            interval_s: The interval.
            first_share: The earliest first time, as a fraction of the interval; the latest is a whole interval.
        """
        self._due = self._clock.monotonic() + interval_s * (first_share + (1 - first_share) * self._splay)

    def advance(self, interval_s: float) -> None:
        """Set the next time to one interval after the last due time. Missed times are skipped."""
        now = self._clock.monotonic()
        if self._due is None:
            self.start(interval_s)
        elif self._due <= now:
            self._due += interval_s * (1 + (now - self._due) // interval_s)

    def retry_in(self, seconds: float) -> None:
        """Set the next time to this many seconds from now, after a failure."""
        self._due = self._clock.monotonic() + seconds

    def stop(self) -> None:
        """Cancel the next time."""
        self._due = None


def splay(node: str, name: str) -> float:
    """Return a fraction of the interval, from 0 up to 1, that is the same each time and evenly distributed over nodes."""
    digest = hashlib.sha256(f"{node}\0{name}".encode()).digest()
    return float(int.from_bytes(digest[:6], "big")) / float(1 << 48)
