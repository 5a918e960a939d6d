"""Removing a directory with all that is in it, however deep it is, and whoever changes it meanwhile."""

from __future__ import annotations

import errno
import os

from ccm_agent.model.errors import FileError
from ccm_agent.system.threads import CancelFlag

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
LISTED_MAX = 10_000
"""So many directories in one are known at a time; the others are looked for when those are gone."""
ATTEMPTS = 20
"""How often it is tried again from the top when somebody moves or fills a directory meanwhile; more is done on purpose."""


class _MovedError(Exception):
    """A directory is not where it was, or not as empty."""


class _Level:
    """A directory on the way down: its name, what it is, and which directories in it are still to be removed."""

    __slots__ = ("directories", "is_listed", "name", "seen")

    def __init__(self, name: str, seen: os.stat_result) -> None:
        self.name = name
        self.seen = seen
        self.directories: list[str] = []
        self.is_listed = False


def remove_tree(parent: int, name: str, path: str, stop: CancelFlag) -> None:
    """
    Remove a directory and all that is below it.

    One directory is open at a time, so no depth is too deep, and each is entered and left by its descriptor: a symlink that takes
    the place of a directory is removed as such, and a directory that is moved meanwhile is not followed to where it went.

    Args:
        parent: A descriptor of the directory that holds it.
        name: Its name there.
        path: The same, for errors.
        stop: Asked before each directory.

    Raises:
        FileError: It is moved or filled while it is removed.
        OSError: Something in it cannot be removed.
    """
    for _ in range(ATTEMPTS):
        try:
            _remove_once(parent, name, stop)
            return
        except _MovedError:
            continue
    raise FileError(
        f"{path}: another process moves or fills its directories while it is being removed; try again"
    )


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
    """Remove what is not a directory; the names of the directories."""
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
    except IsADirectoryError:  # it has just taken the place of a file
        return False
    return True


def _enter(fd: int, name: str, levels: list[_Level]) -> int:
    """Go down into a directory, unless it is none any more; the descriptor to go on with."""
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
    """Remove the directory that is open, which is empty; the descriptor of the one above."""
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
