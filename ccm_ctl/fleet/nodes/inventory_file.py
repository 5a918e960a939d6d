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
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from ccm_agent.model.ports import KeyValueEntry

log = logging.getLogger(__name__)

AT_ONCE = 500
"""The number of entries in one part of the file."""

PART_LIMIT_BYTES = 1 << 30
"""More than AT_ONCE entries of the size that the broker allows."""

ABANDONED_S = 600
"""The age at which the unfinished file of a killed command is removed."""

_MAGIC = b"ccm nodes 1\n"
_DIGEST = hashlib.sha256
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNIT = timedelta(microseconds=1)
_NEW = ".new-"
_SIZE_BYTES = 4

StoredEntry = tuple[str, bytes, int, int, str, str, str]
"""Key, value, revision, time in microseconds since 1970, signature, certificate and note."""

_PART = msgspec.msgpack.Decoder(list[StoredEntry])


class KnownEntries(Struct, frozen=True, kw_only=True):
    """
    The entries of a bucket as they were at one moment.

    Attributes:
        created: When the stream was made, as the broker writes it: another stream has other entries.
        entries: The entries, by key.
    """

    created: str
    entries: dict[str, KeyValueEntry]


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
        self._name = f"nodes-{_DIGEST(msgspec.json.encode(list(identity))).hexdigest()[:32]}"

    def read(self) -> KnownEntries | None:
        """The entries; None if there is no file, or it is not one that this user wrote."""
        try:
            with self._opened() as folder, _opened_file(folder, self._name) as file:
                parts = _read_parts(file)
                created = msgspec.msgpack.decode(next(parts), type=str)
                entries = {stored[0]: _entry(stored) for part in parts for stored in _PART.decode(part)}
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, OverflowError, StopIteration) as err:  # msgspec's errors are ValueErrors
            log.debug("the cached nodes are not used", extra={"reason": str(err)})
            return None
        return KnownEntries(created=created, entries=entries)

    def write(self, known: KnownEntries) -> None:
        """Replace the file. A reader sees the earlier one or all of the new one."""
        try:
            with contextlib.suppress(FileExistsError):
                self._folder.mkdir(mode=0o700, parents=True)
            with self._opened() as folder:
                _replace(folder, self._name, _make_parts(known))
        except (OSError, ValueError) as err:
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


def _read_parts(file: IO[bytes]) -> Iterator[bytes]:
    """
    The parts, each as soon as it is read; they are worth nothing if this raises.

    Raises:
        ValueError: The file is torn.
    """
    digest = _DIGEST()

    def read(size: int) -> bytes:
        body = file.read(size)
        digest.update(body)
        return body

    if read(len(_MAGIC)) != _MAGIC:
        raise ValueError("it is of another version")
    while size := int.from_bytes(read(_SIZE_BYTES)):
        if size > PART_LIMIT_BYTES:
            raise ValueError("it is torn")
        yield read(size)
    expected = digest.digest()
    if file.read() != expected:
        raise ValueError("it is torn")


def _make_parts(known: KnownEntries) -> Iterator[bytes]:
    digest = _DIGEST()
    for part in _make_contents(known):
        digest.update(part)
        yield part
    yield digest.digest()


def _make_contents(known: KnownEntries) -> Iterator[bytes]:
    yield _MAGIC
    entries = iter(known.entries.values())
    part = msgspec.msgpack.encode(known.created)
    while True:
        yield len(part).to_bytes(_SIZE_BYTES)
        yield part
        some = [_stored(entry) for entry in islice(entries, AT_ONCE)]
        if not some:
            yield bytes(_SIZE_BYTES)
            return
        part = msgspec.msgpack.encode(some)


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


def _stored(entry: KeyValueEntry) -> StoredEntry:
    microseconds = (entry.created - _EPOCH) // _UNIT
    return (
        entry.key,
        entry.value,
        entry.revision,
        microseconds,
        entry.signature,
        entry.certificate,
        entry.note,
    )


def _entry(stored: StoredEntry) -> KeyValueEntry:
    key, value, revision, microseconds, signature, certificate, note = stored
    return KeyValueEntry(
        key=key,
        value=value,
        revision=revision,
        created=_EPOCH + microseconds * _UNIT,
        signature=signature,
        certificate=certificate,
        note=note,
    )
