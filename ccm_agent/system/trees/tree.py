"""
Writes to a directory tree. No path in it can lead outside.

Paths below the tree are opened part by part, through descriptors. A symlink in a path is followed only if it stays below the
tree. A symlink that is absolute or leads outside is an error.
"""

from __future__ import annotations

import errno
import os
import posixpath
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from ccm_agent.model.errors import FileError
from ccm_agent.model.links import SYMLINKS_ON_THE_WAY
from ccm_agent.system.accounts import group_id, user_id
from ccm_agent.system.archives.archive_entries import ArchiveEntry
from ccm_agent.system.atomic_write import temporary_name
from ccm_agent.system.threads import CancelFlag
from ccm_agent.system.trees.directory import open_parent
from ccm_agent.system.trees.removal import remove_tree

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OpenTree:
    """The top directory of the tree, accessed through its descriptor."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self.path = path
        self._is_root = os.geteuid() == 0
        self._ids: dict[tuple[str, int, bool], int] = {}

    def free_bytes(self) -> int:
        """Return the free space in bytes."""
        space = os.fstatvfs(self._fd)
        return space.f_bavail * space.f_frsize

    def has(self, path: str) -> bool:
        """Whether a path exists. This does not create directories."""
        try:
            os.stat(path, dir_fd=self._fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def nameless_file(self) -> IO[bytes]:
        """Create an empty file without a name in the directory's file system. It disappears when it is closed."""
        try:
            fd = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC | os.O_EXCL, 0o600, dir_fd=self._fd)
        except OSError as err:  # the file system does not support it
            if err.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
                raise
            name = f".ccm-{secrets.token_hex(8)}"
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(name, flags, 0o600, dir_fd=self._fd)
            os.unlink(name, dir_fd=self._fd)
        return os.fdopen(fd, "w+b")

    def rename(self, path: str, new: str) -> None:
        """Rename an entry within its directory. The new name must not exist."""
        with self.parent(path) as (parent, name):
            os.rename(name, posixpath.basename(new), src_dir_fd=parent, dst_dir_fd=parent)

    def remove(self, path: str) -> None:
        """Remove a path. A directory is removed with its content; a symlink is not followed."""
        with self.parent(path) as (parent, name):
            found = _look(parent, name)
            if found and stat.S_ISDIR(found.st_mode):
                remove_tree(parent, name, f"{self.path}/{path}", CancelFlag())
            elif found:
                os.unlink(name, dir_fd=parent)

    def make_directory(self, path: str) -> None:
        """Create a directory. An existing symlink is replaced. Any other existing entry is an error."""
        with self.parent(path) as (parent, name):
            found = _look(parent, name)
            if found and stat.S_ISLNK(found.st_mode):
                os.unlink(name, dir_fd=parent)
                found = None
            if found is None:
                os.mkdir(name, 0o755, dir_fd=parent)
            elif not stat.S_ISDIR(found.st_mode):
                raise FileError(
                    f"entry {path!r} is a directory, but another kind of entry exists there",
                    errno=errno.ENOTDIR,
                )

    def link(self, path: str, target: str) -> None:
        """Create a hardlink to a regular file of this tree."""
        with self.parent(target) as (source, name), self.parent(path) as (parent, own):
            found = _look(source, name)
            if not found or not stat.S_ISREG(found.st_mode):
                raise FileError(
                    f"entry {path!r} is a hardlink to {target!r}, which is not a file that was unpacked"
                )
            temporary = temporary_name()
            os.link(name, temporary, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
            _replace(parent, temporary, own, path)

    def symlink(self, parent: int, name: str, entry: ArchiveEntry) -> None:
        """Create a symlink. An entry of the same name is replaced."""
        temporary = temporary_name()
        os.symlink(entry.link, temporary, dir_fd=parent)
        try:
            self.own_symlink(parent, temporary, entry)
        except BaseException:
            os.unlink(temporary, dir_fd=parent)
            raise
        _replace(parent, temporary, name, entry.name)

    def own_symlink(self, parent: int, name: str, entry: ArchiveEntry) -> None:
        """Set owner and time of a new symlink."""
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            found = os.fstat(fd)
            if not stat.S_ISLNK(found.st_mode) or found.st_nlink > 1:
                raise FileError(f"entry {entry.name!r}: another process replaced it just now")
            self._own(f"/proc/self/fd/{fd}", entry)
        finally:
            os.close(fd)

    def set_directory(self, path: str, entry: ArchiveEntry) -> None:
        """Set owner, mode and time of an existing directory."""
        with self.parent(path) as (parent, name):
            fd = os.open(name, _DIRECTORY, dir_fd=parent)
            try:
                self.set_attributes(fd, entry)
            finally:
                os.close(fd)

    def set_attributes(self, fd: int, entry: ArchiveEntry) -> None:
        """
        Set owner, mode and time of an open file or directory.

        A descriptor is used instead of the name. Otherwise the owner of the target directory could replace the file with another
        program, which would become setuid root.
        """
        self._own(fd, entry)
        default = 0o755 if entry.kind == "directory" else 0o644
        os.fchmod(fd, default if entry.mode < 0 else entry.mode)

    def _own(self, what: int | str, entry: ArchiveEntry) -> None:
        """Set owner and time of a descriptor, or of a path in /proc that refers to a descriptor."""
        if self._is_root and entry.uid >= 0:
            owner = self._id(entry.user, entry.uid, is_group=False)
            group = self._id(entry.group, entry.gid, is_group=True)
            os.chown(what, owner, group)
        os.utime(what, (entry.mtime, entry.mtime))

    def _id(self, name: str, number: int, *, is_group: bool) -> int:
        """Return the ID of a user or group name. If this system does not have the name, return the archive's ID, as tar does."""
        key = (name, number, is_group)
        if key not in self._ids:
            try:
                self._ids[key] = (group_id if is_group else user_id)(name) if name else number
            except FileError:
                self._ids[key] = number
        return self._ids[key]

    @contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """
        Open the parent directory of `path`, and create it if it is missing. Yields its descriptor and the last part of the path.
        """
        head, _, name = path.rpartition("/")
        walk = [os.dup(self._fd)]
        try:
            self._walk(walk, head.split("/") if head else [], path, SYMLINKS_ON_THE_WAY)
            yield walk[-1], name
        finally:
            for fd in walk:
                os.close(fd)

    def _walk(self, walk: list[int], parts: list[str], path: str, links: int) -> None:
        for part in parts:
            if part in ("", "."):
                continue
            if part == "..":
                if len(walk) == 1:
                    raise FileError(f"entry {path!r} leads out of {self.path} through a symlink")
                os.close(walk.pop())
                continue
            found = _look(walk[-1], part)
            if found is None:
                os.mkdir(part, 0o755, dir_fd=walk[-1])
            elif stat.S_ISLNK(found.st_mode):
                target = os.readlink(part, dir_fd=walk[-1])
                if target.startswith("/") or not links:
                    raise FileError(f"entry {path!r} leads out of {self.path} through the symlink {part!r}")
                self._walk(walk, target.split("/"), path, links - 1)
                continue
            walk.append(os.open(part, _DIRECTORY, dir_fd=walk[-1]))


def _look(parent: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _replace(parent: int, temporary: str, name: str, path: str) -> None:
    try:
        with replacing(path):
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    finally:
        # if both names are hardlinks of the same file, rename does nothing
        try:
            os.unlink(temporary, dir_fd=parent)
        except FileNotFoundError:
            pass


@contextmanager
def replacing(path: str) -> Iterator[None]:
    """Convert the error about replacing a directory to FileError."""
    try:
        yield
    except IsADirectoryError as err:
        raise FileError(
            f"entry {path!r} is not a directory, but a directory exists there", errno=errno.EISDIR
        ) from err


@contextmanager
def open_tree(path: str) -> Iterator[OpenTree]:
    """
    Open a directory to write below it. Missing directories of the path are created with mode 0755.

    A symlink at the end of the path is followed, because the path is given in the manifest.
    """
    # create the directory as part of the safe walk, so that another user's symlink cannot redirect this
    with open_parent(f"{path}/.", make_mode=0o755) as place:
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place.fd)
        try:
            yield OpenTree(fd, path)
        finally:
            os.close(fd)
