"""
When one thing is done again: on its interval, at moments that are this node's own.

What a whole fleet begins at once would otherwise come at once each time. The moments follow the monotonic clock.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from ccm_agent.agent.desired.ticker import splay
from ccm_agent.model.ports import Clock


class IntervalTimer:
    """The moments of one thing on one node; at first there are none."""

    def __init__(self, node: str, name: str, clock: Clock) -> None:
        """
        Nothing is due.

        Args:
            node, name: Whose, and of what: they decide how the moments lie.
            clock: Time.
        """
        self._splay = splay(node, name)
        self._clock = clock
        self._due: float | None = None

    @property
    def rest_s(self) -> float | None:
        """How long it is until then, 0 when it is now; None: there is no next time."""
        return None if self._due is None else max(self._due - self._clock.monotonic(), 0.0)

    @property
    def next_time(self) -> datetime | None:
        """When that is by the wall clock, in whole seconds from now."""
        rest_s = self.rest_s
        return None if rest_s is None else self._clock.now() + timedelta(seconds=round(rest_s))

    def begin(self, interval_s: float) -> None:
        """It is done now and from here on; the first time comes after a half to a whole interval."""
        self._due = self._clock.monotonic() + interval_s * (0.5 + 0.5 * self._splay)

    def go_on(self, interval_s: float) -> None:
        """It is done now; the next time is an interval after it was due. What was missed is not made up for."""
        now = self._clock.monotonic()
        if self._due is None:
            self.begin(interval_s)
        elif self._due <= now:
            self._due += interval_s * (1 + (now - self._due) // interval_s)

    def try_after(self, seconds: float) -> None:
        """It could not be done; the next time comes after so long."""
        self._due = self._clock.monotonic() + seconds

    def stop(self) -> None:
        """There is no next time."""
        self._due = None
