"""
Events for browsers. One buffer of limited size serves all browsers, and each can read at its own speed.

For each browser, only its position in the buffer is stored. A slow browser therefore needs no additional memory and does not
delay others. If the buffer no longer contains its next event, it must reload all data.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from ccm_agent.model.outcome import SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.records.verdicts import BAD
from ccm_ctl.fleet.events.live_events import LiveEvent
from ccm_ctl.render.event import format_message

KEPT_EVENTS = 20_000
KEPT_BYTES = 16 << 20
BATCH_EVENTS = 500
"""The maximum number of events in one message to a browser."""

TEXT_CHARACTERS = 500
"""The maximum length of an event's text. The pages of runs and nodes show the complete text."""

RESOURCE_CHARACTERS = 300
"""The maximum length of a resource's name."""

BUCKET_S = 30
TIMELINE_S = 3600
MEANINGS = ("good", "change", "bad", "")
"""The rows of the timeline, in order."""


class EventFrame(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    An event in the form that pages receive.

    Attributes:
        id: The event's position in the stream.
        time: When it happened according to the node's clock, limited to the current time.
        node, run: The event's node and run.
        kind: `resource`, `start`, `summary` or `agent`.
        text: A sentence that describes the event.
        meaning: `good`, `change`, `bad` or "".
        resource: For a resource, its `type#name`.
        manifest: For a session, its manifest.
        word: For an agent's events about itself: a word such as `refused`. For other events: the outcome or the state.
        verdict: `forged` or `gap`. Otherwise it is left out.
    """

    id: int
    time: datetime
    node: str
    run: str = ""
    kind: str = ""
    text: str = ""
    meaning: str = ""
    resource: str = ""
    manifest: str = ""
    word: str = ""
    verdict: str = ""


def resource_name(event: TransactionEvent) -> str:
    """Return the `type#name` of a resource, truncated if it is long."""
    return f"{event.type}#{event.name}"[:RESOURCE_CHARACTERS]


def frame_of(event: LiveEvent, now: datetime) -> EventFrame:
    """Convert an event to the form that pages receive."""
    said = event.heard.said
    moment, text, meaning = format_message(said)
    fields: dict[str, Any] = {"kind": "agent", "word": event.heard.protocol.rpartition(".")[2]}
    if isinstance(said, TransactionEvent):
        fields = {"kind": "resource", "word": str(said.outcome), "resource": resource_name(said)}
    elif isinstance(said, SessionStart):
        fields = {"kind": "start", "word": "start", "manifest": said.manifest[:200]}
    elif isinstance(said, SessionSummary):
        fields = {"kind": "summary", "word": said.state[:40], "manifest": said.manifest[:200]}
    elif fields["word"] in ("refused", "lost_events", "duplicate"):
        meaning = "bad"
    return EventFrame(
        id=event.sequence,
        time=_not_later(moment, now),
        node=event.heard.node,
        run=event.heard.run,
        text=text if len(text) <= TEXT_CHARACTERS else f"{text[:TEXT_CHARACTERS]} …",
        meaning=meaning if meaning in MEANINGS else "",
        verdict=str(event.verdict) if event.verdict in BAD else "",
        **fields,
    )


def _not_later(moment: datetime | None, now: datetime) -> datetime:
    """Return a time from a node's clock, limited to `now`, because the clock can be wrong by any amount."""
    try:
        return min(moment.astimezone(UTC), now) if moment is not None else now
    except OverflowError:
        return now


class EventFeed:
    """
    The newest events, and the browsers that wait for more.

    Attributes:
        readers: The number of connected browsers.
        is_current: Whether the broker is reachable and the stream was read recently.
        news: Set when new events arrive, and then replaced by a new object. A reader must get the object before it reads the
            events.
    """

    def __init__(
        self, now: Callable[[], datetime], *, kept_events: int = KEPT_EVENTS, kept_bytes: int = KEPT_BYTES
    ) -> None:
        self.readers = 0
        self.is_current = False
        self.news = asyncio.Event()
        self._now = now
        self._kept_events = kept_events
        self._kept_bytes = kept_bytes
        self._sequences: list[int] = []
        self._encoded: list[bytes] = []
        self._frames: list[EventFrame] = []
        self._bytes = 0
        self._dropped = 0
        self._epoch = 0
        self._timeline: dict[int, Counter[str]] = {}

    @property
    def last(self) -> int:
        """The newest sequence, or 0 if there are no events."""
        return self._sequences[-1] if self._sequences else self._dropped

    @property
    def epoch(self) -> int:
        """A number that grows when the stream is re-created. Sequences from an earlier epoch are not valid."""
        return self._epoch

    def add(self, events: list[LiveEvent]) -> list[EventFrame]:
        """Add events in the order of the stream, and return them in the form that pages receive."""
        now = self._now()
        frames = [frame_of(event, now) for event in events]
        for frame in frames:
            encoded = b"id: %d\ndata: %b\n\n" % (frame.id, msgspec.json.encode(frame))
            self._sequences.append(frame.id)
            self._encoded.append(encoded)
            self._frames.append(frame)
            self._bytes += len(encoded)
            self._count(frame)
        self._forget()
        self.wake()
        return frames

    def restart(self) -> None:
        """Drop all events because the stream was re-created. All browsers reload all data."""
        self._sequences, self._encoded, self._frames = [], [], []
        self._bytes = self._dropped = 0
        self._timeline = {}
        self._epoch += 1
        self.wake()

    def wake(self) -> None:
        """Make the streams of all browsers check for new events."""
        self.news.set()
        self.news = asyncio.Event()

    def has(self, sequence: int) -> bool:
        """Whether the buffer contains all events after this sequence of the current stream."""
        return self._dropped <= sequence <= self.last

    def after(self, sequence: int) -> tuple[int, bytes]:
        """Return the next events after a sequence in encoded form. The first result is the sequence of the last of them."""
        begin = bisect_right(self._sequences, sequence)
        end = min(begin + BATCH_EVENTS, len(self._sequences))
        if begin == end:
            return sequence, b""
        return self._sequences[end - 1], b"".join(self._encoded[begin:end])

    def newest(
        self,
        most: int,
        begin: datetime | None = None,
        end: datetime | None = None,
        fits: Callable[[EventFrame], bool] = lambda _: True,
    ) -> list[EventFrame]:
        """Return the newest matching events between two times, newest first."""
        found: list[EventFrame] = []
        for frame in reversed(self._frames):
            if len(found) >= most:
                break
            is_then = (begin is None or frame.time >= begin) and (end is None or frame.time < end)
            if is_then and fits(frame):
                found.append(frame)
        return found

    def timeline(self) -> list[list[int]]:
        """Return the start and the counts of MEANINGS for each half minute with events in the last hour."""
        return [
            [begin, *(counts[meaning] for meaning in MEANINGS)]
            for begin, counts in sorted(self._timeline.items())
        ]

    def _count(self, frame: EventFrame) -> None:
        begin = int(frame.time.timestamp()) // BUCKET_S * BUCKET_S
        self._timeline.setdefault(begin, Counter())[frame.meaning] += 1

    def _forget(self) -> None:
        """Drop the oldest events, a tenth at a time, because dropping moves all remaining events."""
        while len(self._sequences) > self._kept_events or self._bytes > self._kept_bytes:
            count = max(1, len(self._sequences) // 10)
            self._dropped = self._sequences[count - 1]
            self._bytes -= sum(map(len, self._encoded[:count]))
            del self._sequences[:count], self._encoded[:count], self._frames[:count]
        oldest = (self._now() - timedelta(seconds=TIMELINE_S)).timestamp() - BUCKET_S
        for begin in [begin for begin in self._timeline if begin < oldest]:
            del self._timeline[begin]
