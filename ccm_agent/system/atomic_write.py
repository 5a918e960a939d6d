"""Writes files atomically."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import ContentRef
from ccm_agent.system.accounts import group_id, user_id
from ccm_agent.system.attributes import carry_over, set_owner_and_mode
from ccm_agent.system.file_inspection import (
    name_of_kind,
    open_regular,
    refuse_misled,
    refuse_other,
    why_unread,
)
from ccm_agent.system.threads import CancelFlag
from ccm_agent.system.trees.directory import Directory, open_parent

COPY_BYTES = 1 << 20
COPY_LIMIT_BYTES = 1 << 50
"""The maximum size to copy. Free space is checked first."""
LARGE_BYTES = 16 << 20
"""Free space is only checked for files that are larger than this."""
NO_SIZE_BYTES = 64 << 20
"""The maximum size to copy from a source without a size, such as files under /proc."""
_NAMELESS = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
_NAMED = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Fill = Callable[[int], None]


def write_atomically(
    path: str, content: bytes | ContentRef, owner: str, group: str, mode: int, stop: CancelFlag
) -> None:
    """Write a file either completely or not at all; see `Files.write`."""
    uid, gid = user_id(owner), group_id(group)
    with _filling(content, stop) as fill, open_parent(path) as place:
        write_in(place, fill, uid, gid, mode)


def write_in(place: Directory, fill: Fill, uid: int, gid: int, mode: int) -> None:
    """Write a file in an open directory, either completely or not at all. A uid or gid of -1 is that of this process."""
    with reported(place.path, "cannot be written"):
        _refuse_to_replace(place)
        with new_file(place) as new:
            fill(new.fd)
            _put_in_place(new, place, uid, gid, mode)


def replace_atomically(staged: str, path: str, owner: str, group: str, mode: int) -> None:
    """Replace a file with another existing file; see `Files.replace`."""
    uid, gid = user_id(owner), group_id(group)
    directory, _, name = staged.rpartition("/")
    if directory != path.rpartition("/")[0]:
        raise FileError(
            f"{staged}: is not in the same directory as {path}, so it cannot replace it atomically"
        )
    with open_parent(path) as place, reported(path, "cannot be written"):
        _refuse_to_replace(place)
        fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=place.fd)
        with NewFile(fd, name, place) as new:
            seen = os.fstat(fd)
            refuse_other(staged, seen.st_mode)
            if seen.st_uid != os.geteuid() or seen.st_nlink > 1:
                raise FileError(
                    f"{path}: another process replaced the new file before it was put in place; nothing was changed"
                )
            _put_in_place(new, place, uid, gid, mode)


def link_atomically(path: str, target: str, owner: str, group: str, force: bool) -> None:
    """Create or replace a symlink; see `Files.link`."""
    uid, gid = user_id(owner), group_id(group)
    with open_parent(path) as place, reported(path, "the symlink cannot be created"):
        old = place.look()
        mode = old.st_mode if old is not None else stat.S_IFLNK
        replaceable = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
        if not (stat.S_ISLNK(mode) or (force and replaceable)):
            raise FileError(f"{path}: this is a {name_of_kind(mode)}, not a symlink")
        name = temporary_name()
        os.symlink(target, name, dir_fd=place.fd)
        try:
            if (uid, gid) != (-1, -1):
                _give_link_away(place, name, uid, gid)
            if stat.S_ISDIR(mode):
                os.rmdir(place.name, dir_fd=place.fd)
            os.rename(name, place.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
            name = ""
        finally:
            if name:
                os.unlink(name, dir_fd=place.fd)
        place.sync()


def _give_link_away(place: Directory, name: str, uid: int, gid: int) -> None:
    """Set the owner of a new symlink through a descriptor, because another user may have replaced the symlink with a hardlink."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.fd)
    try:
        seen = os.fstat(fd)
        if not stat.S_ISLNK(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_nlink > 1:
            raise FileError(
                f"{place.path}: another process replaced the new symlink before it was put in place; nothing was changed"
            )
        os.chown(f"/proc/self/fd/{fd}", uid, gid)
    finally:
        os.close(fd)


@contextmanager
def reported(path: str, what: str) -> Iterator[None]:
    """Convert OSError to FileError."""
    try:
        yield
    except OSError as err:
        raise FileError(f"{path}: {what}: {err.strerror or err}", errno=err.errno or 0) from err


class NewFile:
    """A new file that will replace another. Until then it has no name, or a temporary name. It is removed if it is not used."""

    def __init__(self, fd: int, name: str, place: Directory) -> None:
        self.fd = fd
        self.name = name
        self._place = place

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        if self.name:
            try:
                os.unlink(self.name, dir_fd=self._place.fd)
            except FileNotFoundError:
                pass

    def replace(self) -> None:
        """Replace the target atomically."""
        place = self._place
        self.give_name()
        os.rename(self.name, place.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
        self.name = ""

    def take(self) -> None:
        """Give the file its final name. An existing file of that name is an error."""
        place = self._place
        if self.name:
            os.rename(self.name, place.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
            self.name = ""
        else:
            os.link(f"/proc/self/fd/{self.fd}", place.name, dst_dir_fd=place.fd)

    def give_name(self) -> None:
        """Give the file a temporary name, because a rename needs one."""
        if not self.name:
            name = temporary_name()
            os.link(f"/proc/self/fd/{self.fd}", name, dst_dir_fd=self._place.fd)
            self.name = name


def new_file(place: Directory) -> NewFile:
    """
    Create an empty file in a directory, with mode 0600.

    If the file system supports it, the file has no name, so a killed process or a full disk leaves nothing behind. The temporary
    name for the rename is not derived from the target's name, which may already have the maximum length.
    """
    try:
        fd = os.open(".", _NAMELESS, 0o600, dir_fd=place.fd)
        if os.access(f"/proc/self/fd/{fd}", os.F_OK):
            return NewFile(fd, "", place)
        os.close(fd)
    except OSError as err:
        if err.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            raise
    name = temporary_name()
    return NewFile(os.open(name, _NAMED, 0o600, dir_fd=place.fd), name, place)


def temporary_name() -> str:
    """Return a temporary file name."""
    # The name is hidden, because programs that read a whole directory skip hidden files. It is random, so that an attacker cannot
    # create it first.
    return f".ccm-{os.urandom(8).hex()}"


def _put_in_place(new: NewFile, place: Directory, uid: int, gid: int, mode: int) -> None:
    carry_over(place, new.fd, uid)
    set_owner_and_mode(new.fd, uid, gid, mode)
    os.fsync(new.fd)
    new.replace()
    place.sync()


def _refuse_to_replace(place: Directory) -> None:
    """Refuse to replace a FIFO or a device, because a rename would do so. A symlink is replaced, but not its target."""
    old = place.look()
    if old is not None and not stat.S_ISLNK(old.st_mode):
        refuse_other(place.path, old.st_mode)


@contextmanager
def _filling(content: bytes | ContentRef, stop: CancelFlag) -> Iterator[Fill]:
    """
    Yield the function that writes the content to a descriptor. A source file is opened first, to report a missing source early.
    """
    if isinstance(content, bytes):
        yield lambda fd: write_all(fd, content)
        return
    with reported(content.path, "cannot be read"):
        source, seen = open_regular(content.path)
    try:
        refuse_misled(content.path, source)
        if why := why_unread(seen, COPY_LIMIT_BYTES):
            raise FileError(f"{content.path}: cannot be copied: {why}", errno=errno.EFBIG)
        yield lambda fd: copy_content(source, seen.st_size, fd, stop)
    finally:
        os.close(source)


def copy_content(source: int, size_bytes: int, fd: int, stop: CancelFlag) -> None:
    """Copy a file up to the size that it had when it was opened, because a growing file could fill the disk."""
    make_sure_of_room(fd, size_bytes)
    left = size_bytes or NO_SIZE_BYTES  # files under /proc have the size 0
    while left and (data := os.read(source, min(left, COPY_BYTES))):
        stop.check()
        write_all(fd, data)
        left -= len(data)


def make_sure_of_room(fd: int, more_bytes: int) -> None:
    """Raise OSError if the file's file system has less free space than this, so that the disk does not fill up."""
    if more_bytes <= LARGE_BYTES:
        return
    space = os.fstatvfs(fd)
    free = (space.f_bfree if os.geteuid() == 0 else space.f_bavail) * space.f_frsize
    if more_bytes > free and space.f_blocks:  # a file system without blocks reports no free space
        raise OSError(
            errno.ENOSPC, f"{more_bytes} bytes are needed, but only {free} are free; free some space"
        )


def write_all(fd: int, content: bytes) -> None:
    """Write all bytes."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]
