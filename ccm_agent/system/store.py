"""Writing files: whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import CopyOf
from ccm_agent.system.accounts import group_id, user_id
from ccm_agent.system.attributes import carry_over, set_owner_and_mode
from ccm_agent.system.directory import Directory, parent_of
from ccm_agent.system.hop import Stop
from ccm_agent.system.look import open_regular, refuse_other

COPY_BYTES = 1 << 20
_NAMELESS = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
_NAMED = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Fill = Callable[[int], None]


def store(path: str, content: bytes | CopyOf, owner: str, group: str, mode: int, stop: Stop) -> None:
    """Write a file whole or not at all; see `Files.store`."""
    uid, gid = user_id(owner), group_id(group)
    with _filling(content, stop) as fill, parent_of(path) as place, reported(path, "cannot be written"):
        _refuse_to_replace(place)
        with _new_file(place) as new:
            fill(new.fd)
            _put_in_place(new, place, uid, gid, mode)


def adopt(staged: str, path: str, owner: str, group: str, mode: int) -> None:
    """Put a file written before in the place of another; see `Files.adopt`."""
    uid, gid = user_id(owner), group_id(group)
    directory, _, name = staged.rpartition("/")
    if directory != path.rpartition("/")[0]:
        raise FileError(f"{staged}: is not beside {path}, so it cannot take its place in one step")
    with parent_of(path) as place, reported(path, "cannot be written"):
        _refuse_to_replace(place)
        fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=place.fd)
        with _NewFile(fd, name, place) as new:
            seen = os.fstat(fd)
            refuse_other(staged, seen.st_mode)
            if seen.st_uid != os.geteuid() or seen.st_nlink > 1:
                raise FileError(f"{path}: somebody replaced what was to be put here; nothing was changed")
            _put_in_place(new, place, uid, gid, mode)


@contextmanager
def reported(path: str, what: str) -> Iterator[None]:
    """Errors of the system become ours."""
    try:
        yield
    except OSError as err:
        raise FileError(f"{path}: {what}: {err.strerror or err}", errno=err.errno or 0) from err


class _NewFile:
    """A file that is to take another's place. Until then it has no name, or one that goes with it."""

    def __init__(self, fd: int, name: str, place: Directory) -> None:
        self.fd = fd
        self.name = name
        self._place = place

    def __enter__(self) -> _NewFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        if self.name:
            try:
                os.unlink(self.name, dir_fd=self._place.fd)
            except FileNotFoundError:
                pass

    def replace(self) -> None:
        """Take the place, in one step."""
        place = self._place
        if not self.name:
            name = _temporary_name()
            os.link(f"/proc/self/fd/{self.fd}", name, dst_dir_fd=place.fd)
            self.name = name
        os.rename(self.name, place.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
        self.name = ""


def _new_file(place: Directory) -> _NewFile:
    """
    An empty file in a directory, which nobody else may read.

    Without a name where the file system can do that: a process that is killed then leaves nothing behind, and a full disk
    neither. The name that it needs for the last step is not made from the target's, which may be as long as names can be.
    """
    try:
        fd = os.open(".", _NAMELESS, 0o600, dir_fd=place.fd)
        if os.access(f"/proc/self/fd/{fd}", os.F_OK):
            return _NewFile(fd, "", place)
        os.close(fd)
    except OSError as err:
        if err.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            raise
    name = _temporary_name()
    return _NewFile(os.open(name, _NAMED, 0o600, dir_fd=place.fd), name, place)


def _temporary_name() -> str:
    # hidden, so that a program which reads all of a directory passes over it; no attacker can guess it and be there first
    return f".ccm-{os.urandom(8).hex()}"


def _put_in_place(new: _NewFile, place: Directory, uid: int, gid: int, mode: int) -> None:
    carry_over(place, new.fd, uid)
    set_owner_and_mode(new.fd, uid, gid, mode)
    os.fsync(new.fd)
    new.replace()
    place.sync()


def _refuse_to_replace(place: Directory) -> None:
    """A rename would replace a FIFO or a device as readily as a file; a symlink gives way, and what it names stays."""
    old = place.look()
    if old is not None and not stat.S_ISLNK(old.st_mode):
        refuse_other(place.path, old.st_mode)


@contextmanager
def _filling(content: bytes | CopyOf, stop: Stop) -> Iterator[Fill]:
    """What writes the content into a descriptor. A source is opened first: nothing is begun for one that is not there."""
    if isinstance(content, bytes):
        yield lambda fd: _write(fd, content)
        return
    with reported(content.path, "cannot be read"):
        source, _ = open_regular(content.path)
    try:
        yield lambda fd: _copy(source, fd, stop)
    finally:
        os.close(source)


def _copy(source: int, fd: int, stop: Stop) -> None:
    while data := os.read(source, COPY_BYTES):
        stop.check()
        _write(fd, data)


def _write(fd: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]
