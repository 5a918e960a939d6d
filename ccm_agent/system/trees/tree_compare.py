"""Inspects directory trees by path, without changing them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from itertools import islice

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import DIGEST_BYTES, Digest, Tree, TreeComparison, TreeEntry
from ccm_agent.system.atomic_write import reported
from ccm_agent.system.file_inspection import digest_of, kind_of, open_regular, read_regular, refuse_other
from ccm_agent.system.threads import CancelFlag

ENTRIES_MAX = 1_000_000
"""The maximum number of entries below a directory. Larger directories are refused."""
LISTED_MAX = 20_000
"""The maximum number of additional entries to list if they do not affect the result."""


class WalkedEntry:
    """
    A visited entry of a walk.

    Attributes:
        path: The path relative to the top.
        full: The full path.
        kind: See `TreeEntry`.
        seen: The lstat result of the entry.
    """

    __slots__ = ("full", "kind", "path", "seen")

    def __init__(self, path: str, full: str, seen: os.stat_result) -> None:
        self.path = path
        self.full = full
        self.seen = seen
        self.kind = kind_of(seen.st_mode)


def walk(top: str, stop: CancelFlag, *, must_enter: bool) -> Iterator[WalkedEntry]:
    """
    Yield everything below a directory in sorted order. Symlinks are not followed, and other file systems are not entered.

    Args:
        must_enter: Whether an unreadable directory is an error. If not, such directories are skipped.
    """
    with reported(top, "cannot be inspected"):
        device = os.lstat(top).st_dev
    waiting = [_listed(top, "", must_enter=True)]
    count = 0
    while waiting:
        entry = next(waiting[-1], None)
        if entry is None:
            waiting.pop()
            continue
        stop.check()
        count += 1
        if count > ENTRIES_MAX:
            raise FileError(f"{top}: contains more than {ENTRIES_MAX} files and directories")
        yield entry
        if entry.kind == "directory" and entry.seen.st_dev == device:
            waiting.append(_listed(entry.full, f"{entry.path}/", must_enter=must_enter))


def _listed(path: str, prefix: str, *, must_enter: bool) -> Iterator[WalkedEntry]:
    try:
        with os.scandir(path) as entries:
            names = sorted((entry.name for entry in islice(entries, ENTRIES_MAX + 1)), key=os.fsencode)
    except OSError as err:
        if must_enter and err.errno != errno.ENOENT:
            raise FileError(f"{path}: cannot be read: {err.strerror}", errno=err.errno or 0) from err
        return
    for name in names:
        full = f"{path}/{name}"
        try:
            yield WalkedEntry(prefix + name, full, os.lstat(full))
        except OSError as err:
            if must_enter and err.errno != errno.ENOENT:  # ENOENT: the directory was removed in the meantime
                raise FileError(f"{full}: cannot be inspected: {err.strerror}", errno=err.errno or 0) from err


def read(top: str, limit_bytes: int, stop: CancelFlag) -> Tree:
    """Read all files of a directory; see `Trees.read`."""
    with reported(top, "cannot be read"):
        kind = kind_of(os.lstat(top).st_mode)
    if kind != "directory":
        return Tree(kind=kind)
    entries = []
    left = limit_bytes
    for found in walk(top, stop, must_enter=True):
        content = b""
        if found.kind in ("file", "symlink"):
            content = _content(found, left, stop)
            left -= len(content)
        seen = found.seen
        entries.append(
            TreeEntry(
                path=found.path,
                kind=found.kind,
                content=content,
                mode=0 if found.kind == "symlink" else stat.S_IMODE(seen.st_mode),
                uid=seen.st_uid,
                gid=seen.st_gid,
            )
        )
    return Tree(kind=kind, entries=tuple(entries))


def _content(found: WalkedEntry, limit_bytes: int, stop: CancelFlag) -> bytes:
    if found.kind == "symlink" and not os.path.isfile(found.full):  # noqa: PTH113 - a Path costs more than the call
        return b""
    return read_regular(found.full, limit_bytes, stop)


def compare(
    top: str, wanted: Mapping[str, bytes | Digest], is_whole: bool, stop: CancelFlag
) -> TreeComparison:
    """Compare the desired files with the files on disk; see `Trees.compare`."""
    nothing = dict.fromkeys(wanted, "absent")
    try:
        is_link = stat.S_ISLNK(os.lstat(top).st_mode)
        seen = os.stat(top)  # noqa: PTH116 - a Path costs more than the call
    except FileNotFoundError:
        return TreeComparison(exists=False, files=nothing)
    except OSError as err:
        raise FileError(f"{top}: cannot be inspected: {err.strerror}", errno=err.errno or 0) from err
    if not stat.S_ISDIR(seen.st_mode):
        raise FileError(f"{top}: is not a directory, but must be one", errno=errno.ENOTDIR)
    if is_link:
        inside = None if not is_whole else _Inside(f"{top}/.", stop, is_whole=True)
        return TreeComparison(exists=True, files=_states(top, wanted, inside, is_whole, stop), extra=("",))
    inside = _Inside(top, stop, is_whole=is_whole)
    files = _states(top, wanted, inside, is_whole, stop)
    return TreeComparison(exists=True, files=files, extra=tuple(sorted(inside.others.keys() - wanted.keys())))


class _Inside:
    """The paths below a directory: the directories, and `others` with their kinds. The lists may be truncated."""

    def __init__(self, top: str, stop: CancelFlag, *, is_whole: bool) -> None:
        self.others: dict[str, str] = {}
        self.directories: set[str] = set()
        self._is_complete = True
        for found in walk(top, stop, must_enter=is_whole):
            if not is_whole and len(self.others) + len(self.directories) == LISTED_MAX:
                self._is_complete = False
                return
            if found.kind == "directory":
                self.directories.add(found.path)
            else:
                self.others[found.path] = found.kind

    def lacks(self, path: str, *, is_whole: bool) -> bool:
        """Whether a path is known not to exist. False if it exists or must be inspected."""
        way = self._way(path)
        if way:
            return way == "symlink" and is_whole
        return self._is_complete and path not in self.others and path not in self.directories

    def _way(self, path: str) -> str:
        """Return the kind of the first parent of a path that is not a directory; "" if there is no such parent."""
        at = path.find("/")
        while at >= 0:
            kind = self.others.get(path[:at])
            if kind is not None:
                return kind
            at = path.find("/", at + 1)
        return ""


def _states(
    top: str, wanted: Mapping[str, bytes | Digest], inside: _Inside | None, is_whole: bool, stop: CancelFlag
) -> dict[str, str]:
    states = {}
    for path, content in wanted.items():
        stop.check()
        if inside is not None and inside.lacks(path, is_whole=is_whole):
            states[path] = "absent"
        else:
            states[path] = _state(f"{top}/{path}", content, stop)
    return states


def _state(full: str, content: bytes | Digest, stop: CancelFlag) -> str:
    try:
        if isinstance(content, Digest):
            return "same" if _is_known(full, content, stop) else "differs"
        fd, seen = open_regular(full)
        try:
            return "same" if seen.st_size == len(content) and _reads_as(fd, content) else "differs"
        finally:
            os.close(fd)
    except FileNotFoundError:
        # a dangling symlink differs and will be replaced
        return "differs" if os.path.lexists(full) else "absent"
    except OSError as err:
        raise FileError(f"{full}: cannot be read: {err.strerror}", errno=err.errno or 0) from err


def _is_known(full: str, wanted: Digest, stop: CancelFlag) -> bool:
    seen = os.stat(full)  # noqa: PTH116 - a Path costs more than the call
    refuse_other(full, seen.st_mode)
    if not wanted.sha256 or wanted.size_bytes not in (-1, seen.st_size):
        return False
    limit_bytes = DIGEST_BYTES if wanted.size_bytes < 0 else wanted.size_bytes
    return digest_of(full, limit_bytes, stop)[1] == wanted.sha256


def _reads_as(fd: int, content: bytes) -> bool:
    at = 0
    while data := os.read(fd, len(content) + 1 - at):
        if content[at : at + len(data)] != data:
            return False
        at += len(data)
    return at == len(content)
