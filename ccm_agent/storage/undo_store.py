"""
Stores the undo records of this node: a journal for each run that changed something, and the earlier contents of changed files.

Each content is stored in a file named by its SHA-256, so equal contents are stored only once. Folders have mode 0700 and files
have mode 0600, so only the owner can read them. Contents leave the node only as part of the diffs that an undo shows.

A resource is recorded before it is changed, so every change has a record even if the process is killed. If an entry cannot be
written, the whole record of the run is removed and replaced with a mark. An undo that silently omits changes would be worse than
none. The mark prevents a run that continues after a restart from beginning another record.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Collection
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import FileError, UndoError
from ccm_agent.model.formats.json_text import encode_message
from ccm_agent.model.formats.untrusted_json import Moment, decode_foreign
from ccm_agent.model.ids import is_id, short_id
from ccm_agent.model.outcome import SessionSummary
from ccm_agent.model.ports import Clock
from ccm_agent.model.records.undo import FILE_LIMIT_BYTES, Identity, UndoEntry, UndoRecord
from ccm_agent.storage.journal import Journal, read_records

log = logging.getLogger(__name__)

RUNS_LIMIT = 1000
"""The maximum number of runs with a record. The newest are kept. Each record is a small file."""

INCOMPLETE_LIMIT = 5
"""The maximum number of runs with an unfinished undo that are reported."""

UNKNOWN_END = "the result is unknown: the agent ended while it changed this resource"

LOST = ".lost"
"""The suffix of the file that marks a run whose record could not be written."""

UNDOING = ".undoing"
"""The suffix of the file that marks a run with an unfinished undo."""


class UndoLine(Struct, kw_only=True, omit_defaults=True):
    """
    One record of a journal.

    Attributes:
        time: The time at which the run changed its first resource. Only set in the first record.
        before: A resource before a change.
        type, name, left, has_changed: The resource and its state after a change.
    """

    time: Moment | None = None
    before: UndoEntry | None = None
    type: str = ""
    name: str = ""
    left: Identity | None = None
    has_changed: bool = True


class _KeptRun(Struct, kw_only=True):
    """
    The journal of a run.

    Attributes:
        path: The path of the journal.
        run: The run.
        time: The time at which the run changed its first resource.
        lines: The records of the journal.
        is_damaged: Whether a part of the journal is unreadable.
    """

    path: Path
    run: str
    time: datetime
    lines: list[UndoLine]
    is_damaged: bool

    @property
    def contents(self) -> set[str]:
        """Return the digests of the contents to which the journal refers."""
        return {line.before.content for line in self.lines if line.before and line.before.content}


class UndoStore:
    """
    Stores the undo records of this node; see `model.records.undo.UndoLog`.

    Args:
        folder: The folder of the records.
        clock: Used to determine the age of a run.
        keep_s: The maximum age of records in seconds; 0 disables the store.
        limit_bytes: The maximum total size of all contents; 0 disables the store.

    Attributes:
        folder: The folder of the contents.
        file_limit_bytes: The maximum size of one content. Larger contents are not stored.
        incomplete: The newest runs whose undo was stopped or killed before its end.
    """

    def __init__(self, folder: Path, clock: Clock, *, keep_s: float, limit_bytes: int) -> None:
        self.folder = str(folder / "content")
        self.incomplete: list[str] = []
        self.file_limit_bytes = min(FILE_LIMIT_BYTES, limit_bytes)
        self._root = folder
        self._runs = folder / "runs"
        self._clock = clock
        self._keep_s = keep_s
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._journal: Journal | None = None
        self._run = ""
        self._lost = ("", "")
        self._is_usable = False

    @property
    def is_on(self) -> bool:
        """Whether changes are recorded."""
        return self._keep_s > 0 and self._limit_bytes > 0 and self._is_usable

    def problem(self, run: str) -> str:
        """
        Return the reason why a run cannot be undone although changes are recorded; "" if there is no known reason. The reason is
        only known for the newest run.
        """
        lost, why = self._lost
        return why if lost == run else ""

    async def follow(self, undone: str, undo: Awaitable[SessionSummary]) -> SessionSummary:
        """
        Run an undo and return its result. The run is listed in `incomplete` until an undo of it has ended, even if the process is
        killed.
        """
        mark = self._runs / f"{undone}{UNDOING}"
        self.incomplete = [undone, *(run for run in self.incomplete if run != undone)][:INCOMPLETE_LIMIT]
        try:
            await asyncio.to_thread(mark.touch, 0o600)
        except OSError as err:
            log.warning(
                "an interruption of this undo would not be reported",
                extra={"run": undone, "reason": str(err)},
            )
        summary = await undo
        if not summary.reason:
            self.incomplete.remove(undone)
            await asyncio.to_thread(mark.unlink, missing_ok=True)
        return summary

    def open(self) -> None:
        """Create the folders. Remove old records, and incomplete data of an earlier process. Blocking."""
        try:
            for folder in (self._root, self._runs, Path(self.folder)):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                folder.chmod(0o700)
            self._is_usable = True
            self._forget_old(set())
            marked = sorted(
                self._runs.glob(f"*{UNDOING}"), key=lambda mark: mark.lstat().st_mtime, reverse=True
            )
            self.incomplete = [mark.stem for mark in marked[:INCOMPLETE_LIMIT]]
        except OSError as err:
            self._is_usable = False
            log.warning(
                "changes of runs cannot be recorded, so runs cannot be undone", extra={"reason": str(err)}
            )

    async def find(self, run: str) -> UndoRecord:
        """
        Return the undo record of a run.

        Raises:
            UndoError: This node has no record of the run, or the record is damaged.
        """
        kept = await asyncio.to_thread(self._read, self._runs / f"{run}.log") if is_id(run) else None
        if kept is None or not kept.lines or self._is_old(kept):
            raise UndoError(
                f"this node has no record of the run {run[:40]}: it changed nothing here, or its record was removed "
                f"({self._limits()})"
            )
        if kept.is_damaged:
            raise UndoError(f"the record of the run {short_id(run)} is damaged, so nothing was undone")
        return UndoRecord(run=run, folder=self.folder, entries=fold(kept.lines))

    async def make_room(self, run: str, size_bytes: int, *, undone: str = "") -> str:
        """See `UndoLog`."""
        if self._used_bytes + size_bytes > self._limit_bytes:
            try:
                await asyncio.to_thread(self._forget_old, {run, undone}, size_bytes)
            except OSError as err:
                return f"older runs cannot be removed: {err.strerror or err}"
        if self._used_bytes + size_bytes > self._limit_bytes:
            who = "this run and the one that it undoes" if undone else "this run"
            return f"{who} would need more than {self._limit_bytes >> 20} MiB (`undo_max_mib`)"
        self._used_bytes += size_bytes
        return ""

    async def before(self, run: str, entry: UndoEntry) -> None:
        """See `UndoLog`."""
        if await self._begin(run):
            await self._append(UndoLine(before=entry))

    async def after(self, run: str, entry: UndoEntry, *, has_changed: bool) -> None:
        """See `UndoLog`."""
        if run == self._run:
            await self._append(
                UndoLine(type=entry.type, name=entry.name, left=entry.left, has_changed=has_changed)
            )

    async def close(self, run: str) -> None:
        """See `UndoLog`."""
        if run != self._run:
            return
        journal, self._journal, self._run = self._journal, None, ""
        try:
            if journal is not None:
                await asyncio.to_thread(_close, journal)
            await asyncio.to_thread(self._forget_old, set())
        except (FileError, OSError) as err:
            log.warning("the record of a run may be lost", extra={"run": run, "reason": str(err)})

    # ---- internal ----

    async def _begin(self, run: str) -> bool:
        """Open the journal of a run. Return whether the run has a journal."""
        if run == self._run:
            return self._journal is not None
        if not self.is_on or not is_id(run):
            return False
        if self._journal is not None:  # the journal of a run that ended with an error
            await asyncio.to_thread(self._journal.close)
        self._run, self._journal = run, None
        journal = Journal(self._runs / f"{run}.log")
        if await asyncio.to_thread(journal.path.with_suffix(LOST).exists):
            return False
        try:
            found = await asyncio.to_thread(journal.open)
        except FileError as err:
            await self._lose(journal, err)
            return False
        self._journal = journal
        if not found.records:
            await self._append(UndoLine(time=self._clock.now()))
        return self._journal is not None

    async def _append(self, line: UndoLine) -> None:
        journal = self._journal
        if journal is None:
            return
        try:
            journal.append(encode_message(line))
        except FileError as err:
            self._journal = None
            await self._lose(journal, err)

    async def _lose(self, journal: Journal, why: FileError) -> None:
        """Replace an incomplete record with a mark."""
        log.warning("a run cannot be undone", extra={"run": self._run, "reason": str(why)})
        self._lost = self._run, str(why)
        try:
            await asyncio.to_thread(_mark_lost, journal)
        except OSError as err:
            log.error("an incomplete record of a run could not be removed", extra={"reason": str(err)})

    def _limits(self) -> str:
        if not self.is_on:
            return (
                "this node does not record changes: see `undo_keep` and `undo_max_mib` in its configuration"
            )
        return f"`undo_keep` is {self._keep_s / 86_400:g}d, `undo_max_mib` is {self._limit_bytes >> 20}"

    def _is_old(self, kept: _KeptRun) -> bool:
        return self._clock.now() - kept.time >= timedelta(seconds=self._keep_s)

    def _read(self, path: Path) -> _KeptRun | None:
        """Read a journal. Return None if it does not exist. Blocking."""
        try:
            found = read_records(path.read_bytes())
        except OSError:
            return None
        lines: list[UndoLine] = []
        is_damaged = bool(found.damaged_bytes)
        for _, payload in found.records:
            try:
                lines.append(decode_foreign(payload, UndoLine))
            except msgspec.DecodeError:
                is_damaged = True
        time = lines[0].time if lines else None
        return _KeptRun(
            path=path,
            run=path.stem,
            time=time or datetime.fromtimestamp(0, self._clock.now().tzinfo),
            lines=lines,
            is_damaged=is_damaged,
        )

    def _forget_old(self, current: Collection[str], needed_bytes: int = 0) -> None:
        """
        Remove records that are too old or exceed the limits, and contents to which no record refers. Blocking.

        Args:
            current: Runs whose records must be kept.
            needed_bytes: The total size of contents that will be added.
        """
        sizes = self._sizes()
        read = (self._read(path) for path in self._runs.glob("*.log"))
        kept = sorted((one for one in read if one is not None), key=lambda one: (one.time, one.run))
        uses = Counter(digest for one in kept for digest in one.contents)
        used_bytes = sum(size for name, size in sizes.items() if uses[name])
        count = len(kept)
        for old in kept:
            is_full = used_bytes + needed_bytes > self._limit_bytes
            if old.run in current or not (
                (is_full and old.contents) or count > RUNS_LIMIT or self._is_old(old)
            ):
                continue
            old.path.unlink(missing_ok=True)
            count -= 1
            uses.subtract(old.contents)
            used_bytes -= sum(sizes.get(digest, 0) for digest in old.contents if not uses[digest])
        for suffix in (LOST, UNDOING):
            marks = sorted(self._runs.glob(f"*{suffix}"), reverse=True)  # newest first
            for number, mark in enumerate(marks):
                age_s = self._clock.now().timestamp() - mark.lstat().st_mtime
                if number >= RUNS_LIMIT or age_s >= self._keep_s:
                    mark.unlink(missing_ok=True)
        for name in sizes:
            if not uses[name]:
                (Path(self.folder) / name).unlink(missing_ok=True)
        self._used_bytes = used_bytes

    def _sizes(self) -> dict[str, int]:
        """Return the sizes of all stored contents, by name."""
        return {path.name: path.lstat().st_size for path in Path(self.folder).iterdir()}


def fold(lines: list[UndoLine]) -> list[UndoEntry]:
    """
    Return the resources that a run changed, in the order in which they are undone. No I/O.

    If a resource was changed several times, the state before the first change and the state after the last change are used.
    """
    entries: dict[tuple[str, str], UndoEntry] = {}
    is_open: set[tuple[str, str]] = set()
    changed: set[tuple[str, str]] = set()
    for line in lines:
        if line.before is not None:
            key = line.before.type, line.before.name
            entries.setdefault(key, line.before)
            is_open.add(key)
            continue
        key = line.type, line.name
        entry = entries.get(key)
        if entry is None:
            continue
        is_open.discard(key)
        if line.has_changed:
            changed.add(key)
        entry.left = line.left
    for key in is_open:
        entries[key].why_not = entries[key].why_not or UNKNOWN_END
    return [entry for key, entry in reversed(entries.items()) if key in changed or key in is_open]


def _mark_lost(journal: Journal) -> None:
    """Mark a record as lost by renaming its file. Unlike creating a file, this works on a full disk."""
    journal.close()
    mark = journal.path.with_suffix(LOST)
    try:
        journal.path.replace(mark)
        os.truncate(mark, 0)
    except FileNotFoundError:
        mark.touch(mode=0o600)
    except OSError:
        journal.remove()


def _close(journal: Journal) -> Any:
    try:
        journal.flush()
    finally:
        journal.close()
