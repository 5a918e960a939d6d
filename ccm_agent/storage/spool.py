"""
The queue on disk of the events that the stream has not acknowledged yet, in order.

The spool is a folder of segments (`spool_files.py`). New segments are added at the end, and old ones are removed from the front.
An event leaves the queue when the stream has acknowledged it. It is removed from disk when its run has also ended. Therefore an
agent that was killed can still report the results of an unfinished run. When the spool is full, stable runs are dropped first,
then the oldest events. The number of dropped events is reported in an event. When the disk is full, events wait in memory until
there is space again.

An event receives its position in the node's chain when it is appended. The position does not change when sending is retried.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import FileError
from ccm_agent.storage.losses import Losses, choose
from ccm_agent.storage.spool_chain import Chain, boot_id, judge_files
from ccm_agent.storage.spool_files import SpoolFiles
from ccm_agent.storage.spool_segment import (
    Acked,
    Dropped,
    Entry,
    Found,
    Head,
    Kind,
    Lost,
    Spooled,
    make_entry,
    new_message_id,
)

log = logging.getLogger(__name__)

MEMORY_LIMIT_BYTES = 4 << 20
"""The maximum total size of events in memory while the disk is full."""

BODY_CACHE_BYTES = 256 << 10
"""The maximum total size of cached bodies. An event that is sent immediately need not be read back from disk."""


class OpenRun(Struct, frozen=True, kw_only=True):
    """An unfinished run, with its previous events in order."""

    run: str
    events: list[Spooled]


class Spool:
    """
    The event queue of an agent. `append` and `acknowledge` are called on the event loop and do not block for long. `open` blocks.

    Attributes:
        trouble: The reason why the newest event could not be written to disk; "" if it was written.
    """

    def __init__(self, folder: Path, *, limit_bytes: int, segment_bytes: int) -> None:
        """
        Args:
            folder: The folder of the spool. It must not contain other files.
            limit_bytes: The maximum size of the spool on disk.
            segment_bytes: The size at which the next file begins, at most an eighth of `limit_bytes`.
        """
        self.folder = folder
        self._files = SpoolFiles(folder, min(segment_bytes, limit_bytes // 8))
        self._chain = Chain()
        self._losses = Losses()
        self._limit_bytes = limit_bytes
        self._entries: dict[int, Entry] = {}
        self._runs: dict[str, dict[int, Entry]] = {}
        self._queue: deque[int] = deque()
        self.trouble = ""
        self._unstored: deque[int] = deque()
        self._cached_bytes = 0
        self._next_seq = 1
        self._own_from = 1
        self._arrived = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._room = asyncio.Lock()

    # -- opening

    def open(self) -> list[OpenRun]:
        """
        Read the spool of an earlier process and return its unfinished runs. Blocking.

        Raises:
            FileError: The folder cannot be used.
        """
        found = self._files.open()
        self._adopt(found)
        self._resume(found, boot_id())
        return [
            OpenRun(run=run, events=[self._files.load(entry) for entry in entries.values()])
            for run, entries in self._runs.items()
        ]

    def _adopt(self, found: Found) -> None:
        self._losses = Losses(found.lost.count, found.lost.places)
        closed = {entry.run for entry in found.entries.values() if entry.kind is Kind.SUMMARY}
        for seq, entry in found.entries.items():
            self._next_seq = max(self._next_seq, seq + 1)
            entry.is_acked = seq <= found.acked
            if seq in found.dropped or (entry.is_acked and (not entry.run or entry.run in closed)):
                continue
            self._index(entry)
            if entry.run and entry.run not in closed:
                self._runs.setdefault(entry.run, {})[seq] = entry
            if not entry.is_acked:
                self._queue.append(seq)
        newest = max(found.acked, found.head.seq if found.head else 0)
        self._next_seq = self._own_from = max(self._next_seq, newest + 1)
        if self._queue:
            self._arrived.set()
            self._emptied.clear()

    def _resume(self, found: Found, boot: str) -> None:
        """Continue the node's chain, or begin another one if sent events may be missing on disk."""
        self._chain.boot = boot
        resumed = judge_files(found, set(self._runs), self._files.load, boot)
        if resumed.is_safe and resumed.last is not None:
            self._chain.resume(resumed.last, resumed.tails)
        else:
            self._chain.begin(resumed.last, resumed.tails)
        is_noted = self._files.note_head(self._head())
        if resumed.is_stopped and not (is_noted and self._files.flush_now()):
            self._chain.begin(resumed.last, resumed.tails)
        self._chain.is_on_disk |= is_noted

    # -- writing

    def append(
        self,
        *,
        subject: str,
        event_id: str,
        body: bytes,
        run: str = "",
        number: int = 0,
        kind: Kind = Kind.AGENT,
        is_stable: bool = False,
    ) -> None:
        """
        Append an event to the queue. It survives if the process is killed; see `settle` for power losses.

        This never fails. An event that cannot be written waits in memory. If it does not fit there, it is counted as lost.
        """
        event = Spooled(
            seq=self._next_seq,
            subject=subject,
            event_id=event_id,
            body=body,
            run=run,
            number=number,
            kind=kind,
            is_stable=is_stable,
            message_id=new_message_id(),
        )
        self._next_seq += 1
        entry = make_entry(event, self._chain.take(event))
        entry.event = event
        self._entries[entry.seq] = entry
        self._queue.append(entry.seq)
        self._unstored.append(entry.seq)
        was_on_disk = self._chain.is_on_disk
        self._chain.is_on_disk = self._store_waiting()
        if was_on_disk and not self._chain.is_on_disk:
            place = self._chain.retake(event)
            entry.chain, entry.place = place.chain, place.number
        self._cached_bytes += entry.size
        if entry.segment is None:
            self._bound_memory()
        elif self._cached_bytes > BODY_CACHE_BYTES and len(self._queue) > 1:
            self._forget_body(entry)
        if run:
            self._track_run(entry)
        self._arrived.set()
        self._emptied.clear()

    def _track_run(self, entry: Entry) -> None:
        if entry.kind is Kind.SUMMARY:
            for earlier in self._runs.pop(entry.run, {}).values():
                if earlier.is_acked:
                    self._discard(earlier)
        elif entry.seq in self._entries:
            self._runs.setdefault(entry.run, {})[entry.seq] = entry

    def _store_waiting(self) -> bool:
        """Write the events in memory to disk, oldest first. Return False if some of them remain in memory."""
        while self._unstored:
            entry = self._entries.get(self._unstored[0])
            if entry is not None and entry.event is not None:
                entry.event.is_followed = len(self._unstored) > 1
                try:
                    head = partial(self._chain.head_before, entry.event)
                    entry.segment, entry.offset = self._files.append(entry.event, head)
                except FileError as err:
                    self.trouble = str(err)
                    if len(self._unstored) == 1:
                        log.warning("the spool keeps events in memory", extra={"reason": str(err)})
                    return False
                entry.segment.entries[entry.seq] = entry
                self.trouble = ""
            self._unstored.popleft()
        return True

    def _bound_memory(self) -> None:
        waiting = [self._entries[seq] for seq in self._unstored if seq in self._entries]
        excess = sum(entry.size for entry in waiting) - MEMORY_LIMIT_BYTES
        if excess > 0:
            self._drop(choose(waiting, excess))

    async def settle(self, *, flush: bool) -> None:
        """
        Free space if the spool exceeds its limit. With `flush`, also flush all appended events to disk, so that they survive a
        power loss.

        Disk errors are only logged, so that they do not delay convergence.
        """
        if flush:
            await self._files.flush()
        if self.size_bytes > self._limit_bytes:
            async with self._room:
                await self._make_room()

    # -- reading

    async def first(self) -> Spooled:
        """Wait for the next event to send, and return it. The event stays in the queue until it is acknowledged."""
        while True:
            while self._queue:
                entry = self._entries.get(self._queue[0])
                if entry is None:
                    self._queue.popleft()
                    continue
                if entry.event is not None:
                    return entry.event
                try:
                    # the lock prevents a file from being rewritten while it is read
                    async with self._room:
                        return await asyncio.to_thread(self._files.load, entry)
                except FileError as err:
                    log.error("an event cannot be read back from the spool", extra={"reason": str(err)})
                    self._drop([entry])
            self._arrived.clear()
            await self._arrived.wait()

    def is_carried_over(self, seq: int) -> bool:
        """Whether an earlier process appended the event, and therefore may have sent it."""
        return seq < self._own_from

    def acknowledge(self, seq: int) -> None:
        """Record that the stream has stored the event that `first` returned."""
        if self._queue and self._queue[0] == seq:
            self._queue.popleft()
        if not self._queue:
            self._emptied.set()
        entry = self._entries.get(seq)
        if entry is not None:
            entry.is_acked = True
            self._forget_body(entry)
            if not entry.run or entry.run not in self._runs:
                self._discard(entry)
        self._files.note(Acked(seq))
        if not self._entries and self._files.is_clearable and (segment := self._files.begin_segment()):
            self._chain.is_on_disk |= self._files.note_head(self._head(), segment)

    def give_up(self, seq: int) -> None:
        """Drop the event that `first` returned, because it cannot be sent. It is counted as lost."""
        entry = self._entries.get(seq)
        if entry is not None:
            self._drop([entry])

    def load_summary(self, run: str) -> Spooled | None:
        """Return the summary of a run whose events are still in the spool. Blocking, because it may read from disk."""
        ends = (entry for entry in self._entries.values() if entry.run == run and entry.kind is Kind.SUMMARY)
        entry = next(ends, None)
        return self._files.load(entry) if entry is not None else None

    def reported(self, count: int) -> None:
        """Record that an appended event reports this many lost events, and all positions."""
        self._losses.reported(count)
        self._note_lost()

    @property
    def lost(self) -> int:
        """Return the number of dropped events that are not reported yet."""
        return self._losses.count

    @property
    def last_link(self) -> str:
        """Return the chain link of the newest event."""
        return self._chain.last.link

    @property
    def lost_places(self) -> dict[str, str]:
        """Return the positions of the dropped events by chain, such as `5-90,101`."""
        return self._losses.format_ranges()

    async def emptied(self) -> None:
        """Wait until the queue is empty."""
        await self._emptied.wait()

    @property
    def backlog(self) -> int:
        """Return the number of waiting events."""
        return len(self._queue)

    def waiting_runs(self, limit: int) -> list[str]:
        """Return the runs of the oldest waiting events. Only this number of events is considered."""
        oldest = (self._entries.get(seq) for seq in itertools.islice(self._queue, limit))
        return list(dict.fromkeys(entry.run for entry in oldest if entry is not None and entry.run))

    @property
    def size_bytes(self) -> int:
        """Return the size of the spool on disk."""
        return self._files.size_bytes

    def close(self) -> None:
        """Close the files. Events that could not be written to disk are lost."""
        if self._files.is_open:
            self._drop([self._entries[seq] for seq in self._unstored if seq in self._entries])
            self._files.note(msgspec.structs.replace(self._head(), is_stopped=True))
        self._files.close()

    async def tidy(self) -> None:
        """Remove the oldest files that no longer contain events."""
        async with self._room:
            await self._remove_empty()

    @property
    def wants_tidying(self) -> bool:
        """Whether there is a file to remove."""
        return self._files.wants_tidying

    # -- room

    async def _make_room(self) -> None:
        """
        Drop the least important events, so that an eighth of the limit is free. Then rewrite the sealed files without these
        events.
        """
        target = self._limit_bytes - self._limit_bytes // 8
        live = sum(entry.size for entry in self._entries.values() if entry.segment is not None)
        if live > target:
            dropped = choose(list(self._entries.values()), live - target)
            log.warning("the spool is full: events are dropped", extra={"events": len(dropped)})
            self._drop(dropped)
        await self._files.shrink(target)
        await self._remove_empty()

    async def _remove_empty(self) -> None:
        if not self.wants_tidying:
            return
        if self.lost:
            # write the count again, because its last record may be in a removed file
            self._note_lost()
        await self._files.remove_empty()

    def _drop(self, entries: Iterable[Entry]) -> None:
        given_up = list(entries)
        for entry in given_up:
            self._discard(entry)
            if entry.run in self._runs:
                self._runs[entry.run].pop(entry.seq, None)
        self._queue = deque(seq for seq in self._queue if seq in self._entries)
        if not self._queue:
            self._emptied.set()
        lost = [entry for entry in given_up if not entry.is_acked]
        if lost:
            self._losses.add((entry.chain, entry.place) for entry in lost)
            self._files.note(Dropped([entry.seq for entry in lost]))
            self._note_lost()

    def _discard(self, entry: Entry) -> None:
        self._forget_body(entry)
        self._entries.pop(entry.seq, None)
        if entry.segment is not None:
            entry.segment.entries.pop(entry.seq, None)

    def _forget_body(self, entry: Entry) -> None:
        if entry.event is not None:
            entry.event = None
            self._cached_bytes -= entry.size

    def _note_lost(self) -> None:
        self._files.note(Lost(self._losses.count, self._losses.places))

    def _index(self, entry: Entry) -> None:
        self._entries[entry.seq] = entry
        if entry.segment is not None:
            entry.segment.entries[entry.seq] = entry

    def _head(self) -> Head:
        """Return the current head of the chain."""
        return self._chain.head(self._next_seq - 1)
