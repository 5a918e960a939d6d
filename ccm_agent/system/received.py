"""A file that a download grows into."""

from __future__ import annotations

import errno
import os
from hashlib import sha256

from ccm_agent.model.errors import FileError
from ccm_agent.system.directory import parent_of

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Received:
    """
    A new file, readable by its owner alone, with the digest of what is in it. Its methods block, so they belong into a thread.

    Raises:
        FileError: It cannot be made, or something is there.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._digest = sha256()
        self.size_bytes = 0
        try:
            with parent_of(path) as place:
                self._fd = os.open(place.name, _NEW, 0o600, dir_fd=place.fd)
        except OSError as err:
            raise self._error(err) from err

    @property
    def sha256(self) -> str:
        """Hex digest of what is in it."""
        return self._digest.hexdigest()

    def make_sure_of_room(self, more_bytes: int) -> None:
        """FileError where so much more cannot be written here; a disk is not filled up to find that out."""
        space = os.fstatvfs(self._fd)
        free = space.f_bavail * space.f_frsize
        if more_bytes > free:
            raise FileError(
                f"{self._path}: {more_bytes} bytes are to come, and {free} are free here; make room",
                errno=errno.ENOSPC,
            )

    def add(self, data: bytes) -> None:
        """Write more."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as err:
            raise self._error(err) from err
        self._digest.update(data)
        self.size_bytes += len(data)

    def restart(self) -> None:
        """Begin again with nothing."""
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)
        self._digest = sha256()
        self.size_bytes = 0

    def finish(self) -> None:
        """Close it."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                os.close(fd)
            except OSError as err:
                raise self._error(err) from err

    def discard(self) -> None:
        """Close it and remove it."""
        try:
            self.finish()
        finally:
            try:
                os.unlink(self._path)  # noqa: PTH108 - pathlib is slow to import
            except FileNotFoundError:
                pass

    def _error(self, err: OSError) -> FileError:
        return FileError(f"{self._path}: cannot be written: {err.strerror}", errno=err.errno or 0)
