"""Stores persistent state: documents by key, each in a file, in a folder of the current user."""

from __future__ import annotations

import errno
import os
import re
import time
from contextlib import suppress
from hashlib import sha256

from ccm_agent.model.errors import FileError
from ccm_agent.model.state_directory import state_directory
from ccm_agent.system import file_attributes
from ccm_agent.system.atomic_write import write_atomically
from ccm_agent.system.file_inspection import read_regular
from ccm_agent.system.threads import CancelFlag, Threads

DOCUMENT_BYTES = 64 << 20
NAME_LENGTH = 40
"""The number of characters in a file name."""
FILES_LIMIT = 1000
"""The maximum number of records of one kind. It is exceeded only if all records were used within IN_USE_S."""
IN_USE_S = 86_400.0
"""In seconds. A record that was used within this time may belong to a run in progress."""
_KIND = re.compile(r"[a-z][a-z0-9_-]*")


def record_directory() -> str:
    """
    Return the folder of the records. All programs of a user share it, because they manage the same host.

    For users other than root, earlier versions stored records next to the facts. If that folder exists, it is still used.
    """
    directory = f"{state_directory()}/records"
    if os.geteuid() == 0 or os.environ.get("XDG_STATE_HOME", "").startswith("/"):
        return directory
    config = os.environ.get("XDG_CONFIG_HOME", "")
    if not config.startswith("/"):
        config = os.path.expanduser("~/.config")  # noqa: PTH111 - pathlib is slow to import
    before = f"{config}/choria/ccm/records"
    return before if os.path.isdir(before) else directory  # noqa: PTH112 - pathlib is slow to import


class SystemRecords:
    """
    The `Records` of this host.

    Args:
        directory: The folder of the files, which is created if missing.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._threads = Threads("ccm-record", 1)

    async def recall(self, kind: str, key: str) -> bytes | None:
        return await self._threads.call(_recall, self._path(kind, key))

    async def keep(self, kind: str, key: str, document: bytes | None) -> None:
        await self._threads.call(_keep, self._path(kind, key), document)

    def _path(self, kind: str, key: str) -> str:
        if not _KIND.fullmatch(kind):
            raise FileError(f"{kind!r} cannot be a kind of record")
        # a key may contain characters that are not allowed in file names
        digest = sha256(key.encode(errors="surrogateescape")).hexdigest()
        return f"{self._directory}/{kind}/{digest[:NAME_LENGTH]}"


def _recall(path: str) -> bytes | None:
    _refuse_shared(path.rpartition("/")[0])
    try:
        found = read_regular(path, DOCUMENT_BYTES, CancelFlag())
        with suppress(OSError):
            os.utime(path)  # mark the record as recently used, so that it is kept
        return found
    except FileError as err:
        if err.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise


def _refuse_shared(folder: str) -> None:
    """Refuse a folder that other users can write to, because records determine which files are removed."""
    try:
        seen = os.stat(folder)  # noqa: PTH116 - a Path costs more than the call
    except OSError:
        return
    if seen.st_uid not in (0, os.geteuid()) or seen.st_mode & 0o022:
        raise FileError(
            f"{folder}: other users can write there and could control what is removed; run chmod go-w or chown"
        )


def _keep(path: str, document: bytes | None) -> None:
    if document is None:
        file_attributes.remove(path, False, CancelFlag())
        return
    folder = path.rpartition("/")[0]
    if not os.path.isdir(folder):  # noqa: PTH112 - a Path costs more than the call
        file_attributes.make_directory(folder, "", "", 0o700)
    elif not os.path.lexists(path):
        _make_room(folder)
    write_atomically(path, document, "", "", 0o600, CancelFlag())


def _make_room(folder: str) -> None:
    """Remove the least recently used records before a new one is created."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if len(entry.name) == NAME_LENGTH]
    if len(names) < FILES_LIMIT:
        return
    used = sorted((_used_at(f"{folder}/{name}"), name) for name in names)
    for used_s, name in used[: len(names) - FILES_LIMIT + 1]:
        if time.time() - used_s < IN_USE_S:
            return
        with suppress(FileNotFoundError):
            os.unlink(f"{folder}/{name}")  # noqa: PTH108 - a Path costs more than the call


def _used_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime  # noqa: PTH116 - a Path costs more than the call
    except OSError:
        return 0.0
