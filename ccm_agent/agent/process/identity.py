"""
Who this node is: its name on the bus, and what tells two hosts of one name apart.

The name is the configured one, else the host's FQDN on the first start; it is kept on disk from then on, for a resolver
that answers differently tomorrow must not make another node of this one.
"""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

from ccm_agent.agent.events.journal import replace_file
from ccm_agent.bus.subjects import check_node
from ccm_agent.model.errors import FileError, UsageError

MACHINE_ID = Path("/etc/machine-id")
_FILE = "identity"


def determine_identity(configured: str, state_dir: Path) -> str:
    """
    This node's identity, kept in the state folder from now on. Blocking.

    Args:
        configured: What the configuration says; "" takes what is on disk, else the FQDN.
        state_dir: The agent's state folder; made if need be.

    Raises:
        UsageError: It could not stand in a subject.
        FileError: The state folder cannot be used.
    """
    path = state_dir / _FILE
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = path.read_text(encoding="utf-8").strip() if path.exists() else ""
        identity = check_node(configured or kept or _fully_qualified())
        if identity != kept:
            replace_file(path, [f"{identity}\n".encode()])
    except (OSError, UnicodeDecodeError) as err:
        raise FileError(f"{state_dir}: cannot keep this node's identity: {err}; may we write there?") from err
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
        UsageError: It could not stand in a subject.
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
        raise FileError(f"{path}: cannot keep a machine id: {err}; may we write there?") from err


def _fully_qualified() -> str:
    name = socket.getfqdn().rstrip(".").lower()
    # a host without a domain may be called `localhost.localdomain`, as every other is
    if name.partition(".")[0] in ("localhost", ""):
        name = socket.gethostname().rstrip(".").lower()
    if name.partition(".")[0] in ("localhost", ""):
        raise UsageError("this host has no name of its own: set `identity` in the agent's configuration")
    return name
