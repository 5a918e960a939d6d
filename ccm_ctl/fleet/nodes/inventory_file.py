"""
The file in which `ccmctl` keeps the entries of nodes that it read, for its next command.

It contains the broker's answers with their signatures, and is trusted as little as they are: each command verifies what it uses.
A file that is torn, or that another user owns, can write or has put there, is not used. Nothing of it is an error.
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
"""The age at which the unfinished file of a killed command is removed."""

_NEW = ".new-"


class InventoryFile:
    """One file for each broker and each holder of credentials."""

    def __init__(self, folder: Path, identity: Sequence[str]) -> None:
        """
        Take a file; nothing is read yet.

        Args:
            folder: Its folder, which is made when it is needed.
            identity: What tells the broker and the credentials from others. The file's name is a digest of it.
        """
        self._folder = folder
        self._name = f"nodes-{hashlib.sha256(msgspec.json.encode(list(identity))).hexdigest()[:32]}"

    def open(self) -> EntryParts | None:
        """The entries; None if there is no file, or it is not one that this user wrote."""
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
        Replace the file. A reader sees the earlier one or all of the new one.

        Args:
            created: When the stream was made, as the broker writes it.
            entries: The entries, in the order in which they will be read. A torn file among their sources keeps the earlier one.
        """
        try:
            with contextlib.suppress(FileExistsError):
                self._folder.mkdir(mode=0o700, parents=True)
            with self._opened() as folder:
                _replace(folder, self._name, write_parts(created, entries))
        except (OSError, ValueError, TornFileError) as err:
            log.debug("the nodes are not cached", extra={"reason": str(err)})

    def remove(self) -> None:
        """Remove the file, which is wrong."""
        with contextlib.suppress(OSError, ValueError), self._opened() as folder:
            os.unlink(self._name, dir_fd=folder)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """
        The folder, which only this user can enter.

        Raises:
            OSError: It is not there, or a symlink.
            ValueError: Other users can enter it.
        """
        number = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _check_owner(os.fstat(number))
            yield number
        finally:
            os.close(number)


def cache_folder(environ: Mapping[str, str]) -> Path | None:
    """The user's folder for what can be read again; None: there is none. Source: XDG Base Directory Specification."""
    given, home = environ.get("XDG_CACHE_HOME", ""), environ.get("HOME", "")
    if given.startswith("/"):
        return Path(given, "ccm")
    return Path(home, ".cache", "ccm") if home.startswith("/") else None


def _check_owner(status: os.stat_result) -> None:
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise ValueError("it belongs to another user, or other users can open it")


def _opened_file(folder: int, name: str) -> IO[bytes]:
    # without waiting: a named pipe has no writer
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
        # not flushed to the disk: a power cut leaves a torn file, which is noticed
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
