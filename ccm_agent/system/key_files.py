"""
Reads and writes SSH keys of users: ~/.ssh/authorized_keys.

The user controls the home directory while root works in it. Therefore everything below it is opened relative to a descriptor,
without following symlinks, and its owner is checked through the descriptor. Otherwise a hardlink could make root copy another
user's file to a file that this user can read.

Source: sshd(8), "FILES"; sshd_config(5), `StrictModes`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import KeyFile, KeyPlace
from ccm_agent.system.accounts import AccountNames
from ccm_agent.system.atomic_write import new_file, reported, write_all
from ccm_agent.system.attributes import carry_over, set_owner_and_mode
from ccm_agent.system.threads import Threads
from ccm_agent.system.trees.directory import Directory, open_parent

SSH, KEYS = ".ssh", "authorized_keys"
DIRECTORY_MODE, FILE_MODE = 0o700, 0o600
LIMIT_BYTES = 1 << 20
CALLS_AT_ONCE = 4

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class SystemKeyFiles:
    """The `KeyFiles` of this host."""

    def __init__(self) -> None:
        self._threads = Threads("ccm-keys", CALLS_AT_ONCE)

    async def look(self, homes: Sequence[KeyPlace]) -> list[KeyFile]:
        return await self._threads.call(lambda: [read_keys(home) for home in homes])

    async def write(self, home: KeyPlace, content: bytes | None) -> None:
        await self._threads.call(write_keys, home, content)


def read_keys(home: KeyPlace) -> KeyFile:
    """Read the file in one home directory; see `KeyFiles.look`."""
    try:
        with _ssh_directory(home) as place:
            return KeyFile() if place is None else _read(home, place)
    except FileError as err:
        return KeyFile() if err.errno == errno.ENOENT else KeyFile(error=err.message)


def write_keys(home: KeyPlace, content: bytes | None) -> None:
    """Write or remove the file in one home directory; see `KeyFiles.write`."""
    with _ssh_directory(home, create=content is not None) as place:
        if place is None:
            return
        with reported(place.path, "cannot be written"):
            set_owner_and_mode(place.fd, home.uid, home.gid, DIRECTORY_MODE)
            old = place.look()
            if old is not None and not stat.S_ISREG(old.st_mode):
                raise _not_a(place.path, "a regular file", old.st_mode)
            if content is not None:
                _replace(place, home, content)
            elif old is not None:
                os.unlink(place.name, dir_fd=place.fd)
            place.sync()


def _replace(place: Directory, home: KeyPlace, content: bytes) -> None:
    with new_file(place) as new:
        write_all(new.fd, content)
        carry_over(place, new.fd, home.uid)
        set_owner_and_mode(new.fd, home.uid, home.gid, FILE_MODE)
        os.fsync(new.fd)
        new.replace()


@contextmanager
def _ssh_directory(home: KeyPlace, *, create: bool = False) -> Iterator[Directory | None]:
    """Open ~/.ssh, with the file as its entry; None if it does not exist."""
    path = f"{home.path}/{SSH}"
    with open_parent(path) as place, reported(path, "cannot be opened"):
        _refuse_owner(os.fstat(place.fd), home, home.path)
        seen = place.look()
        if seen is None and create:
            # root must not own this home directory, because it may be a system directory: the home of `sync` is /bin
            _refuse_owner(os.fstat(place.fd), home, home.path, may_be_root=False)
            os.mkdir(SSH, DIRECTORY_MODE, dir_fd=place.fd)
            place.sync()
        elif seen is None:
            yield None
            return
        elif not stat.S_ISDIR(seen.st_mode):
            raise _not_a(path, "a directory", seen.st_mode)
        fd = os.open(SSH, _OPEN | os.O_DIRECTORY, dir_fd=place.fd)
        try:
            # root may own ~/.ssh only if this user owns the home directory: in Fedora, /root is also the home of `operator`,
            # but has root's keys
            is_own = os.fstat(place.fd).st_uid == home.uid
            _refuse_owner(os.fstat(fd), home, path, may_be_root=is_own)
            yield Directory(fd, KEYS, f"{path}/{KEYS}")
        finally:
            os.close(fd)


def _read(home: KeyPlace, place: Directory) -> KeyFile:
    with reported(place.path, "cannot be read"):
        seen = place.look()
        if seen is None:
            return KeyFile()
        if not stat.S_ISREG(seen.st_mode):
            raise _not_a(place.path, "a regular file", seen.st_mode)
        fd = os.open(place.name, _OPEN, dir_fd=place.fd)
        with os.fdopen(fd, "rb", buffering=0) as file:
            seen = os.fstat(fd)
            if not stat.S_ISREG(seen.st_mode):
                raise _not_a(place.path, "a regular file", seen.st_mode)
            if not seen.st_mode & stat.S_IROTH or seen.st_uid != 0:
                _refuse_owner(seen, home, place.path, may_be_root=False)
            content = _read_all(file.fileno(), place.path)
    return KeyFile(content=content, fault=_fault(home, os.fstat(place.fd), seen))


def _read_all(fd: int, path: str) -> bytes:
    content = bytearray()
    while data := os.read(fd, LIMIT_BYTES):
        content += data
        if len(content) > LIMIT_BYTES:
            raise FileError(f"{path}: is larger than {LIMIT_BYTES >> 20} MiB")
    return bytes(content)


def _fault(home: KeyPlace, directory: os.stat_result, file: os.stat_result) -> str:
    for name, seen, mode in ((f"~/{SSH}", directory, DIRECTORY_MODE), (f"~/{SSH}/{KEYS}", file, FILE_MODE)):
        if seen.st_uid != home.uid:
            return f"{name} belongs to {AccountNames().user(seen.st_uid)}"
        if stat.S_IMODE(seen.st_mode) != mode:
            return f"{name} has mode {stat.S_IMODE(seen.st_mode):04o}, wanted {mode:04o}"
    return ""


def _refuse_owner(seen: os.stat_result, home: KeyPlace, path: str, *, may_be_root: bool = True) -> None:
    """
    Refuse a path that another user owns. Either it is not in this user's home directory, or this user created a hardlink there.
    """
    if seen.st_uid == home.uid or (may_be_root and seen.st_uid in (0, os.geteuid())):
        return
    names = AccountNames()
    raise FileError(
        f"{path}: belongs to {names.user(seen.st_uid)} and not to {names.user(home.uid)}, so no SSH keys are managed there"
    )


def _not_a(path: str, what: str, mode: int) -> FileError:
    is_link = stat.S_ISLNK(mode)
    return FileError(f"{path}: is {'a symlink, which is not followed' if is_link else f'not {what}'}")
