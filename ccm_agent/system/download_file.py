"""A file that a download grows into."""

from __future__ import annotations

import errno
import os
from hashlib import sha256

from ccm_agent.model.errors import FileError
from ccm_agent.system.atomic_write import make_sure_of_room, new_file, write_all
from ccm_agent.system.directory import Directory, parent_of


class DownloadedFile:
    """
    A new file, readable by its owner alone, with the digest of what is in it. Its methods block, so they belong into a thread.

    It gets its name at the end, where the file system can do that: a process that is killed leaves no half of a download behind.

    Raises:
        FileError: It cannot be made, or something is there.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._digest = sha256()
        self.size_bytes = 0
        try:
            with parent_of(path) as place:
                # a descriptor of our own: that of the walk is closed when it ends
                self._place = Directory(os.dup(place.fd), place.name, path)
        except OSError as err:
            raise self._error(err) from err
        try:
            if self._place.look() is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            self._file = new_file(self._place)
        except OSError as err:
            os.close(self._place.fd)
            raise self._error(err) from err
        self._is_open = True

    @property
    def sha256(self) -> str:
        """Hex digest of what is in it."""
        return self._digest.hexdigest()

    def make_sure_of_room(self, more_bytes: int) -> None:
        """FileError where so much more cannot be written here; a disk is not filled up to find that out."""
        try:
            make_sure_of_room(self._file.fd, more_bytes)
        except OSError as err:
            raise self._error(err) from err

    def add(self, data: bytes) -> None:
        """Write more."""
        try:
            write_all(self._file.fd, data)
        except OSError as err:
            raise self._error(err) from err
        self._digest.update(data)
        self.size_bytes += len(data)

    def restart(self) -> None:
        """Begin again with nothing."""
        os.ftruncate(self._file.fd, 0)
        os.lseek(self._file.fd, 0, os.SEEK_SET)
        self._digest = sha256()
        self.size_bytes = 0

    def finish(self) -> None:
        """Give it its name, and close it."""
        self._close(is_wanted=True)

    def discard(self) -> None:
        """Close it; nothing is left of it."""
        self._close(is_wanted=False)

    def _close(self, *, is_wanted: bool) -> None:
        if not self._is_open:
            return
        self._is_open = False
        try:
            with self._file as file:
                if is_wanted:
                    file.take()
        except OSError as err:
            raise self._error(err) from err
        finally:
            os.close(self._place.fd)

    def _error(self, err: OSError) -> FileError:
        return FileError(f"{self._path}: cannot be written: {err.strerror or err}", errno=err.errno or 0)
