"""
A file with the resources that the runs of one manifest created on this host. `prune` may remove only these.

A resource is recorded before it is created, so a kill at any moment leaves both, or only the record. Each line has a checksum.
An incomplete last line is dropped: its change was not made. A file that is damaged elsewhere, that another user could have
written, or that belongs to another manifest is not used and does not lead to removals.

The file contains names and digests, but no contents and no secrets. All functions block, so call them in a thread.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import zlib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import FileError, LockError
from ccm_agent.model.records.undo import Identity
from ccm_agent.sessions.refresh_log import (
    cut_torn_line,
    read_own_file,
    refuse_shared,
    replace_own_file,
    sync_folder,
    write_all,
)

log = logging.getLogger(__name__)

VERSION = 1
SUFFIX = ".ledger"
ENTRIES_LIMIT = 10_000
"""The maximum number of resources recorded for one manifest."""

ENTRY_LIMIT_BYTES = 16 << 10
"""A resource with a larger record, such as one with a very long name, is not recorded."""

LEDGERS_LIMIT = 1000
"""The maximum number of ledgers in a folder."""

Key = tuple[str, str]
"""Type and name of a resource."""


class LedgerEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A resource that runs of a manifest created, or that existed before and was changed.

    Attributes:
        type, name: The resource.
        owners: `type#name` of the manifest's resources that manage it: the resource itself, or the directory or edit that wrote
            it.
        run: The run that created it; "" for a run without an id.
        removal: The properties that remove it; empty if it existed before.
        left: The state after the last run; None while unknown.
    """

    type: str
    name: str
    owners: tuple[str, ...]
    run: str = ""
    removal: dict[str, Any] = {}
    left: Identity | None = None

    @property
    def key(self) -> Key:
        """Type and name."""
        return self.type, self.name

    @property
    def reference(self) -> str:
        """`type#name`."""
        return f"{self.type}#{self.name}"


class _Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    version: int = 0
    scope: str = ""
    put: LedgerEntry | None = None
    drop: Key | None = None


class CreationLedger:
    """
    The ledger of one manifest or assignment.

    Args:
        folder: The folder of ledgers; created at the first write.
        scope: The owner of the ledger.

    Attributes:
        entries: The recorded resources, by type and name, in the order of their creation.
        trouble: Why the ledger is not used; "" if it is.
    """

    def __init__(self, folder: Path, scope: str) -> None:
        digest = hashlib.sha256(scope.encode(errors="surrogateescape")).hexdigest()
        self.path = folder / f"{digest[:40]}{SUFFIX}"
        self.scope = scope
        self.entries: dict[Key, LedgerEntry] = {}
        self.trouble = ""
        self._lines = 0
        self._lock = -1
        self._fd = -1

    def lock(self) -> None:
        """
        Lock out other processes until `close`. Call this before `load` in a run that makes changes.

        Raises:
            LockError: Another run of this manifest is in progress.
            FileError: The lock cannot be created, or other users can write to the folder.
        """
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            refuse_shared(self.path.parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._lock = os.open(self.path.with_suffix(".lock"), flags, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise LockError(
                "another run of this manifest is in progress, and `prune` allows only one; try again later"
            ) from None
        except OSError as err:
            self.close()
            raise _unwritable(self.path, err) from err

    def load(self) -> None:
        """Read the ledger. If it must not be used, there are no entries, and `trouble` has the reason."""
        self.entries, self.trouble, self._lines = {}, "", 0
        try:
            refuse_shared(self.path.parent)
            found = replay(read_own_file(self.path))
        except FileNotFoundError:
            return
        except (FileError, OSError, ValueError) as err:
            reason = (err.strerror if isinstance(err, OSError) else None) or str(err)
            self.trouble = f"{self.path}: {reason}"
            return
        if found.scope and found.scope != self.scope:
            self.trouble = f"{self.path}: it belongs to another manifest"
        elif found.trouble:
            self.trouble = f"{self.path}: {found.trouble}"
        else:
            self.entries, self._lines = found.entries, found.lines

    def set_aside(self) -> None:
        """
        Rename an unusable ledger, so that a new one is started.

        Raises:
            FileError: The ledger cannot be renamed.
        """
        try:
            self.path.replace(self.path.with_suffix(".damaged"))
            sync_folder(self.path.parent)
        except FileNotFoundError:
            return
        except OSError as err:
            raise _unwritable(self.path, err) from err

    def put(self, entries: Iterable[LedgerEntry]) -> int:
        """
        Record resources; a later record of a resource replaces an earlier one. The records survive a kill after this returns.

        Returns the number of recorded resources, because number and size are limited.

        Raises:
            FileError: The resources could not be recorded.
        """
        known, added = set(self.entries), []
        for one in entries:
            is_small = len(msgspec.json.encode(one)) <= ENTRY_LIMIT_BYTES
            if is_small and (one.key in known or len(known) < ENTRIES_LIMIT):
                known.add(one.key)
                added.append(one)
        self._append([_Line(put=one) for one in added])
        self.entries.update((one.key, one) for one in added)
        return len(added)

    def drop(self, key: Key) -> None:
        """
        Record that a resource no longer belongs to the manifest: it was removed or released.

        Raises:
            FileError: The change could not be recorded.
        """
        self._append([_Line(drop=key)])
        self.entries.pop(key, None)

    def close(self) -> None:
        """
        End the run: make the records survive a power loss, and rewrite a file with many outdated lines.

        Raises:
            FileError: The file could not be written; it is unchanged.
        """
        try:
            if self._fd >= 0:
                os.fdatasync(self._fd)
                if self._lines > 2 * len(self.entries) + 1:
                    self._rewrite()
        except OSError as err:
            raise _unwritable(self.path, err) from err
        finally:
            for fd in (self._fd, self._lock):
                if fd >= 0:
                    os.close(fd)
            self._fd = self._lock = -1

    def _append(self, lines: Sequence[_Line]) -> None:
        if not lines:
            return
        try:
            if self._fd < 0:
                flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
                self._fd = os.open(self.path, flags, 0o600)
                if not cut_torn_line(self._fd):
                    _make_room(self.path)
                    write_all(self._fd, _encoded([_Line(version=VERSION, scope=self.scope)]))
                    sync_folder(self.path.parent)
                    self._lines += 1
            size = os.fstat(self._fd).st_size
            try:
                write_all(self._fd, _encoded(lines))
            except OSError:
                os.ftruncate(self._fd, size)
                raise
        except OSError as err:
            raise _unwritable(self.path, err) from err
        self._lines += len(lines)

    def _rewrite(self) -> None:
        lines = [
            _Line(version=VERSION, scope=self.scope),
            *(_Line(put=one) for one in self.entries.values()),
        ]
        replace_own_file(self.path, _encoded(lines))


class ReadLedger(Struct, kw_only=True):
    """The content of a ledger: its scope, its entries, the number of lines, and why it must not be used."""

    scope: str = ""
    entries: dict[Key, LedgerEntry] = {}
    lines: int = 0
    trouble: str = ""


def replay(content: bytes) -> ReadLedger:
    """Read the lines of a ledger in order."""
    found = ReadLedger()
    # Data after the last newline is incomplete, so its change was not made.
    for text in content.split(b"\n")[:-1]:
        found.lines += 1
        line = _decoded(text)
        if line is None or (found.lines == 1 and not (line.version and line.scope)):
            return ReadLedger(scope=found.scope, trouble=f"line {found.lines} is damaged")
        if line.version > VERSION:
            return ReadLedger(trouble="it was written by a newer version of this program")
        found.scope = found.scope or line.scope
        if line.put is not None:
            found.entries[line.put.key] = line.put
        if line.drop is not None:
            found.entries.pop(line.drop, None)
    return found


def find_claims(folder: Path, scope: str) -> set[str]:
    """
    Return `type#name` of the resources in the ledgers of other manifests. Ledgers of deleted manifest files are ignored.

    Raises:
        FileError: A ledger cannot be read or is damaged, so the resources of its manifest are unknown.
    """
    claims: set[str] = set()
    for path in folder.glob(f"*{SUFFIX}"):
        try:
            found = replay(read_own_file(path))
        except FileNotFoundError:
            continue
        except OSError as err:
            raise _unreadable(path, err.strerror or str(err)) from err
        except (FileError, ValueError) as err:
            raise _unreadable(path, str(err)) from err
        if found.scope == scope or _is_gone(found.scope):
            continue
        if found.trouble:
            raise _unreadable(path, found.trouble)
        claims.update(one.reference for one in found.entries.values())
    return claims


def forget(folder: Path, scope: str) -> None:
    """Remove the ledger of a scope that no longer exists; the resources that its runs created stay."""
    path = CreationLedger(folder, scope).path
    try:
        for one in (path, path.with_suffix(".lock")):
            one.unlink(missing_ok=True)
    except OSError as err:
        log.warning(
            "the record of created resources cannot be removed", extra={"scope": scope, "reason": str(err)}
        )


def forget_others(folder: Path, kind: str, scopes: Collection[str]) -> None:
    """Remove the ledgers of all scopes with this prefix, except for these."""
    for path in folder.glob(f"*{SUFFIX}"):
        try:
            scope = replay(read_own_file(path)).scope
        except (OSError, ValueError):
            continue
        if scope.startswith(kind) and scope not in scopes:
            forget(folder, scope)


def _make_room(new: Path) -> None:
    """Limit the number of ledgers by removing the oldest."""
    paths = [path for path in new.parent.glob(f"*{SUFFIX}") if path != new]
    if len(paths) < LEDGERS_LIMIT:
        return
    paths.sort(key=lambda path: path.lstat().st_mtime)
    for path in paths[: len(paths) - LEDGERS_LIMIT + 1]:
        path.unlink(missing_ok=True)


def _is_gone(scope: str) -> bool:
    kind, _, path = scope.partition(" ")
    return kind == "manifest" and not Path(path).exists()


def _encoded(lines: Sequence[_Line]) -> bytes:
    bodies = (msgspec.json.encode(line) for line in lines)
    return b"".join(b"%08x %s\n" % (zlib.crc32(body), body) for body in bodies)


def _decoded(text: bytes) -> _Line | None:
    """Return a line; None if it is damaged."""
    checksum, _, body = text.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(body):
        return None
    try:
        return msgspec.json.decode(body, type=_Line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _unreadable(path: Path, reason: str) -> FileError:
    return FileError(
        f"{path}: the record of another manifest cannot be used: {reason}; "
        "apply that manifest again, or remove the file"
    )


def _unwritable(path: Path, err: OSError) -> FileError:
    return FileError(f"{path}: cannot record created resources: {err.strerror or err}", errno=err.errno or 0)
