"""
The state folder: which node it belongs to, one agent per folder, and when its log of requests began.

The node's name is the configured one, else the host's FQDN on the first start; it is kept on disk from then on, because a
resolver that answers differently tomorrow must not make another node of this one. Two agents with one folder would write into
each other's spool and request log, so an agent locks the folder.
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
"""What the agent reported about itself when it last wrote it (`node.status`)."""


def read_status(folder: Path) -> dict[str, Any]:
    """What the agent left there; empty when it left nothing. Blocking."""
    return StateFile(folder / STATUS_FILE, dict[str, Any]).load() or {}


def determine_identity(configured: str, state_dir: Path) -> str:
    """
    This node's identity, kept in the state folder from now on. Blocking.

    Args:
        configured: What the configuration says; "" takes what is on disk, else the FQDN.
        state_dir: The agent's state folder; made if need be.

    Raises:
        UsageError: It cannot be part of a subject.
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
    """The identity that is kept in a state folder; "" when none is. Blocking."""
    try:
        return (state_dir / _FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def check_configured(identity: str) -> None:
    """
    See that a configured identity could be one; "" leaves it to the host.

    Raises:
        UsageError: It cannot be part of a subject.
    """
    if identity:
        check_node(identity)


def machine_id(state_dir: Path, source: Path = MACHINE_ID) -> str:
    """
    A text that is this host's alone; not the id itself, which machine-id(5) asks to keep to oneself. Blocking.

    A host without one gets a random id, kept in the state folder.
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
    """This host's name; UsageError if it has none but `localhost`. Blocking."""
    name = socket.getfqdn().rstrip(".").lower()
    # a host without a domain may be called `localhost.localdomain`, as every other is
    if name.partition(".")[0] in ("localhost", ""):
        name = socket.gethostname().rstrip(".").lower()
    if name.partition(".")[0] in ("localhost", ""):
        raise UsageError("this host has no usable host name: set `identity` in the agent's configuration")
    return name


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
            FileError: It cannot be used, or other users may write there.
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
        """Unlock it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _refuse_shared(folder: Path) -> None:
    """What lies in it is obeyed, bundles that were unpacked before among it: who may write there commands this agent."""
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
    When the log of requests in a state folder began, in milliseconds since 1970; 0 for one of an earlier version. Blocking.

    A signed request is valid for an hour, and by the log it is carried out once. A node without the log does not know what it
    carried out: the holder of the broker could deliver a request again. Call it before the log is opened: a folder without one
    begins now.
    """
    file = StateFile(folder / _BEGAN, int)
    if (folder / LEDGER).exists():
        return file.load() or 0
    try:
        file.write(now_ms)
    except FileError as err:
        # the next start reads the log as one of an earlier version; this process does not
        log.warning("the time when the state began cannot be saved", extra={"reason": str(err)})
    return now_ms
