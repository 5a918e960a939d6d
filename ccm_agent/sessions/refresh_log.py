"""
A file of pending refreshes: the changed resources, and the subscribers that have not been refreshed since.

A change is recorded on disk before it is made, so a kill at any moment leaves both, or only the record. Lines are appended and
flushed. The file is rewritten when a run ends, and removed when nothing is pending. Names are stored as digests with a readable
label, because the name of a command can contain a secret. All functions block, so call them in a thread.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import FileError

VERSION = 1
LABEL_LENGTH = 200
CHANGES_LIMIT = 10_000
"""If a file has more changes than this, a single record states that any trigger may have changed."""

FILE_LIMIT_BYTES = 64 << 20
COMPACT_LINES = 1000
"""A file with more lines is rewritten when a run ends, even if that run was stopped."""

ANY = "*"


class LabelledResource(Struct, frozen=True, kw_only=True):
    """
    A resource in the form that a run uses.

    Attributes:
        label: The text for display, without secrets.
        references: The references that identify it: `type#name` and `type#alias`; for a subscriber, preceded by its parents.
    """

    label: str
    references: tuple[str, ...]


class StoredResource(Struct, frozen=True, array_like=True):
    """A resource as stored in the file: its label, and the digests of its references."""

    label: str
    keys: tuple[str, ...]


class TriggerChange(Struct, kw_only=True, omit_defaults=True):
    """
    A trigger that changed, or was about to change.

    Attributes:
        id: Identifies the change in its file.
        trigger: The resource.
        since: When it was about to change.
        waiting: Subscribers that have not been refreshed.
        is_open: Whether further subscribers may exist, because the run ended before it reached their declarations.
        done: Keys of refreshed subscribers; only stored while `is_open`.
    """

    id: str
    trigger: StoredResource
    since: datetime
    waiting: list[StoredResource] = []
    is_open: bool = False
    done: list[str] = []

    def waits_for(self, keys: Sequence[str]) -> bool:
        """Whether the subscriber with these keys has not been refreshed since."""
        if any(key in self.done for key in keys):
            return False
        return self.is_open or any(key in one.keys for one in self.waiting for key in keys)

    def refreshed(self, keys: Sequence[str]) -> None:
        """Record that the subscriber with these keys was refreshed."""
        self.waiting = [one for one in self.waiting if not any(key in one.keys for key in keys)]
        if self.is_open:
            self.done = [*self.done, *keys]

    @property
    def is_settled(self) -> bool:
        """Whether nothing is pending."""
        return not self.waiting and not self.is_open


class PendingRefresh(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A refresh that is pending.

    Attributes:
        resource: Label of the subscriber; "" if the run ended before it reached all subscribers.
        trigger: Label of the resource that changed.
        since: When it changed.
    """

    resource: str
    trigger: str
    since: datetime | None = None

    @property
    def sentence(self) -> str:
        """The text for display: the subscriber, or the subscribers of the trigger."""
        return self.resource or f"the subscribers of {self.trigger}"


class _Refreshed(Struct, frozen=True):
    keys: list[str]
    changes: list[str]


class _Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    version: int = 0
    scope: str = ""
    change: TriggerChange | None = None
    refreshed: _Refreshed | None = None
    dropped: list[str] = []


class RefreshRecord(Struct, kw_only=True):
    """
    The content of a file.

    Attributes:
        scope: The owner of the refreshes; "" if the file does not contain it.
        changes: The changes by id.
        lines: The number of lines in the file; 0 if there is no file.
        trouble: Why a part of the file cannot be read; "" if all of it can be read.
    """

    scope: str = ""
    changes: dict[str, TriggerChange] = {}
    lines: int = 0
    trouble: str = ""

    @property
    def pending(self) -> list[PendingRefresh]:
        """Return each pair of subscriber and trigger, oldest change first."""
        found = []
        for change in sorted(self.changes.values(), key=lambda one: one.since):
            labels = [one.label for one in change.waiting] or ([""] if change.is_open else [])
            found += [
                PendingRefresh(resource=label, trigger=change.trigger.label, since=change.since)
                for label in labels
            ]
        return found


class RefreshLog:
    """
    The pending refreshes of one manifest, source, assignment or session.

    Args:
        path: The file; its folder is created at the first write.
        scope: The owner of the refreshes.
        before_new: Called before the file is created.
        is_private: Whether to refuse a folder that other users can write to.
    """

    def __init__(
        self,
        path: Path,
        scope: str,
        before_new: Callable[[], None] = lambda: None,
        *,
        is_private: bool = True,
    ) -> None:
        self.path = path
        self.scope = scope
        self._before_new = before_new
        self._is_private = is_private

    def keys(self, resource: LabelledResource) -> tuple[str, ...]:
        """Return the digests of a resource's references."""
        return tuple(self.key(one) for one in resource.references)

    def key(self, reference: str) -> str:
        """Return the digest of one reference; it differs between scopes."""
        text = f"{self.scope}\0{reference}".encode(errors="surrogateescape")
        return hashlib.sha256(text).hexdigest()[:32]

    def kept(self, resource: LabelledResource) -> StoredResource:
        """Return a resource in the form that the file stores."""
        return StoredResource(resource.label[:LABEL_LENGTH], self.keys(resource))

    def load(self) -> RefreshRecord:
        """Read the file. If it cannot be read, this does not raise; `trouble` has the reason."""
        try:
            return replay(read_own_file(self.path))
        except FileNotFoundError:
            return RefreshRecord()
        except (OSError, ValueError) as err:
            reason = (err.strerror if isinstance(err, OSError) else None) or str(err)
            return RefreshRecord(trouble=f"{self.path}: {reason}")

    def add(self, change: TriggerChange) -> None:
        """
        Record that a resource is about to change. The record survives a power cut after this returns.

        Raises:
            FileError: The change could not be recorded.
        """
        self._append(_Line(change=change))

    def refreshed(self, keys: Sequence[str], changes: Sequence[str]) -> None:
        """
        Record that a subscriber was refreshed after these changes.

        Raises:
            FileError: The refresh could not be recorded.
        """
        self._append(_Line(refreshed=_Refreshed(list(keys), list(changes))))

    def drop(self, changes: Sequence[str]) -> None:
        """
        Record that these changes were not made.

        Raises:
            FileError: The record could not be written.
        """
        self._append(_Line(dropped=list(changes)))

    def settle(self, own: Mapping[str, TriggerChange]) -> None:
        """
        Rewrite the file at the end of a run, and remove it if nothing is pending.

        Records that other processes have added meanwhile are kept.

        Args:
            own: The current changes of this run, by id; settled changes are removed.

        Raises:
            FileError: The file could not be written; it is unchanged.
        """
        with self._locked():
            found = self.load().changes
            for number, change in own.items():
                if number in found:
                    found[number] = change
            left = [one for one in found.values() if not one.is_settled]
            if left:
                self._rewrite([self._header, *(_Line(change=one) for one in left)])
            else:
                self._remove()

    def compact(self) -> None:
        """
        Rewrite the file without outdated records.

        Raises:
            FileError: The file could not be written; it is unchanged.
        """
        self.settle({})

    def set_aside(self) -> None:
        """
        Rename a damaged file; its readable records are kept.

        Raises:
            FileError: The file could not be renamed.
        """
        with self._locked():
            found = self.load()
            if not found.trouble:
                return
            self.path.replace(self.path.with_suffix(".damaged"))
            if found.changes:
                self._rewrite([self._header, *(_Line(change=one) for one in found.changes.values())])

    def forget(self) -> None:
        """
        Remove the file, because its scope no longer exists.

        Raises:
            FileError: The file could not be removed.
        """
        if self.path.exists():
            with self._locked():
                self._remove()

    # ---- internals ----

    @property
    def _header(self) -> _Line:
        return _Line(version=VERSION, scope=self.scope)

    def _append(self, line: _Line) -> None:
        with self._locked():
            if not self.path.exists():
                self._before_new()
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self.path, flags, 0o600)
            try:
                size = cut_torn_line(fd)
                try:
                    write_all(fd, _encoded([line] if size else [self._header, line]))
                    os.fdatasync(fd)
                except OSError:
                    os.ftruncate(fd, size)
                    raise
            finally:
                os.close(fd)
            if not size:
                sync_folder(self.path.parent)

    def _rewrite(self, lines: Sequence[_Line]) -> None:
        replace_own_file(self.path, _encoded(lines))

    def _remove(self) -> None:
        self.path.unlink(missing_ok=True)
        sync_folder(self.path.parent)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the folder, and convert system errors to ours."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._is_private:
                refuse_shared(self.path.parent)
            from ccm_agent.sessions.folder_lock import folder_lock

            with folder_lock(self.path.parent):
                yield
        except OSError as err:
            raise FileError(
                f"{self.path}: cannot record pending refreshes: {err.strerror or err}", errno=err.errno or 0
            ) from err


def replay(content: bytes) -> RefreshRecord:
    """Read the lines of a file in order. Unreadable lines are skipped and reported."""
    found = RefreshRecord()
    bad = 0
    # Data after the last newline is incomplete, so its change was not made.
    for text in content.split(b"\n")[:-1]:
        found.lines += 1
        try:
            line = msgspec.json.decode(text, type=_Line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            bad += 1
            continue
        if line.version > VERSION:
            return RefreshRecord(
                lines=found.lines, trouble="it was written by a newer version of this program"
            )
        found.scope = line.scope or found.scope
        _follow(found.changes, line)
    if bad:
        found.trouble = f"{bad} of {found.lines} lines cannot be read"
    return found


def _follow(changes: dict[str, TriggerChange], line: _Line) -> None:
    if line.change is not None:
        changes[line.change.id] = line.change
    for number in line.dropped:
        changes.pop(number, None)
    if line.refreshed is not None:
        for number in line.refreshed.changes:
            if number in changes:
                changes[number].refreshed(line.refreshed.keys)
                if changes[number].is_settled:
                    del changes[number]


def _encoded(lines: Sequence[_Line]) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def cut_torn_line(fd: int) -> int:
    """Remove an incomplete last line, and return the new size."""
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        size = os.pread(fd, size, 0).rfind(b"\n") + 1
        os.ftruncate(fd, size)
    return size


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes to a file descriptor."""
    while data:
        data = data[os.write(fd, data) :]


def read_own_file(path: Path) -> bytes:
    """Return the content of a regular file of this user. Raises ValueError for anything else."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.geteuid()):
            raise ValueError("not a regular file of this user")
        content = file.read(FILE_LIMIT_BYTES + 1)
    if len(content) > FILE_LIMIT_BYTES:
        raise ValueError(f"larger than {FILE_LIMIT_BYTES} bytes")
    return content


def refuse_shared(folder: Path) -> None:
    """Refuse a folder that other users can write to: its records decide which resources are restarted or removed."""
    found = folder.stat()
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
        raise FileError(f"{folder}: other users can write there; use `chmod go-w`, or change its owner")


def replace_own_file(path: Path, data: bytes) -> None:
    """Replace a file of ours. After a kill or with a full disk, the old file remains."""
    fresh = path.with_suffix(".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(fresh, flags, 0o600)
    try:
        write_all(fd, data)
        os.fdatasync(fd)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    fresh.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the file names in a folder survive a power loss."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
