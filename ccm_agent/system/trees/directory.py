"""
Opens the directory for a change, in a way that other users' symlinks cannot redirect the change.

The open directory is used through its descriptor, so later changes to the path have no effect. A symlink in the path is followed
only if root or this process's user owns it, or if it leads to a directory that the symlink's owner also owns. Therefore another
user's symlink cannot redirect a write by root to root's own files. (If fs.protected_symlinks is enabled, the kernel enforces part
of this rule in sticky directories.)
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from ccm_agent.model.errors import FileError
from ccm_agent.model.links import SYMLINKS_ON_THE_WAY
from ccm_agent.system.accounts import AccountNames

_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class Directory:
    """
    An open directory and the name of one entry in it.

    Attributes:
        fd: The descriptor for the `*at` calls, possibly opened with O_PATH.
        name: The name of the entry; "." for the root directory itself.
        path: The full path, for errors.
    """

    def __init__(self, fd: int, name: str, path: str) -> None:
        self.fd = fd
        self.name = name
        self.path = path

    def look(self) -> os.stat_result | None:
        """Return the lstat result of the entry; None if it does not exist."""
        try:
            return os.stat(self.name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def sync(self) -> None:
        """Flush changes of entries to disk. Does nothing if the file system does not support it."""
        try:
            fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.fd)
        except PermissionError:  # a directory may be writable but not readable
            return
        try:
            os.fsync(fd)
        except OSError:
            pass
        finally:
            os.close(fd)


@contextmanager
def open_parent(path: str, *, make_mode: int | None = None) -> Iterator[Directory]:
    """
    Open the directory that contains `path`, to change something in it.

    Args:
        make_mode: The mode for creating missing directories of the path. With None, missing directories are an error.

    Raises:
        FileError: The directory is missing, is not a directory or may not be entered, or the path contains an untrusted symlink.
    """
    if not path.startswith("/") or "\0" in path:
        raise FileError(f"{path!r}: this is not an absolute path")
    head, _, name = path.rpartition("/")
    walk = _Walk(path, make_mode)
    try:
        try:
            walk.go(head.split("/"))
        except FileNotFoundError as err:
            raise FileError(f"{path}: there is no directory {head}", errno=errno.ENOENT) from err
        except NotADirectoryError as err:
            raise FileError(f"{path}: {head} is not a directory", errno=errno.ENOTDIR) from err
        except OSError as err:
            raise FileError(f"{path}: {head}: {err.strerror}", errno=err.errno or 0) from err
        yield Directory(walk.fd, name or ".", path)
    finally:
        os.close(walk.fd)


class _Walk:
    def __init__(self, path: str, make_mode: int | None) -> None:
        self._path = path
        self._make_mode = make_mode
        self._symlinks = 0
        self.fd = os.open("/", _STEP | os.O_DIRECTORY)

    def go(self, parts: list[str], *, is_link: bool = False) -> None:
        """Walk a relative path from the current directory."""
        for part in parts:
            if part not in ("", "."):
                self._step(part, can_make=self._make_mode is not None and not is_link)

    def _step(self, part: str, *, can_make: bool) -> None:
        try:
            fd = os.open(part, _STEP, dir_fd=self.fd)
        except FileNotFoundError:
            if not can_make:
                raise
            os.mkdir(part, self._make_mode or 0, dir_fd=self.fd)
            fd = os.open(part, _STEP, dir_fd=self.fd)
        seen = os.fstat(fd)
        if not stat.S_ISLNK(seen.st_mode):
            self._enter(fd, seen)
            return
        try:
            target = os.readlink("", dir_fd=fd)
        finally:
            os.close(fd)
        self._follow(part, target, seen.st_uid)

    def _enter(self, fd: int, seen: os.stat_result) -> None:
        if not stat.S_ISDIR(seen.st_mode):
            os.close(fd)
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        os.close(self.fd)
        self.fd = fd

    def _follow(self, part: str, target: str, made_by: int) -> None:
        self._symlinks += 1
        if self._symlinks > SYMLINKS_ON_THE_WAY:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.startswith("/"):
            os.close(self.fd)
            self.fd = os.open("/", _STEP | os.O_DIRECTORY)
        self.go(target.split("/"), is_link=True)
        if made_by not in (0, os.geteuid()) and os.fstat(self.fd).st_uid != made_by:
            names = AccountNames()
            raise FileError(
                f"{self._path}: will not follow the symlink {part!r}, owned by user {names.user(made_by)}, to a directory owned "
                f"by user {names.user(os.fstat(self.fd).st_uid)}: use the directory's own path, "
                "or make root the owner of the link"
            )
