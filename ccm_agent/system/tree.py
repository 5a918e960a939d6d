"""
A directory that is written into, and never left.

Paths below it are walked by descriptors. A symlink on the way is followed only as far as it stays below; one that leads out, or
that is absolute, is an error.
"""

from __future__ import annotations

import errno
import os
import posixpath
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ccm_agent.model.errors import FileError
from ccm_agent.system.accounts import group_id, user_id
from ccm_agent.system.directory import SYMLINKS_ON_THE_WAY, parent_of
from ccm_agent.system.entries import Entry

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Tree:
    """The directory, by its descriptor."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self.path = path
        self._is_root = os.geteuid() == 0
        self._ids: dict[tuple[str, int, bool], int] = {}

    def free_bytes(self) -> int:
        """What can still be written here."""
        space = os.fstatvfs(self._fd)
        return space.f_bavail * space.f_frsize

    def has(self, path: str) -> bool:
        """Whether something stands at a path; nothing is made on the way."""
        try:
            os.stat(path, dir_fd=self._fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def rename(self, path: str, new: str) -> None:
        """Give what stands at a path another name, which is free, in the same directory."""
        with self.parent(path) as (parent, name):
            os.rename(name, posixpath.basename(new), src_dir_fd=parent, dst_dir_fd=parent)

    def remove(self, path: str) -> None:
        """Remove what stands at a path, a directory with all that is in it; a symlink as such."""
        with self.parent(path) as (parent, name):
            found = _look(parent, name)
            if found and stat.S_ISDIR(found.st_mode):
                shutil.rmtree(name, dir_fd=parent)
            elif found:
                os.unlink(name, dir_fd=parent)

    def make_directory(self, path: str) -> None:
        """Make a directory; a symlink that stands there gives way, what else stands there is an error."""
        with self.parent(path) as (parent, name):
            found = _look(parent, name)
            if found and stat.S_ISLNK(found.st_mode):
                os.unlink(name, dir_fd=parent)
                found = None
            if found is None:
                os.mkdir(name, 0o755, dir_fd=parent)
            elif not stat.S_ISDIR(found.st_mode):
                raise FileError(
                    f"entry {path!r} is a directory, and something else stands there", errno=errno.ENOTDIR
                )

    def link(self, path: str, target: str) -> None:
        """A hardlink to a regular file that is below already."""
        with self.parent(target) as (source, name), self.parent(path) as (parent, own):
            found = _look(source, name)
            if not found or not stat.S_ISREG(found.st_mode):
                raise FileError(
                    f"entry {path!r} is a hardlink to {target!r}, which is no file that was unpacked"
                )
            temporary = f".ccm-link-{os.getpid()}-{id(path):x}"
            os.link(name, temporary, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
            _replace(parent, temporary, own, path)

    def put_in_place(self, parent: int, temporary: str, name: str, entry: Entry) -> None:
        """Give a new file or symlink its attributes and its name, in the place of what had it."""
        self._attributes(parent, temporary, entry)
        _replace(parent, temporary, name, entry.name)

    def set_attributes(self, path: str, entry: Entry) -> None:
        """Owner, mode and time of what is there."""
        with self.parent(path) as (parent, name):
            self._attributes(parent, name, entry)

    def _attributes(self, parent: int, name: str, entry: Entry) -> None:
        if self._is_root and entry.uid >= 0:
            owner = self._id(entry.user, entry.uid, is_group=False)
            group = self._id(entry.group, entry.gid, is_group=True)
            os.chown(name, owner, group, dir_fd=parent, follow_symlinks=False)
        if entry.kind != "symlink":
            # chmod by name follows a symlink, so it is done by the file itself
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=parent)
            try:
                default = 0o755 if entry.kind == "directory" else 0o644
                os.fchmod(fd, default if entry.mode < 0 else entry.mode)
            finally:
                os.close(fd)
        os.utime(name, (entry.mtime, entry.mtime), dir_fd=parent, follow_symlinks=False)

    def _id(self, name: str, number: int, *, is_group: bool) -> int:
        """The number of a name where this system knows it, else the archive's number, as tar has it."""
        key = (name, number, is_group)
        if key not in self._ids:
            try:
                self._ids[key] = (group_id if is_group else user_id)(name) if name else number
            except FileError:
                self._ids[key] = number
        return self._ids[key]

    @contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """The descriptor of the directory that holds `path`, made where it is missing, and the last part of it."""
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
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except IsADirectoryError as err:
        raise FileError(
            f"entry {path!r} is no directory, and a directory stands there", errno=errno.EISDIR
        ) from err
    finally:
        # rename leaves both names when they are hardlinks of one file
        try:
            os.unlink(temporary, dir_fd=parent)
        except FileNotFoundError:
            pass


@contextmanager
def open_tree(path: str) -> Iterator[Tree]:
    """
    Open a directory to write below it; it is made (0755), with those above it, where it is missing.

    A symlink at its end is followed: whoever names the directory says where it is.
    """
    try:
        Path(path).mkdir(0o755, parents=True, exist_ok=True)
    except OSError as err:
        raise FileError(
            f"{path}: the directory cannot be made: {err.strerror}", errno=err.errno or 0
        ) from err
    with parent_of(f"{path}/.") as place:
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place.fd)
        try:
            yield Tree(fd, path)
        finally:
            os.close(fd)
