"""
Defines the content of the spool's files: records, the index of events, and segments.

A segment counts its live events. The spool determines how many events are kept, and which events are dropped first.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from ccm_agent.bus.chain import NONE, ChainPosition, parse_place
from ccm_agent.storage.journal import Journal, Read, encode_record, read_records, replace_file

log = logging.getLogger(__name__)

OVERHEAD_BYTES = 48
"""The size of an event's record in bytes, without the lengths of its strings."""


class Kind(StrEnum):
    """The role of an event in its run."""

    START = "s"
    RESOURCE = "r"
    SUMMARY = "e"
    AGENT = "a"
    """An event of the agent itself, outside of runs."""


class Spooled(Struct, tag="e", array_like=True, kw_only=True):
    """
    An event in the spool.

    Attributes:
        seq: The event's number in the spool.
        subject, event_id, body: The message to publish.
        run, number, kind: The run, and the event's position and role in it. "" and 0 for events of the agent.
        is_stable: Whether this is the summary of a run without changes. Such runs are dropped first when the spool is full.
        message_id: The ID by which the stream detects duplicates. It is random (128 bits) and different from the event ID. If an
            attacker could guess it and store a message with it first, the event would be discarded as a duplicate. "" in events
            of an older agent, which sent the event ID.
        chain: The event's position in the node's chain, as a header; "" in events of an older agent.
        is_followed: Whether later events were only in memory when this record was written. If the process was killed, these are
            lost.
    """

    seq: int
    subject: str
    event_id: str
    body: bytes
    run: str = ""
    number: int = 0
    kind: Kind = Kind.AGENT
    is_stable: bool = False
    message_id: str = ""
    chain: str = ""
    is_followed: bool = False


class Acked(Struct, tag="a", array_like=True):
    """A mark that the stream has stored all events up to this number."""

    seq: int


class Dropped(Struct, tag="d", array_like=True):
    """A mark that an event was dropped because the spool was full."""

    seqs: list[int]


class Lost(Struct, tag="l", array_like=True):
    """The current number of dropped, unreported events, and the ranges of their positions by chain."""

    count: int
    places: dict[str, list[tuple[int, int]]] = {}


class Position(Struct, frozen=True, array_like=True):
    """
    The last position of a chain, which the next event follows.

    Attributes:
        chain: The ID of the chain.
        number: The number of its last event; 0 if it has none.
        link: The link of its last event. If it has no events, the reference to the earlier chain, which the first event will
            contain.
    """

    chain: str
    number: int = 0
    link: str = NONE


class Head(Struct, tag="h", array_like=True, kw_only=True):
    """
    The state from which the node's chain continues. Each file begins with a head, so older files can be removed.

    Attributes:
        seq: The number of the spool's last event when the head was written.
        last: The last used position, which the next event follows.
        tails: The chain link of the last event of each run.
        boot: The ID of the host's boot during which the head was written.
        is_followed: See Spooled.
        is_stopped: Whether the process stopped properly after writing the head.
    """

    seq: int
    last: Position
    tails: dict[str, str] = {}
    boot: str = ""
    is_followed: bool = False
    is_stopped: bool = False


Record: TypeAlias = Spooled | Acked | Dropped | Lost | Head
encoder = msgspec.msgpack.Encoder()
decoder = msgspec.msgpack.Decoder(Record)


class Entry(Struct, kw_only=True):
    """The index entry of an event. It contains the location of the event, not its content."""

    seq: int
    run: str
    number: int
    kind: Kind
    is_stable: bool
    size: int
    chain: str = ""
    place: int = 0
    segment: Segment | None = None
    offset: int = 0
    event: Spooled | None = None
    is_acked: bool = False


class Segment:
    """A file of the spool, and the number of live events in it."""

    def __init__(self, number: int, journal: Journal) -> None:
        self.number = number
        self.journal = journal
        self.has_head = False
        self.entries: dict[int, Entry] = {}

    @property
    def live_bytes(self) -> int:
        return sum(entry.size for entry in self.entries.values())


class Found:
    """The content of the files before evaluation."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.acked = 0
        self.dropped: set[int] = set()
        self.lost = Lost(0)
        self.head: Head | None = None
        self.is_whole = True

    @property
    def newest(self) -> Entry | None:
        """Return the last event with a position in a chain; None if it is not newer than the head."""
        entries = (entry for entry in self.entries.values() if entry.chain)
        newest = max(entries, key=lambda entry: entry.seq, default=None)
        return newest if newest and (self.head is None or newest.seq > self.head.seq) else None

    def find_newest(self, run: str) -> Entry | None:
        """Return the last event of a run; None if it is not newer than the head."""
        entries = (entry for entry in self.entries.values() if entry.chain and entry.run == run)
        return max(entries, key=lambda entry: entry.seq, default=None)

    def take(self, segment: Segment, read: Read) -> None:
        """Add the content of a file. Must be called in the order of the files."""
        head_at = -1
        for offset, payload in read.records:
            try:
                record = decoder.decode(payload)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                log.error("a record of the spool cannot be read", extra={"path": str(segment.journal.path)})
                continue
            if isinstance(record, Spooled):
                entry = make_entry(record)
                entry.segment, entry.offset = segment, offset
                self.entries[record.seq] = entry
            elif isinstance(record, Acked):
                self.acked = max(self.acked, record.seq)
            elif isinstance(record, Dropped):
                self.dropped.update(record.seqs)
            elif isinstance(record, Head):
                self.head, head_at = record, offset
            else:
                self.lost = record
        if read.damaged_to > head_at:
            self.is_whole = False
        elif head_at >= 0:
            # ignore damage before this mark, because it was already known when the mark was written
            self.is_whole = True


def make_entry(event: Spooled, place: ChainPosition | None = None) -> Entry:
    """Create the index entry of an event. If the position is not given, it is read from the event's header."""
    if place is None and event.chain:
        place = parse_place(event.chain)
    return Entry(
        seq=event.seq,
        run=event.run,
        number=event.number,
        kind=event.kind,
        is_stable=event.is_stable,
        size=measure_record(event),
        chain=place.chain if place else "",
        place=place.number if place else 0,
    )


def new_message_id() -> str:
    """Create an ID of 128 random bits for `Nats-Msg-Id`."""
    return secrets.token_urlsafe(16)


def measure_record(event: Spooled) -> int:
    """Return the approximate size of an event on disk."""
    texts = (event.subject, event.event_id, event.run, event.message_id, event.chain)
    return len(event.body) + sum(map(len, texts)) + OVERHEAD_BYTES


def rewritten(path: Path, keep: set[int]) -> tuple[Journal, dict[int, int]]:
    """Rewrite a segment's file without dead events. Return the file and the new offsets of the live events. Blocking."""
    offsets: dict[int, int] = {}
    at = 0
    records = []
    for seq, payload in _kept(path, keep):
        record = encode_record(payload)
        if seq:
            offsets[seq] = at
        at += len(record)
        records.append(record)
    replace_file(path, records)
    journal = Journal(path)
    journal.open()
    return journal, offsets


def _kept(path: Path, keep: set[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the records of live events and of marks, each with the event's number in the spool (0 for a mark)."""
    found: list[tuple[Record, bytes]] = []
    newest: dict[type[Record], int] = {}
    for _, payload in read_records(path.read_bytes()).records:
        try:
            record = decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # drop the unreadable record, because a later version could not read it either
        newest[type(record)] = len(found)
        found.append((record, payload))
    for at, (record, payload) in enumerate(found):
        if isinstance(record, Spooled):
            if record.seq in keep:
                yield record.seq, payload
        elif isinstance(record, Dropped) or newest[type(record)] == at:
            yield 0, payload
