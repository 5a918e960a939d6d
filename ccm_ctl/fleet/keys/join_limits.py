"""Limits on the load that unknown senders can cause in the join service: answers per sender, and lines in its reports."""

from __future__ import annotations

MINUTE_MS = 60_000

SENDERS_LIMIT = 20_000
"""The maximum number of senders that are remembered. The sender that has been silent the longest is dropped first."""


class SenderLimit:
    """Limits the number of answers to each sender per minute."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken: dict[str, tuple[int, int]] = {}

    def count(self, sender: str, now_ms: int) -> None:
        """Count one more answer."""
        began, count = self._taken.pop(sender, (now_ms, 0))
        if not 0 <= now_ms - began < MINUTE_MS:
            began, count = now_ms, 0
        self._taken[sender] = began, count + 1
        if len(self._taken) > SENDERS_LIMIT:
            del self._taken[next(iter(self._taken))]

    def is_spent(self, sender: str, now_ms: int) -> bool:
        """Whether the sender has reached its limit."""
        began, count = self._taken.get(sender, (now_ms, 0))
        return 0 <= now_ms - began < MINUTE_MS and count >= self._limit


class ReportLimit:
    """Limits reports to one per minute for each sender and reason."""

    def __init__(self) -> None:
        self._reported: dict[tuple[str, str], tuple[int, int]] = {}

    def count(self, sender: str, reason: str, now_ms: int) -> int | None:
        """
        Count an event. Returns the number of unreported events since the last report, or None if this event is not reported
        either.
        """
        began, repeated = self._reported.pop((sender, reason), (now_ms - MINUTE_MS, 0))
        is_due = not 0 <= now_ms - began < MINUTE_MS
        self._reported[sender, reason] = (now_ms, 0) if is_due else (began, repeated + 1)
        if len(self._reported) > SENDERS_LIMIT:
            del self._reported[next(iter(self._reported))]
        return repeated if is_due else None
