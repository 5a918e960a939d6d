"""A lock on a folder that processes of this host share; it ends with the process, whatever ends that."""

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
"""Whoever holds the lock writes a few kilobytes; a process that holds it for longer is stopped or hangs on its disk."""

ASK_AGAIN_S = 0.01


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """
    Be the only process that writes to a folder. Blocking.

    Raises:
        LockError: Another process held it all the time.
        OSError: The lock file cannot be made.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(folder / FILE, flags, 0o600)
    try:
        _acquire(fd, folder)
        yield
    finally:
        os.close(fd)  # which unlocks it; the file stays, because another process may be waiting for it


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
