"""Removes a directory tree of any depth. This is safe even while other processes change the tree."""

from __future__ import annotations

import errno
import os

from ccm_agent.model.errors import FileError
from ccm_agent.system.threads import CancelFlag

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
LISTED_MAX = 10_000
"""The maximum number of subdirectories that are listed at a time. The remaining ones are listed after these are removed."""
ATTEMPTS = 20
"""
The maximum number of restarts after another process has moved or filled a directory. More restarts would indicate deliberate
interference.
"""


class _MovedError(Exception):
    """A directory was moved, or another process has created an entry in it."""


class _Level:
    """A directory of the current path: its name, its stat result, and the subdirectories that have not been removed yet."""

    __slots__ = ("directories", "is_listed", "name", "seen")

    def __init__(self, name: str, seen: os.stat_result) -> None:
        self.name = name
        self.seen = seen
        self.directories: list[str] = []
        self.is_listed = False


def remove_tree(parent: int, name: str, path: str, stop: CancelFlag) -> None:
    """
    Remove a directory and everything below it.

    Only one directory is open at a time, so the depth is not limited. Each directory is entered and left through its descriptor.
    If a symlink replaces a directory, the symlink itself is removed. A directory that is moved elsewhere is not followed.

    Args:
        parent: A descriptor of the parent directory.
        name: The directory's name in its parent.
        path: The directory's path, for errors.
        stop: Checked before each directory.

    Raises:
        FileError: The directory was moved or filled during the removal.
        OSError: An entry cannot be removed.
    """
    for _ in range(ATTEMPTS):
        try:
            _remove_once(parent, name, stop)
            return
        except _MovedError:
            continue
    raise FileError(f"{path}: another process changes its directories while it is being removed; try again")


def _remove_once(parent: int, name: str, stop: CancelFlag) -> None:
    try:
        fd = os.open(name, _OPEN, dir_fd=parent)
    except FileNotFoundError:
        return
    levels = [_Level(name, os.fstat(fd))]
    try:
        while levels:
            level = levels[-1]
            if not level.is_listed:
                stop.check()
                level.directories = _remove_files(fd)
                level.is_listed = len(level.directories) < LISTED_MAX
            if level.directories:
                fd = _enter(fd, level.directories.pop(), levels)
            else:
                fd = _leave(fd, parent, levels)
    finally:
        os.close(fd)


def _remove_files(fd: int) -> list[str]:
    """Remove all entries except directories, and return the names of the directories."""
    directories = []
    with os.scandir(fd) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) or not _is_unlinked(fd, entry.name):
                directories.append(entry.name)
                if len(directories) == LISTED_MAX:
                    break
    return directories


def _is_unlinked(fd: int, name: str) -> bool:
    try:
        os.unlink(name, dir_fd=fd)
    except FileNotFoundError:
        pass
    except IsADirectoryError:  # a directory has replaced a file in the meantime
        return False
    return True


def _enter(fd: int, name: str, levels: list[_Level]) -> int:
    """Enter a directory, unless it is no longer a directory. Return the descriptor of the current directory."""
    try:
        inner = os.open(name, _OPEN, dir_fd=fd)
    except FileNotFoundError:
        return fd
    except OSError as err:
        if err.errno in (errno.ELOOP, errno.ENOTDIR):
            _is_unlinked(fd, name)
            return fd
        raise
    levels.append(_Level(name, os.fstat(inner)))
    os.close(fd)
    return inner


def _leave(fd: int, parent: int, levels: list[_Level]) -> int:
    """Remove the open, empty directory, and return the descriptor of its parent."""
    level = levels.pop()
    above = _above(fd, parent, levels)
    try:
        os.rmdir(level.name, dir_fd=above)
    except OSError as err:
        os.close(above)
        if err.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise _MovedError from err
    os.close(fd)
    return above


def _above(fd: int, parent: int, levels: list[_Level]) -> int:
    if not levels:
        return os.dup(parent)
    try:
        above = os.open("..", _OPEN, dir_fd=fd)
    except FileNotFoundError as err:
        raise _MovedError from err
    if not os.path.samestat(os.fstat(above), levels[-1].seen):
        os.close(above)
        raise _MovedError
    return above
