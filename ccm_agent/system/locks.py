"""
Locks between processes of this host. Each lock is a file that is locked with flock(2). The kernel releases it when the process
ends.

Within a process, an asyncio lock is acquired first, because its waiters are queued in order and do not occupy a thread.
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
"""
The maximum time to wait for a lock, in seconds. A package manager may run for minutes. If it takes longer than this, it probably
hangs.
"""
ASK_AGAIN_S = 0.1
LOCKS_AT_ONCE = 4
HOLDER_BYTES = 200
_MODE = 0o600
"""
The mode of a lock file. Only the owner may open it, because any user who can open the file could lock it and block root's package
manager.
"""
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


def lock_directory() -> str:
    """
    Return the directory of the locks. Only this user can write to it. If possible, it is a directory that is cleared at boot.
    """
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
        directory: The directory of the lock files, which is created if missing.
        program: The name of this program, such as "ccm apply". Other processes that wait for a lock show it.
        patience_s: The maximum time to wait for another process, in seconds.

    Attributes:
        waits_for: The locks for which tasks of this process wait: each lock's name, and its holder as written in the lock file.
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
                f"the {name} lock of this host is still held by {holder} after {self._patience_s:g} s; wait until it ends, "
                "or stop it"
            ) from err
        try:
            yield
        finally:
            await self._threads.call(file.release)
            own.release()

    async def _acquire(self, name: str, own: asyncio.Lock, file: _LockFile) -> None:
        try:
            # poll, because another process cannot notify this process
            while not await self._threads.call(file.acquire):
                self.waits_for[name] = await self._threads.call(file.holder)
                await asyncio.sleep(ASK_AGAIN_S)
        except BaseException:
            await self._threads.call(file.release)
            own.release()
            raise
        finally:
            self.waits_for.pop(name, None)


class _LockFile:
    """A lock file and this process's lock on it. The methods block, so they must be called in a thread."""

    def __init__(self, path: str, holder: str) -> None:
        self._path = path
        self._text = holder
        self._fd = -1

    def acquire(self) -> bool:
        """Lock the file and write the name of this process to it. Return False if another process holds the lock."""
        try:
            os.makedirs(os.path.dirname(self._path), 0o755, exist_ok=True)  # noqa: PTH103, PTH120 - as above
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
            if os.fstat(fd).st_mode & ~_MODE & 0o777:
                os.fchmod(fd, _MODE)
        except OSError as err:
            raise LockError(f"{self._path}: the lock cannot be created: {err.strerror}") from err
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._fd = fd
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with suppress(OSError):  # on a full disk, the lock still works, but without the holder's name
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{self._text} since {since}".encode(), 0)
        return True

    def release(self) -> None:
        """Release the lock, if this process holds it."""
        if self._fd >= 0:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(
                self._fd
            )  # this also releases the lock; the file is kept, because another process may be waiting for it
            self._fd = -1

    def holder(self) -> str:
        """Return the name of the holder, as written in the file."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return "another process"
        try:
            return os.read(fd, HOLDER_BYTES).decode(errors="replace").strip() or "another process"
        finally:
            os.close(fd)
