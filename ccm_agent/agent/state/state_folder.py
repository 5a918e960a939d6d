"""
The state folder: the node's identity, the lock for one agent per folder, and the start of its request log.

The node's name is the configured one, or the host's FQDN at the first start. It is then stored on disk, so a different answer
of the resolver does not change the node's identity. Two agents with one folder would write into each other's spool and request
log, so an agent locks the folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import socket
import stat
from pathlib import Path
from typing import Any

from ccm_agent.bus.subjects import check_node
from ccm_agent.model.errors import FileError, LockError, UsageError
from ccm_agent.storage.journal import replace_file
from ccm_agent.storage.state_file import StateFile

log = logging.getLogger(__name__)

MACHINE_ID = Path("/etc/machine-id")
_FILE = "identity"

STATUS_FILE = "status.json"
"""The last status that the agent wrote (`node.status`)."""


def read_status(folder: Path) -> dict[str, Any]:
    """Return the status that the agent wrote; empty if there is none. Blocking."""
    return StateFile(folder / STATUS_FILE, dict[str, Any]).load() or {}


def determine_identity(configured: str, state_dir: Path) -> str:
    """
    Return this node's identity, and store it in the state folder. Blocking.

    Args:
        configured: The configured identity; "" uses the stored identity or, without one, the FQDN.
        state_dir: The agent's state folder; created if necessary.

    Raises:
        UsageError: The identity cannot be part of a subject.
        FileError: The state folder cannot be used.
    """
    path = state_dir / _FILE
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = path.read_text(encoding="utf-8").strip() if path.exists() else ""
        identity = check_node(configured or kept or fully_qualified())
        if identity != kept:
            replace_file(path, [f"{identity}\n".encode()])
    except (OSError, UnicodeDecodeError) as err:
        raise FileError(
            f"{state_dir}: cannot save this node's identity: {err}; make the folder writable for this user"
        ) from err
    return identity


def saved_identity(state_dir: Path) -> str:
    """Return the identity stored in a state folder; "" if there is none. Blocking."""
    try:
        return (state_dir / _FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def check_configured(identity: str) -> None:
    """
    Check that a configured identity is valid; "" means the host's name.

    Raises:
        UsageError: The identity cannot be part of a subject.
    """
    if identity:
        check_node(identity)


def machine_id(state_dir: Path, source: Path = MACHINE_ID) -> str:
    """
    Return a text that is unique to this host. It is not the machine id itself, which machine-id(5) requires to be kept
    confidential. Blocking.

    A host without a machine id gets a random id, which is stored in the state folder.
    """
    try:
        raw = source.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raw = ""
    if not raw or raw == "uninitialized":
        raw = _made_up_id(state_dir)
    return hashlib.sha256(b"ccm-agent:" + raw.encode()).hexdigest()[:32]


def _made_up_id(state_dir: Path) -> str:
    path = state_dir / "machine-id"
    try:
        if not path.exists():
            replace_file(path, [os.urandom(16).hex().encode()])
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as err:
        raise FileError(
            f"{path}: cannot save a machine id: {err}; make the folder writable for this user"
        ) from err


def fully_qualified() -> str:
    """Return this host's name. Raises UsageError if it is only `localhost`. Blocking."""
    name = socket.getfqdn().rstrip(".").lower()
    # A host without a domain may be called `localhost.localdomain`, like every other such host.
    if name.partition(".")[0] in ("localhost", ""):
        name = socket.gethostname().rstrip(".").lower()
    if name.partition(".")[0] in ("localhost", ""):
        raise UsageError("this host has no usable host name: set `identity` in the agent's configuration")
    return name


FILE = "agent.lock"


def lock_owner(folder: Path) -> int:
    """
    Return the process that has locked a state folder; 0 if there is none. Blocking.

    This does not take the lock, because an agent that starts at that moment would then fail. Source: proc(5), /proc/locks.
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
    """A lock on a state folder. The kernel releases it when the process ends."""

    def __init__(self, folder: Path, *others: Path) -> None:
        """
        Args:
            folder: The state folder.
            others: Further folders with files that control the agent; they need not exist yet.
        """
        self._path = folder / FILE
        self._others = others
        self._fd = -1

    def take(self) -> None:
        """
        Lock the folder, which is created if necessary. Blocking, but does not wait for another agent.

        Raises:
            LockError: Another agent has locked it.
            FileError: The folder cannot be used, or other users can write to it.
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
                f"{self._path.parent}: the agent of process {owner} uses this state folder; give each agent its own `state_dir`"
            ) from err
        except OSError as err:
            self.release()
            raise FileError(
                f"{self._path}: cannot lock: {err.strerror}; make the folder writable for this user"
            ) from err

    def release(self) -> None:
        """Unlock the folder."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _refuse_shared(folder: Path) -> None:
    """Refuse a folder that other users can write to. Its files, such as unpacked bundles, control this agent."""
    found = folder.stat()
    if found.st_uid not in (0, os.geteuid()):
        raise FileError(
            f"{folder}: user {found.st_uid} owns it and could control this agent; run `chown root {folder}`"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise FileError(
            f"{folder}: other users can write there (mode {stat.S_IMODE(found.st_mode):04o}) and could control this "
            f"agent; run `chmod 0700 {folder}`"
        )


LEDGER = "ledger.log"
"""The log of requests, in the state folder."""

_BEGAN = "began.json"


def state_began(folder: Path, now_ms: int) -> int:
    """
    Return when the request log in a state folder began, in milliseconds since 1970; 0 for a log of an earlier version. Blocking.

    A signed request is valid for an hour, and the log ensures that it is executed once. A node without the log cannot recognize
    the requests that it has executed, so an attacker who controls the broker could deliver a request again. Call this before
    the log is opened: if the folder has no log, the state begins now.
    """
    file = StateFile(folder / _BEGAN, int)
    if (folder / LEDGER).exists():
        return file.load() or 0
    try:
        file.write(now_ms)
    except FileError as err:
        # The next start treats the log as one of an earlier version; this process does not.
        log.warning("the time when the state began cannot be saved", extra={"reason": str(err)})
    return now_ms
