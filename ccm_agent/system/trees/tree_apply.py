"""Writes and removes directory trees. Each change is made through directory descriptors; see `directory.py`."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterable, Sequence

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import TreeEntry
from ccm_agent.system import file_attributes
from ccm_agent.system.atomic_write import reported, write_atomically
from ccm_agent.system.threads import CancelFlag
from ccm_agent.system.trees.directory import Directory, open_parent
from ccm_agent.system.trees.tree_compare import walk

DIRECTORY_MODE = 0o755
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def write(
    top: str,
    directories: Sequence[str],
    files: Sequence[TreeEntry],
    keep: Collection[str] | None,
    stop: CancelFlag,
) -> tuple[str, ...]:
    """Create directories and write files; see `Trees.write`."""
    gave_way: list[str] = []
    _make(top, None)
    for path in directories:
        stop.check()
        _make(f"{top}/{path}", None if keep is None else gave_way)
    removed = [path.removeprefix(f"{top}/") for path in gave_way]
    for file in files:
        stop.check()
        user, group = (str(number) if number >= 0 else "" for number in (file.uid, file.gid))
        write_atomically(f"{top}/{file.path}", file.content, user, group, file.mode, stop)
    if keep is not None and not os.path.islink(top):  # noqa: PTH114 - a Path costs more than the call
        removed += _purge(top, {*keep, *(file.path for file in files)}, stop)
    return tuple(removed)


def _make(path: str, gave_way: list[str] | None) -> None:
    """
    Create a directory unless it exists.

    Args:
        gave_way: A list to which the path of a removed symlink is added. If None, symlinks to directories are kept.
    """
    with (
        open_parent(path, make_mode=DIRECTORY_MODE) as place,
        reported(path, "the directory cannot be created"),
    ):
        seen = place.look()
        if seen is not None and stat.S_ISLNK(seen.st_mode):
            if gave_way is None:
                _refuse_other(place, os.stat(place.name, dir_fd=place.fd))
                return
            os.unlink(place.name, dir_fd=place.fd)
            gave_way.append(path)
            seen = None
        if seen is not None:
            _refuse_other(place, seen)
            return
        os.mkdir(place.name, DIRECTORY_MODE, dir_fd=place.fd)
        fd = os.open(place.name, _OPEN, dir_fd=place.fd)
        try:
            os.fchmod(fd, DIRECTORY_MODE)  # independent of the umask
        finally:
            os.close(fd)
        place.sync()


def _refuse_other(place: Directory, seen: os.stat_result) -> None:
    if not stat.S_ISDIR(seen.st_mode):
        raise FileError(f"{place.path}: is not a directory, but must be one", errno=errno.ENOTDIR)


def _purge(top: str, keep: Collection[str], stop: CancelFlag) -> list[str]:
    removed = []
    for found in list(walk(top, stop, must_enter=True)):
        if found.kind != "directory" and found.path not in keep:
            file_attributes.remove(found.full, False, stop)
            removed.append(found.path)
    return removed


def remove(top: str, files: Sequence[str], stop: CancelFlag) -> None:
    """Remove files and then empty directories; see `Trees.remove`."""
    failures: list[FileError] = []
    above: set[str] = set()
    for path in files:
        stop.check()
        try:
            file_attributes.remove(f"{top}/{path}", False, stop)
        except FileError as err:
            if err.errno != errno.ENOTDIR:
                failures.append(err)
        above.update(_parents(path))
    for path in sorted(above, key=lambda path: path.count("/"), reverse=True):
        _remove_if_empty(f"{top}/{path}")
    _remove_if_empty(top)
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise FileError(f"{failures[0].message}{more}", errno=failures[0].errno) from failures[0]


def _parents(path: str) -> Iterable[str]:
    at = path.rfind("/")
    while at > 0:
        path = path[:at]
        yield path
        at = path.rfind("/")


def _remove_if_empty(path: str) -> None:
    """Remove an empty directory. A symlink to a directory is kept."""
    try:
        with open_parent(path) as place:
            seen = place.look()
            if seen is not None and stat.S_ISDIR(seen.st_mode):
                os.rmdir(place.name, dir_fd=place.fd)
    except (FileError, OSError):
        return  # removal is best effort: the directory is not empty, is in use, or no longer exists
