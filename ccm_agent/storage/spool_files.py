"""
The files of a spool. New segments are added at the end, old ones are removed from the front, and others can be rewritten with
fewer events.

This module does not handle runs, and does not choose the events to drop. The spool does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from ccm_agent.model.errors import FileError
from ccm_agent.storage.journal import Journal, sync_folder
from ccm_agent.storage.spool_segment import (
    Entry,
    Found,
    Head,
    Record,
    Segment,
    Spooled,
    decoder,
    encoder,
    measure_record,
    rewritten,
)

log = logging.getLogger(__name__)

CLEAR_BYTES = 64 << 10
"""
If the only file of an empty spool is larger than this, it is replaced by a new one. For smaller files this is not worthwhile,
because it costs as much as many acknowledgements.
"""


class SpoolFiles:
    """
    The segments of a spool, in order of age.

    Attributes:
        folder: The folder of the files.
    """

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        """
        Args:
            folder: The folder of the spool. It must not contain other files.
            segment_bytes: The size at which the next file begins.
        """
        self.folder = folder
        self._segment_bytes = segment_bytes
        self._segments: list[Segment] = []
        self._is_folder_new = True

    def open(self) -> Found:
        """
        Read the files of an earlier process. Blocking.

        Raises:
            FileError: The folder cannot be used.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            numbers = sorted(int(path.stem) for path in self.folder.glob("*.log") if path.stem.isdigit())
            for half in self.folder.glob("*.new"):
                half.unlink()
        except OSError as err:
            raise FileError(f"{self.folder}: cannot use as the spool: {err.strerror}") from err
        found = Found()
        for number in numbers or [1]:
            segment = Segment(number, Journal(self._path(number)))
            read = segment.journal.open()
            if read.damaged_bytes:
                log.error(
                    "the spool was damaged",
                    extra={"path": str(segment.journal.path), "bytes": read.damaged_bytes},
                )
            found.take(segment, read)
            self._segments.append(segment)
        return found

    def close(self) -> None:
        """Close the files."""
        for segment in self._segments:
            segment.journal.close()

    @property
    def is_open(self) -> bool:
        """Whether there is a file to write to."""
        return bool(self._segments)

    @property
    def size_bytes(self) -> int:
        """Return the size of the files on disk."""
        return sum(segment.journal.size for segment in self._segments)

    @property
    def is_clearable(self) -> bool:
        """Whether there is only one file, and it is large enough to be replaced when it no longer contains live events."""
        return len(self._segments) == 1 and self._segments[0].journal.size > CLEAR_BYTES

    @property
    def wants_tidying(self) -> bool:
        """Whether there is a file to remove."""
        return len(self._segments) > 1 and not self._segments[0].entries

    # -- writing

    def append(self, event: Spooled, head: Callable[[], Head]) -> tuple[Segment, int]:
        """
        Append an event. Return its file and its offset.

        Args:
            event: The event.
            head: Returns the chain's head before the event. It is written to a file that does not have a head yet.

        Raises:
            FileError: The disk is full or failing.
        """
        last = self._segments[-1]
        if last.journal.size and last.journal.size + measure_record(event) > self._segment_bytes:
            last = self.begin_segment() or last
        if not last.has_head and not self.note_head(head(), last):
            raise FileError(f"{last.journal.path}: cannot write; check the free disk space")
        return last, last.journal.append(encoder.encode(event))

    def begin_segment(self) -> Segment | None:
        """Begin another file. If there is no space for it, return None and continue to use the last file."""
        number = self._segments[-1].number + 1
        journal = Journal(self._path(number))
        try:
            journal.open()
        except FileError as err:
            log.warning("the spool cannot create another file", extra={"reason": str(err)})
            return None
        self._segments.append(Segment(number, journal))
        self._is_folder_new = True
        return self._segments[-1]

    def note_head(self, head: Head, segment: Segment | None = None) -> bool:
        """Write the chain's head. Return False if this failed."""
        segment = segment or self._segments[-1]
        is_noted = self.note(head, segment)
        segment.has_head |= is_noted
        return is_noted

    def note(self, record: Record, segment: Segment | None = None) -> bool:
        """Write a mark to a file, by default to the last one. Return False if this failed."""
        # a missing mark is harmless: an event is sent again after a restart, and readers detect the duplicate by its number
        try:
            (segment or self._segments[-1]).journal.append(encoder.encode(record))
        except FileError as err:
            log.debug("a mark is missing from the spool", extra={"reason": str(err)})
            return False
        return True

    async def flush(self) -> bool:
        """Flush all appended records to disk, so that they survive a power loss. Return whether this succeeded."""
        if not self._segments:
            return True
        # get the file now, because another file may begin before a thread is available
        return await asyncio.to_thread(self._is_flushed, self._segments[-1].journal)

    def flush_now(self) -> bool:
        """Flush immediately; see `flush`. Blocking."""
        return self._is_flushed(self._segments[-1].journal)

    def _is_flushed(self, journal: Journal) -> bool:
        try:
            if self._is_folder_new:
                self._is_folder_new = False
                sync_folder(self.folder)  # flush the names of new files
            journal.flush()
        except (FileError, OSError) as err:
            log.error("the spool may lose events in a power failure", extra={"reason": str(err)})
            return False
        return True

    # -- reading

    def load(self, entry: Entry) -> Spooled:
        """
        Return the event of an entry. Blocking if it is not in memory.

        Raises:
            FileError: The event cannot be read from disk.
        """
        if entry.event is not None:
            return entry.event
        if entry.segment is None:
            raise FileError(f"{self.folder}: event {entry.seq} is neither in memory nor on disk")
        record = decoder.decode(entry.segment.journal.read_at(entry.offset))
        if not isinstance(record, Spooled) or record.seq != entry.seq:
            raise FileError(f"{entry.segment.journal.path}: a different record is at {entry.offset}")
        return record

    # -- room

    async def shrink(self, target_bytes: int) -> None:
        """Rewrite sealed files without dead events, until the total size of all files is at most this."""
        for segment in self._segments[:-1]:
            if self.size_bytes <= target_bytes:
                break
            if segment.live_bytes < segment.journal.size:
                await self._rewrite(segment)

    async def remove_empty(self) -> None:
        """Remove the oldest files that no longer contain live events."""
        # flush first, because the removed file may be the only one on disk with the chain's head
        await self.flush()
        while self.wants_tidying:
            await asyncio.to_thread(self._segments.pop(0).journal.remove)

    async def _rewrite(self, segment: Segment) -> None:
        keep = set(segment.entries)
        try:
            journal, offsets = await asyncio.to_thread(rewritten, segment.journal.path, keep)
        except (OSError, FileError) as err:
            log.error("the spool cannot be made smaller", extra={"reason": str(err)})
            return
        segment.journal.close()
        segment.journal = journal
        for seq, entry in segment.entries.items():
            entry.offset = offsets.get(seq, entry.offset)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}.log"
