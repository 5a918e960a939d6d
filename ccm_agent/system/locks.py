"""
Locks that the processes of this host share: a file each, locked with flock(2), so a process that dies holds nothing.

Within a process an asyncio lock stands before the file, for tasks wait in order there and cost nothing while they do.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from ccm_agent.model.errors import LockError
from ccm_agent.system.threads import Threads

PATIENCE_S = 600.0
"""A package manager may be at work for minutes, and what waits for it is not lost; longer than this it hangs."""
ASK_AGAIN_S = 0.1
LOCKS_AT_ONCE = 4
HOLDER_BYTES = 200
_MODE = 0o600
"""Who may open a file may lock it, if only to read: any user of the host could keep root from its packages."""
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


def lock_directory() -> str:
    """Where locks stand: a place that only who runs this may write to, and that a restart of the machine empties if it can."""
    if os.geteuid() == 0:
        return "/run/ccm"
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        return f"{runtime}/ccm"
    return os.path.expanduser("~/.local/state/ccm")  # noqa: PTH111 - pathlib is slow to import


class SystemLocks:
    """
    The `Locks` of this host.

    Args:
        directory: Where the files stand; made when it is missing.
        program: Who holds a lock, for those that wait: "ccm apply".
        patience_s: How long to wait for somebody else.

    Attributes:
        waits_for: Names of locks that somebody here waits for, each with who has it, in the holder's own words.
    """

    def __init__(self, directory: str, *, program: str = "", patience_s: float = PATIENCE_S) -> None:
        self._directory = directory
        self._holder = f"{program or sys.argv[0].rpartition('/')[2]} (pid {os.getpid()})"
        self._patience_s = patience_s
        self.waits_for: dict[str, str] = {}
        self._own: dict[str, asyncio.Lock] = {}
        self._threads = Threads("ccm-lock", LOCKS_AT_ONCE)

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        """See `Locks.hold`."""
        if not _NAME.fullmatch(name):
            raise LockError(f"{name!r} cannot be the name of a lock")
        file = _LockFile(f"{self._directory}/{name}.lock", self._holder)
        own = self._own.setdefault(name, asyncio.Lock())
        holder = self._holder
        try:
            async with asyncio.timeout(self._patience_s):
                await own.acquire()
                holder = ""
                await self._acquire(name, own, file)
        except TimeoutError as err:
            holder = holder or await self._threads.call(file.holder)
            raise LockError(
                f"the {name} lock of this host is still held by {holder} after {self._patience_s:g} s; wait until that is done, "
                "or end it"
            ) from err
        try:
            yield
        finally:
            await self._threads.call(file.release)
            own.release()

    async def _acquire(self, name: str, own: asyncio.Lock, file: _LockFile) -> None:
        try:
            while not await self._threads.call(file.acquire):  # another process sets no event of ours
                self.waits_for[name] = await self._threads.call(file.holder)
                await asyncio.sleep(ASK_AGAIN_S)
        except BaseException:
            await self._threads.call(file.release)
            own.release()
            raise
        finally:
            self.waits_for.pop(name, None)


class _LockFile:
    """A file and our lock on it. Its methods block, so they belong into a thread."""

    def __init__(self, path: str, holder: str) -> None:
        self._path = path
        self._text = holder
        self._fd = -1

    def acquire(self) -> bool:
        """Lock it and say so in it; False when somebody else has it."""
        try:
            os.makedirs(os.path.dirname(self._path), 0o755, exist_ok=True)  # noqa: PTH103, PTH120 - as above
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
            if os.fstat(fd).st_mode & ~_MODE & 0o777:
                os.fchmod(fd, _MODE)
        except OSError as err:
            raise LockError(f"{self._path}: the lock cannot be made: {err.strerror}") from err
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._fd = fd
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with suppress(OSError):  # a full disk keeps nobody from working, only from being named
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{self._text} since {since}".encode(), 0)
        return True

    def release(self) -> None:
        """Let it go, if it is ours."""
        if self._fd >= 0:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(self._fd)  # which unlocks it; the file stays, for somebody may have it open to wait for
            self._fd = -1

    def holder(self) -> str:
        """Who has it, in his own words."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return "somebody"
        try:
            return os.read(fd, HOLDER_BYTES).decode(errors="replace").strip() or "somebody"
        finally:
            os.close(fd)
