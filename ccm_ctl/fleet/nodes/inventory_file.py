"""
The file in which `ccmctl` caches the entries of nodes for its next command.

It contains the broker's answers with their signatures. It is not trusted more than the broker, so each command verifies the
entries that it uses. A file is ignored without an error if it is incomplete, or if another user owns it or can write to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from ccm_agent.model.ports import KeyValueEntry
from ccm_ctl.fleet.nodes.entry_parts import EntryParts, TornFileError, write_parts

log = logging.getLogger(__name__)

ABANDONED_S = 600
"""The age, in seconds, after which the unfinished file of a killed command is removed."""

_NEW = ".new-"


class InventoryFile:
    """One file for each combination of broker and credentials."""

    def __init__(self, folder: Path, identity: Sequence[str]) -> None:
        """
        Store the path of the file without reading it.

        Args:
            folder: Its folder, which is created when needed.
            identity: Identifies the broker and the credentials. The file's name is a digest of it.
        """
        self._folder = folder
        self._name = f"nodes-{hashlib.sha256(msgspec.json.encode(list(identity))).hexdigest()[:32]}"

    def open(self) -> EntryParts | None:
        """Return the entries. None: there is no file, or it is not a file that this user wrote."""
        try:
            with self._opened() as folder:
                file = _opened_file(folder, self._name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as err:
            log.debug("the cached nodes are not used", extra={"reason": str(err)})
            return None
        try:
            return EntryParts(file)
        except (OSError, TornFileError) as err:
            file.close()
            log.debug("the cached nodes are not used", extra={"reason": str(err)})
            return None

    def write(self, created: str, entries: Iterable[KeyValueEntry]) -> None:
        """
        Replace the file. A reader sees either the old file or the complete new one.

        Args:
            created: When the stream was created, in the broker's format.
            entries: The entries, in the order in which they will be read. If the entries cannot be read completely, the old file
                is kept.
        """
        try:
            with contextlib.suppress(FileExistsError):
                self._folder.mkdir(mode=0o700, parents=True)
            with self._opened() as folder:
                _replace(folder, self._name, write_parts(created, entries))
        except (OSError, ValueError, TornFileError) as err:
            log.debug("the nodes are not cached", extra={"reason": str(err)})

    def remove(self) -> None:
        """Remove the file, because its content is wrong."""
        with contextlib.suppress(OSError, ValueError), self._opened() as folder:
            os.unlink(self._name, dir_fd=folder)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """
        Open the folder, which only this user can enter.

        Raises:
            OSError: It does not exist, or is a symlink.
            ValueError: Other users can enter it.
        """
        number = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _check_owner(os.fstat(number))
            yield number
        finally:
            os.close(number)


def cache_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the user's cache folder, or None if there is none. Source: XDG Base Directory Specification."""
    given, home = environ.get("XDG_CACHE_HOME", ""), environ.get("HOME", "")
    if given.startswith("/"):
        return Path(given, "ccm")
    return Path(home, ".cache", "ccm") if home.startswith("/") else None


def _check_owner(status: os.stat_result) -> None:
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise ValueError("it belongs to another user, or other users can open it")


def _opened_file(folder: int, name: str) -> IO[bytes]:
    # non-blocking, because the file may be a named pipe without a writer
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.fdopen(os.open(name, flags, dir_fd=folder), "rb")
    try:
        status = os.fstat(file.fileno())
        _check_owner(status)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise ValueError("it is not a file with one name")
    except BaseException:
        file.close()
        raise
    return file


def _replace(folder: int, name: str, parts: Iterable[bytes]) -> None:
    _remove_abandoned(folder)
    new = f"{_NEW}{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        # not flushed to disk: after a power failure the file may be incomplete, which is detected
        with os.fdopen(os.open(new, flags, 0o600, dir_fd=folder), "wb") as file:
            file.writelines(parts)
        os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new, dir_fd=folder)
        raise


def _remove_abandoned(folder: int) -> None:
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            if name.startswith(_NEW) and time.time() - os.stat(name, dir_fd=folder).st_mtime > ABANDONED_S:
                os.unlink(name, dir_fd=folder)
