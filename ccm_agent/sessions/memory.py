"""A session in memory: the outcomes of all resources during a run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from ccm_agent.model.outcome import (
    SESSION_SUMMARY,
    Counts,
    SessionStart,
    SessionSummary,
    TransactionEvent,
    count,
)
from ccm_agent.sessions.refresh_log import RefreshLog


class MemorySession:
    """
    Stores the last event of every resource, under its name and its alias, and counts all events.

    The time of a lookup does not depend on the number of resources.
    """

    def __init__(self) -> None:
        self.counts = Counts()
        self.started: datetime | None = None
        self.ended: datetime | None = None
        self._duration_ns = 0
        self._last: dict[tuple[str, str], TransactionEvent] = {}
        self._unique: set[tuple[str, str]] = set()
        self._foreign: set[str] = set()

    @property
    def refreshes(self) -> RefreshLog | None:
        """The pending refreshes of this session; None if they are not persisted."""
        return None

    async def start(self, event: SessionStart) -> None:
        """Begin the session."""
        self.started = event.timestamp

    async def record(self, event: TransactionEvent, names: Sequence[str] = ()) -> None:
        """Store an event; `names` as in `remember`."""
        self.remember(event, names=names)

    def remember(self, event: TransactionEvent, *, foreign: bool = False, names: Sequence[str] = ()) -> None:
        """
        Count an event, and make it available to `last`.

        Args:
            event: The event.
            foreign: Whether another process created it, in the same session.
            names: Name and alias of the resource, because those in the event may be masked.
        """
        count(self.counts, event)
        name, alias = names or (event.name, event.alias)
        key = (event.type, name)
        self._unique.add(key)
        self._last[key] = event
        if alias:
            self._last[event.type, alias] = event
        if foreign:
            self._foreign.add(event.event_id)
        self._duration_ns += event.duration
        # an event is created when its resource begins
        ended = event.timestamp + timedelta(microseconds=event.duration / 1000)
        if self.ended is None or ended > self.ended:
            self.ended = ended

    def last(self, type_name: str, name: str) -> TransactionEvent | None:
        """Return the newest event of the resource with this name or alias; None if there is none."""
        return self._last.get((type_name, name))

    def is_foreign(self, event: TransactionEvent) -> bool:
        """Whether another process created this event."""
        return event.event_id in self._foreign

    def summary(self, event_id: str, at: datetime) -> SessionSummary:
        """Return the counts so far; state, reason and manifest are set by the run."""
        numbers = {field: getattr(self.counts, field) for field in Counts.__struct_fields__}
        numbers["unique_resources"] = len(self._unique)
        total_ns = self._duration_ns
        if self.started is not None and self.ended is not None:
            total_ns = max(0, int((self.ended - self.started).total_seconds() * 1e9))
        return SessionSummary(
            protocol=SESSION_SUMMARY,
            event_id=event_id,
            timestamp=at,
            start_time=self.started,
            end_time=self.ended,
            total_duration=total_ns,
            **numbers,
        )
