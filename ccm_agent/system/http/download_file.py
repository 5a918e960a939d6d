"""Writes the target file of a download."""

from __future__ import annotations

import errno
import os
from hashlib import sha256

from ccm_agent.model.errors import FileError
from ccm_agent.system.atomic_write import make_sure_of_room, new_file, write_all
from ccm_agent.system.trees.directory import Directory, open_parent


class DownloadedFile:
    """
    A new file with mode 0600, and the digest of its content. The methods block, so they must be called in a thread.

    If the file system supports it, the file has no name until it is complete, so a killed process does not leave a partial
    download.

    aiofiles is not suitable: if a task is cancelled during a write, the thread continues to write while the file is closed or
    renamed. `Threads.call` waits for the thread first.

    Raises:
        FileError: The file cannot be created, or the path exists.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._digest = sha256()
        self.size_bytes = 0
        try:
            with open_parent(path) as place:
                # duplicate the descriptor, because the walk closes its own descriptor when it ends
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
        """The digest of the content in hex."""
        return self._digest.hexdigest()

    def make_sure_of_room(self, more_bytes: int) -> None:
        """Raise FileError if the file system has less free space than this, so that the disk does not fill up."""
        try:
            make_sure_of_room(self._file.fd, more_bytes)
        except OSError as err:
            raise self._error(err) from err

    def add(self, data: bytes) -> None:
        """Append data."""
        try:
            write_all(self._file.fd, data)
        except OSError as err:
            raise self._error(err) from err
        self._digest.update(data)
        self.size_bytes += len(data)

    def restart(self) -> None:
        """Truncate the file, to start again."""
        os.ftruncate(self._file.fd, 0)
        os.lseek(self._file.fd, 0, os.SEEK_SET)
        self._digest = sha256()
        self.size_bytes = 0

    def finish(self) -> None:
        """Give the file its final name, and close it."""
        self._close(is_wanted=True)

    def discard(self) -> None:
        """Close and remove the file."""
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
