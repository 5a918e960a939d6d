"""A lock on a folder, shared by the processes of this host; it ends with the process."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ccm_agent.model.errors import LockError

FILE = "refresh.lock"
PATIENCE_S = 10.0
"""Seconds to wait for the lock. It is held for a write of a few kilobytes; a process that holds it for longer is hanging."""

ASK_AGAIN_S = 0.01


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """
    Hold the exclusive lock for writes to a folder. Blocking.

    Raises:
        LockError: Another process held it for PATIENCE_S.
        OSError: The lock file cannot be created.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(folder / FILE, flags, 0o600)
    try:
        _acquire(fd, folder)
        yield
    finally:
        os.close(fd)  # closing it unlocks it; the file stays, because another process may be waiting for it


def _acquire(fd: int, folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise LockError(
                    f"{folder / FILE}: another process has held this lock for {PATIENCE_S:g} s"
                ) from None
        time.sleep(ASK_AGAIN_S)
