"""
What the spool's files hold: records, the index of events, and one file of them.

A segment knows which of its events still count; how many there may be, and which go first, is the spool's business.
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
"""What a record of an event takes besides its texts."""


class Kind(StrEnum):
    """What an event is to its run."""

    START = "s"
    RESOURCE = "r"
    SUMMARY = "e"
    AGENT = "a"
    """Of the agent itself, in no run."""


class Spooled(Struct, tag="e", array_like=True, kw_only=True):
    """
    An event as it waits.

    Attributes: seq: Its place in the spool. subject, event_id, body: What is published. run, number, kind: Its place in a run;
        "" and 0 for events of the agent. is_stable: A summary of a run in which nothing happened: the first to go when the
        spool is full. message_id: By which the stream knows it when it comes again. 128 random bits, unlike the event id: a
        sender who knows an id can have his own message stored under it before, and the event is then taken for a duplicate. ""
        in what an older agent wrote, which sent the event id.
        chain: Its place in the node's chain, as a header; "" of an event that an older version of the agent spooled.
        is_followed: When this was written, the events after it had waited in memory, where a kill loses them.
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
    """Everything up to this place is in the stream."""

    seq: int


class Dropped(Struct, tag="d", array_like=True):
    """Given up for want of room."""

    seqs: list[int]


class Lost(Struct, tag="l", array_like=True):
    """So many events were given up and not yet reported, at this moment; by chain, the ranges of their places."""

    count: int
    places: dict[str, list[tuple[int, int]]] = {}


class Position(Struct, frozen=True, array_like=True):
    """
    What the next event of a chain follows.

    Attributes:
        chain: Id of the chain.
        number: Of its last event; 0 when it has none.
        link: Of its last event; when it has none, what its first event is to say about an earlier chain.
    """

    chain: str
    number: int = 0
    link: str = NONE


class Head(Struct, tag="h", array_like=True, kw_only=True):
    """
    How the node's chain continues. Each file begins with one, so that files can be removed from the front.

    Attributes:
        seq: The last event of the spool at this moment.
        last: What the next event of the chain follows.
        tails: By run, the link of the run's last event.
        boot: The start of the host in which this was written.
        is_followed: As in Spooled.
        is_stopped: The process ended in good order after this.
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
    """The index of one event: where it is, not what it says."""

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
    """One file of the spool and how many events in it still count."""

    def __init__(self, number: int, journal: Journal) -> None:
        self.number = number
        self.journal = journal
        self.has_head = False
        self.entries: dict[int, Entry] = {}

    @property
    def live_bytes(self) -> int:
        return sum(entry.size for entry in self.entries.values())


class Found:
    """What the files say, before it is judged."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.acked = 0
        self.dropped: set[int] = set()
        self.lost = Lost(0)
        self.head: Head | None = None
        self.is_whole = True

    @property
    def newest(self) -> Entry | None:
        """The last event that has a place in a chain, when it is newer than the head."""
        entries = (entry for entry in self.entries.values() if entry.chain)
        newest = max(entries, key=lambda entry: entry.seq, default=None)
        return newest if newest and (self.head is None or newest.seq > self.head.seq) else None

    def find_newest(self, run: str) -> Entry | None:
        """The last event of a run, likewise."""
        entries = (entry for entry in self.entries.values() if entry.chain and entry.run == run)
        return max(entries, key=lambda entry: entry.seq, default=None)

    def take(self, segment: Segment, read: Read) -> None:
        """Take in a file, in the order of the files."""
        head_at = -1
        for offset, payload in read.records:
            try:
                record = decoder.decode(payload)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                log.error(
                    "a record of the spool is not understood", extra={"path": str(segment.journal.path)}
                )
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
            # what was damaged before it was known when it was written
            self.is_whole = True


def make_entry(event: Spooled, place: ChainPosition | None = None) -> Entry:
    """The index of an event; its place is read from its header unless it is given."""
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
    """128 random bits, for `Nats-Msg-Id`."""
    return secrets.token_urlsafe(16)


def measure_record(event: Spooled) -> int:
    """What an event takes on disk, about."""
    texts = (event.subject, event.event_id, event.run, event.message_id, event.chain)
    return len(event.body) + sum(map(len, texts)) + OVERHEAD_BYTES


def rewritten(path: Path, keep: set[int]) -> tuple[Journal, dict[int, int]]:
    """A segment's file without the events that are not needed any more, and where the others are now. Blocking."""
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
    """The events that count and the marks, each with its place in the spool (0 for a mark)."""
    found: list[tuple[Record, bytes]] = []
    newest: dict[type[Record], int] = {}
    for _, payload in read_records(path.read_bytes()).records:
        try:
            record = decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # no later version would read it either
        newest[type(record)] = len(found)
        found.append((record, payload))
    for at, (record, payload) in enumerate(found):
        if isinstance(record, Spooled):
            if record.seq in keep:
                yield record.seq, payload
        elif isinstance(record, Dropped) or newest[type(record)] == at:
            yield 0, payload
