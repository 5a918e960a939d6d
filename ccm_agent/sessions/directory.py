"""
A session in a directory, which joins several `ccm ensure` commands; the layout is Choria CCM's.

Each event is a file `<event id>.event` of JSON, and ids sort by time. Other files and unreadable files are skipped.
"""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ccm_agent.model.errors import FileError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ids import follow, is_id
from ccm_agent.model.outcome import SESSION_START, TRANSACTION_EVENT, SessionStart, TransactionEvent
from ccm_agent.sessions.memory import MemorySession
from ccm_agent.sessions.refresh_log import RefreshLog

SUFFIX = ".event"
REFRESHES = "refreshes.log"
_FILE_LIMIT_BYTES = 16 << 20


class DirectorySession(MemorySession):
    """
    A session whose events are files in a directory. It starts with the existing events and adds new ones.

    Create it with `open_session`, which reads the existing events.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory

    @property
    def refreshes(self) -> RefreshLog:
        """The pending refreshes of this session; they are removed with its directory."""
        path = self.directory / REFRESHES
        # The owner of each event is checked, so that users may share a session.
        return RefreshLog(path, "session", is_private=False)

    async def start(self, event: SessionStart) -> None:
        """Write nothing: the session began when its directory was created."""
        self.started = self.started or event.timestamp

    async def record(self, event: TransactionEvent, names: Sequence[str] = ()) -> None:
        """
        Write an event atomically, with mode 0600.

        Raises:
            FileError: The event cannot be written.
        """
        data = msgspec.json.format(msgspec.json.encode(event), indent=2)
        await asyncio.to_thread(_write, self.directory / f"{event.event_id}{SUFFIX}", data)
        self.remember(event, names=names)


async def open_session(directory: str) -> DirectorySession:
    """
    Open the session in a directory and read its events.

    Raises:
        FileError: The directory does not exist, or cannot be read.
    """
    return await asyncio.to_thread(_open, Path(directory))


def new_session_directory(directory: str = "") -> str:
    """
    Create the directory of a new session, which only its owner may read.

    Args:
        directory: Its path; "" creates a temporary directory.

    Raises:
        FileError: The directory already exists, or cannot be created.
    """
    try:
        if not directory:
            return tempfile.mkdtemp(prefix="ccm-session-")
        path = Path(directory)
        path.mkdir(mode=0o700, parents=True)
        return str(path)
    except FileExistsError as err:
        raise FileError(f"{directory} already exists; name a new directory") from err
    except OSError as err:
        raise FileError(f"cannot create the session directory {directory}: {err.strerror}") from err


def _open(directory: Path) -> DirectorySession:
    session = DirectorySession(directory.absolute())
    for event in _read_all(session.directory):
        if isinstance(event, SessionStart):
            session.started = event.timestamp
        else:
            session.remember(event, foreign=True)
    return session


def _read_all(directory: Path) -> list[SessionStart | TransactionEvent]:
    try:
        owner = directory.stat().st_uid
        names = sorted(entry.name for entry in os.scandir(directory) if entry.name.endswith(SUFFIX))
    except FileNotFoundError as err:
        raise FileError(
            f"the session store {directory} does not exist; create one with `ccm session new`"
        ) from err
    except OSError as err:
        raise FileError(f"the session store {directory} cannot be read: {err.strerror}") from err
    trusted = {0, os.geteuid(), owner}
    events = [event for name in names if (event := _read(directory / name, trusted)) is not None]
    ids = [event.event_id for event in events if is_id(event.event_id)]
    if ids:
        follow(max(ids))
    return sorted(events, key=lambda event: (event.timestamp, event.event_id))


def _read(path: Path, trusted: Collection[int]) -> SessionStart | TransactionEvent | None:
    """
    Read the event in a file; None if it is not an event, or if its owner is not trusted. `require` and `subscribe` act on
    events.
    """
    try:
        value = decode_foreign(_content(path, trusted), dict[str, Any])
        protocol = value.get("protocol")
        if protocol == SESSION_START:
            return msgspec.convert(value, SessionStart)
        if protocol == TRANSACTION_EVENT:
            return msgspec.convert(_mended(value), TransactionEvent)
    except (OSError, msgspec.MsgspecError, ValueError):
        return None
    return None


def _content(path: Path, trusted: Collection[int]) -> bytes:
    """Read a regular file of a trusted user, without following symlinks or blocking on a FIFO. ValueError for anything else."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in trusted:
            raise ValueError
        content = file.read(_FILE_LIMIT_BYTES + 1)
    if len(content) > _FILE_LIMIT_BYTES:
        raise ValueError
    return content


def _mended(value: dict[str, Any]) -> dict[str, Any]:
    """Repair an event of Choria CCM, which writes `null` for an empty list and for a check that could not run."""
    checks = [check for check in value.get("health_check") or [] if check is not None]
    return {**value, "health_check": checks} | {
        key: value.get(key) or [] for key in ("error", "unmet_requirements")
    }


def _write(path: Path, data: bytes) -> None:
    # readers ignore this name until the file is complete
    staged = path.with_suffix(".tmp")
    try:
        handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        staged.rename(path)
    except OSError as err:
        staged.unlink(missing_ok=True)
        raise FileError(f"the session event {path} cannot be written: {err.strerror}") from err
