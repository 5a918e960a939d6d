"""
Locks that the processes of this host share: one file each, locked with flock(2), which releases it when a process dies.

Within a process an asyncio lock comes first, because its waiters are queued in order and use no thread.
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
"""Seconds. A package manager may run for minutes, and waiting for it is right; longer than this, it hangs."""
ASK_AGAIN_S = 0.1
LOCKS_AT_ONCE = 4
HOLDER_BYTES = 200
_MODE = 0o600
"""Only the owner may open the file: any user who may read a file can lock it, and so block root's package manager."""
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


def lock_directory() -> str:
    """Return the directory of the locks: writable only by this user, and cleared at boot if possible."""
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
        directory: The directory of the lock files; created if missing.
        program: The name that other waiting processes are shown, such as "ccm apply".
        patience_s: How long to wait for another process.

    Attributes:
        waits_for: Names of the locks that tasks of this process wait for, with the text that each holder wrote about itself.
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
            while not await self._threads.call(file.acquire):  # another process cannot notify us
                self.waits_for[name] = await self._threads.call(file.holder)
                await asyncio.sleep(ASK_AGAIN_S)
        except BaseException:
            await self._threads.call(file.release)
            own.release()
            raise
        finally:
            self.waits_for.pop(name, None)


class _LockFile:
    """A file and our lock on it. Its methods block, so call them in a thread."""

    def __init__(self, path: str, holder: str) -> None:
        self._path = path
        self._text = holder
        self._fd = -1

    def acquire(self) -> bool:
        """Lock the file and write our name into it; False if another process holds the lock."""
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
        with suppress(OSError):  # on a full disk the lock works, only without the holder's name
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{self._text} since {since}".encode(), 0)
        return True

    def release(self) -> None:
        """Let it go, if it is ours."""
        if self._fd >= 0:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(
                self._fd
            )  # which unlocks it; the file stays, because another process may be waiting for it
            self._fd = -1

    def holder(self) -> str:
        """Return what the holder wrote about itself."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return "another process"
        try:
            return os.read(fd, HOLDER_BYTES).decode(errors="replace").strip() or "another process"
        finally:
            os.close(fd)
