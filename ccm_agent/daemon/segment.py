"""
What the spool's files hold: records, the index of events, and one file of them.

A segment knows which of its events still count; how many there may be, and which go first, is the spool's business.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from ccm_agent.daemon.journal import Journal, encode_record, read_records, replace_file

log = logging.getLogger(__name__)


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

    Attributes:
        seq: Its place in the spool.
        subject, event_id, body: What is published.
        run, number, kind: Its place in a run; "" and 0 for events of the agent.
        is_stable: A summary of a run in which nothing happened: the first to go when the spool is full.
    """

    seq: int
    subject: str
    event_id: str
    body: bytes
    run: str = ""
    number: int = 0
    kind: Kind = Kind.AGENT
    is_stable: bool = False


class Acked(Struct, tag="a", array_like=True):
    """Everything up to this place is in the stream."""

    seq: int


class Dropped(Struct, tag="d", array_like=True):
    """Given up for want of room."""

    seqs: list[int]


class Lost(Struct, tag="l", array_like=True):
    """So many events were given up and have not been told of, at this moment."""

    count: int


Record: TypeAlias = Spooled | Acked | Dropped | Lost
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
    segment: Segment | None = None
    offset: int = 0
    event: Spooled | None = None
    is_acked: bool = False


class Segment:
    """One file of the spool and how many events in it still count."""

    def __init__(self, number: int, journal: Journal) -> None:
        self.number = number
        self.journal = journal
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
        self.lost = 0

    def take(self, segment: Segment, records: Iterable[tuple[int, bytes]]) -> None:
        for offset, payload in records:
            try:
                record = decoder.decode(payload)
            except msgspec.DecodeError:
                log.error(
                    "a record of the spool is not understood", extra={"path": str(segment.journal.path)}
                )
                continue
            if isinstance(record, Spooled):
                entry = entry_of(record)
                entry.segment, entry.offset = segment, offset
                self.entries[record.seq] = entry
            elif isinstance(record, Acked):
                self.acked = max(self.acked, record.seq)
            elif isinstance(record, Dropped):
                self.dropped.update(record.seqs)
            else:
                self.lost = record.count


def entry_of(event: Spooled) -> Entry:
    size = len(event.body) + len(event.subject) + 64
    return Entry(
        seq=event.seq,
        run=event.run,
        number=event.number,
        kind=event.kind,
        is_stable=event.is_stable,
        size=size,
    )


def rewritten(path: Path, keep: set[int]) -> tuple[Journal, dict[int, int]]:
    """A segment's file without the events that do not count any more; where the others stand now. Blocking."""
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
    for _, payload in read_records(path.read_bytes()).records:
        try:
            record = decoder.decode(payload)
        except msgspec.DecodeError:
            continue  # nobody would understand it later either
        if not isinstance(record, Spooled):
            yield 0, payload
        elif record.seq in keep:
            yield record.seq, payload
