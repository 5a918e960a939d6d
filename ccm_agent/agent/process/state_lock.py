"""
One agent to a state folder: two would write into each other's spool and ledger.
"""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

from ccm_agent.model.errors import FileError, LockError

FILE = "agent.lock"


def lock_owner(folder: Path) -> int:
    """
    The process that has a state folder; 0 when none has. Blocking.

    It takes no lock to find out: an agent that starts in that moment would be refused by it. Source: proc(5), /proc/locks.
    """
    try:
        path = folder / FILE
        inode, pid = path.stat().st_ino, int(path.read_text(encoding="ascii"))
        locks = [line.split() for line in Path("/proc/locks").read_text(encoding="ascii").splitlines()]
    except (OSError, ValueError):
        return 0
    is_held = any(
        words[1:2] == ["FLOCK"] and words[5:6] and words[5].rpartition(":")[2] == str(inode)
        for words in locks
    )
    return pid if is_held else 0


class StateLock:
    """A lock on a state folder; it ends with the process, whatever ends that."""

    def __init__(self, folder: Path, *others: Path) -> None:
        """
        Nothing is locked yet.

        Args:
            folder: The state folder.
            others: Further folders of which what lies there is obeyed; they need not be there yet.
        """
        self._path = folder / FILE
        self._others = others
        self._fd = -1

    def take(self) -> None:
        """
        Lock the folder, which is made if need be. Blocking, but never waits.

        Raises:
            LockError: Another agent has it.
            FileError: It cannot be used, or somebody else may write there.
        """
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (self._path.parent, *(one for one in self._others if one.exists())):
                _refuse_shared(folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self._path, flags, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError as err:
            owner = os.pread(self._fd, 20, 0).decode(errors="replace").strip() or "another"
            self.release()
            raise LockError(
                f"{self._path.parent}: process {owner} is an agent with this state folder; give each its own `state_dir`"
            ) from err
        except OSError as err:
            self.release()
            raise FileError(f"{self._path}: cannot lock: {err.strerror}; may we write there?") from err

    def release(self) -> None:
        """Unlock it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _refuse_shared(folder: Path) -> None:
    """What lies in it is obeyed, bundles that were unpacked before among it: who may write there commands this agent."""
    found = folder.stat()
    if found.st_uid not in (0, os.geteuid()):
        raise FileError(
            f"{folder}: user {found.st_uid} owns it, and would command this agent: give it to root"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise FileError(
            f"{folder}: others may write there (mode {stat.S_IMODE(found.st_mode):04o}), and would command this agent: "
            f"chmod 0700 {folder}"
        )
