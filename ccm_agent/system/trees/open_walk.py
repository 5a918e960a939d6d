"""
Walks directory trees and accesses their entries through descriptors.

Below the top, symlinks are not followed and other file systems are not entered, even if other processes change the tree. Device
numbers do not reveal a bind mount of the same file system, so the kernel's mount IDs of directories are also compared. For files
this would need two more calls each, so they are looked up in the mount table instead.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Container, Iterator
from contextlib import contextmanager
from itertools import islice

from ccm_agent.model.errors import FileError
from ccm_agent.system.atomic_write import reported
from ccm_agent.system.file_inspection import name_of_kind, refuse_other
from ccm_agent.system.threads import CancelFlag
from ccm_agent.system.trees.directory import Directory, open_parent
from ccm_agent.system.trees.mount_points import MountPoints

ENTRIES_MAX = 100_000
"""The maximum number of entries below a directory."""
DEPTH_MAX = 100
"""The maximum depth of directories, each of which uses an open file."""
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FDINFO_BYTES = 4096


class OpenEntry:
    """
    A visited entry of a walk.

    Attributes:
        path: The path relative to the top.
        place: The entry in its open directory; valid until the walk continues.
        seen: The lstat result of the entry.
        is_mount: Whether the entry is a mount point. The walk does not enter it.
    """

    __slots__ = ("is_mount", "path", "place", "seen")

    def __init__(self, path: str, place: Directory, seen: os.stat_result, *, is_mount: bool) -> None:
        self.path = path
        self.place = place
        self.seen = seen
        self.is_mount = is_mount


class _Level:
    """An open directory of a walk, and the names in it that have not been visited yet, in reverse order."""

    __slots__ = ("fd", "names", "prefix")

    def __init__(self, fd: int, prefix: str, names: list[str]) -> None:
        self.fd = fd
        self.prefix = prefix
        self.names = names


def walk_open(
    top: int, shown: str, stop: CancelFlag, mounts: MountPoints, enters: Container[str] | None = None
) -> Iterator[OpenEntry]:
    """
    Yield everything below an open directory in sorted order, each directory before its content.

    Args:
        top: The descriptor of the directory, open for reading.
        shown: The path of the directory, for errors.
        stop: Checked before each entry.
        mounts: The mount points.
        enters: The paths of the directories to enter; None for all directories.

    Raises:
        FileError: A directory cannot be read, or the tree has too many entries or levels.
    """
    device, mount, points = os.fstat(top).st_dev, mount_id(top), mounts.below(top)
    levels: list[_Level] = []
    count = 0
    try:
        _push(levels, os.dup(top), "", shown)
        while levels:
            level = levels[-1]
            if not level.names:
                os.close(levels.pop().fd)
                continue
            stop.check()
            name = level.names.pop()
            path = level.prefix + name
            place = Directory(level.fd, name, f"{shown}/{path}")
            with reported(place.path, "cannot be inspected"):
                seen = place.look()
            if seen is None:  # the entry was removed in the meantime
                continue
            count += 1
            if count > ENTRIES_MAX:
                raise FileError(
                    f"{shown}: contains more than {ENTRIES_MAX} files and directories, which is the limit"
                )
            is_mount = seen.st_dev != device or path in points
            if stat.S_ISDIR(seen.st_mode) and not is_mount:
                fd = open_directory(place)
                is_mount = mount_id(fd) != mount
                if is_mount or (enters is not None and path not in enters):
                    os.close(fd)
                else:
                    _push(levels, fd, f"{path}/", shown)
            yield OpenEntry(path, place, seen, is_mount=is_mount)
    finally:
        for level in levels:
            os.close(level.fd)


def _push(levels: list[_Level], fd: int, prefix: str, shown: str) -> None:
    """Add an open directory to the levels of a walk. The walk closes it later."""
    level = _Level(fd, prefix, [])
    levels.append(level)
    if len(levels) > DEPTH_MAX:
        raise FileError(
            f"{shown}: has more than {DEPTH_MAX} levels of directories, which is the limit: {prefix[:80]}…"
        )
    with reported(f"{shown}/{prefix}".rstrip("/"), "cannot be read"), os.scandir(fd) as entries:
        names = [entry.name for entry in islice(entries, ENTRIES_MAX + 1)]
    level.names = sorted(names, key=os.fsencode, reverse=True)


def open_directory(place: Directory) -> int:
    """Open a directory for reading, without following a symlink. Raises FileError if the entry is no longer a directory."""
    try:
        return os.open(place.name, _OPEN, dir_fd=place.fd)
    except OSError as err:
        if err.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENOENT):
            raise FileError(
                f"{place.path}: another process replaced it just now; try again", errno=err.errno
            ) from err
        raise FileError(f"{place.path}: cannot be read: {err.strerror}", errno=err.errno or 0) from err


@contextmanager
def open_file(place: Directory, what: str = "") -> Iterator[int]:
    """
    Open a regular file for reading, without following a symlink.

    Args:
        place: The file.
        what: A prefix for the file in errors, such as "source ".

    Raises:
        FileError: The file cannot be read, or is not a regular file.
    """
    with reported(f"{what}{place.path}", "cannot be read"):
        fd = os.open(place.name, _OPEN_FILE, dir_fd=place.fd)
    try:
        refuse_other(place.path, os.fstat(fd).st_mode)
        yield fd
    finally:
        os.close(fd)


def mount_id(fd: int) -> int:
    """Return the kernel's ID of the mount that contains an open file; -1 if it is unknown. Source: proc_pid_fdinfo(5)."""
    try:
        info = os.open(f"/proc/self/fdinfo/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        text = os.read(info, _FDINFO_BYTES)
    finally:
        os.close(info)
    for line in text.splitlines():
        if line.startswith(b"mnt_id:"):
            return int(line[7:])
    return -1


@contextmanager
def open_top(path: str, what: str = "") -> Iterator[int]:
    """
    Open a directory, without following a symlink at the end of the path.

    Args:
        path: The absolute path.
        what: A prefix for the directory in errors, such as "source ".

    Raises:
        FileError: The path does not exist (ENOENT), or is not a directory.
    """
    try:
        with open_parent(path) as place:
            fd = _open_named(place, what)
    except FileError as err:
        message = err.message if err.message.startswith(what) else f"{what}{err.message}"
        raise FileError(message, errno=err.errno) from err
    try:
        yield fd
    finally:
        os.close(fd)


def _open_named(place: Directory, what: str) -> int:
    with reported(place.path, "cannot be inspected"):
        seen = place.look()
    if seen is None:
        raise FileError(f"{what}{place.path}: there is no such directory", errno=errno.ENOENT)
    if not stat.S_ISDIR(seen.st_mode):
        hint = "; name the directory itself" if stat.S_ISLNK(seen.st_mode) else ""
        raise FileError(
            f"{what}{place.path}: is a {name_of_kind(seen.st_mode)}, not a directory{hint}",
            errno=errno.ENOTDIR,
        )
    return open_directory(place)


class OpenDirectory:
    """
    Accesses entries below an open directory by their relative paths.

    The last used directory is kept open, because consecutive entries are often in the same directory.

    Args:
        top: The descriptor of the directory.
        shown: The path of the directory, for errors.
    """

    def __init__(self, top: int, shown: str) -> None:
        self._top = top
        self._shown = shown
        self._mount = mount_id(top)
        self._head = ""
        self._fd = os.dup(top)
        self._is_changed = False

    def __enter__(self) -> OpenDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def place(self, path: str) -> Directory:
        """
        Return an entry in its open directory. The result is valid until the next call.

        Raises:
            FileError: A directory in the path is missing, a symlink, or on another file system.
        """
        head, _, name = path.rpartition("/")
        if head != self._head:
            fd = self._open(head)
            self._leave()
            self._head, self._fd = head, fd
        return Directory(self._fd, name, f"{self._shown}/{path}")

    def note_change(self) -> None:
        """Record that the directory of the last entry was changed. It is flushed before the next directory is opened."""
        self._is_changed = True

    def _open(self, head: str) -> int:
        fd = os.dup(self._top)
        at = self._shown
        for part in head.split("/") if head else ():
            at = f"{at}/{part}"
            try:
                inner = open_directory(Directory(fd, part, at))
            finally:
                os.close(fd)
            fd = inner
            if mount_id(fd) != self._mount:
                os.close(fd)
                raise FileError(f"{at}: another file system was mounted there just now")
        return fd

    def _leave(self) -> None:
        if self._is_changed:
            Directory(self._fd, ".", self._shown).sync()
            self._is_changed = False
        os.close(self._fd)
