"""
What somebody at the host asks of its agent, be there one that runs or not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from ccm_agent.agent.node import maintenance
from ccm_agent.agent.node.control_socket import LOOK, ONCE, STATUS, ask
from ccm_agent.agent.node.local_status import read_status
from ccm_agent.agent.process.identity import saved_identity
from ccm_agent.agent.process.state_lock import lock_owner
from ccm_agent.model.errors import FileError, HostError, UsageError
from ccm_agent.model.wire import Disabled

WHY_LIMIT = 500
"""In characters: it stands in the node's record and in each refusal."""

KNOWS = "knows"
"""The agent knows that the node was disabled or enabled, and obeys."""
SOON = "soon"
"""An agent runs but could not be told; it looks by itself every few seconds."""
OFF = "off"
"""No agent runs; the next one will know."""


def status(folder: Path) -> dict[str, Any]:
    """
    What is known of the agent of a state folder.

    When no agent answers, this is what the agent left on disk: `running` is false, and `lock_owner` is the process that has the
    folder all the same (0: none), and `time` when it was written.

    Raises:
        FileError: We may not look.
        HostError: The agent does not answer.
    """
    _check(folder)
    answer = ask(folder, STATUS)
    if answer is not None:
        return {**answer["status"], "running": True}
    left = read_status(folder)
    disabled = maintenance.read_disabled(folder)
    is_over = disabled is not None and disabled.until is not None and disabled.until <= datetime.now(UTC)
    return {
        "node": saved_identity(folder),
        **left,
        "running": False,
        "holder": lock_owner(folder),
        "disabled": msgspec.to_builtins(disabled) if disabled and not is_over else None,
        "spool": {**left.get("spool", {}), "bytes": _size(folder / "spool")},
        "connected": False,
    }


def disable(folder: Path, *, for_s: float, why: str, by: str) -> tuple[Disabled, str]:
    """
    Disable a node.

    Args:
        folder: The agent's state folder.
        for_s: For how long; 0: until it is enabled.
        why: Why, for everybody who wonders.
        by: Who says so.

    Returns:
        What stands there now, and whether the agent KNOWS, will SOON, or is OFF.

    Raises:
        FileError: We may not write there.
    """
    now = datetime.now(UTC).replace(microsecond=0)
    until = now + timedelta(seconds=for_s) if for_s else None
    disabled = Disabled(since=now, until=until, why=why[:WHY_LIMIT], by=by[:WHY_LIMIT])
    maintenance.disable(folder, disabled)
    return disabled, _told(folder)


def enable(folder: Path) -> tuple[bool, str]:
    """
    Enable a node again: whether it was disabled, and whether the agent KNOWS, will SOON, or is OFF.

    Raises:
        FileError: We may not write there.
    """
    _check(folder)
    return maintenance.enable(folder), _told(folder)


def converge_once(folder: Path, on_status: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]] | None:
    """
    Have the agent of a state folder converge now, and wait for the end.

    Args:
        folder: The state folder.
        on_status: Told every few seconds where the agent is; what it raises ends the waiting, and nothing else.

    Returns:
        How it ended for each manifest and assignment, as `Ended`; None when no agent runs.

    Raises:
        FileError: We may not ask.
        HostError: The agent does not, or has ended.
    """
    answer = ask(folder, ONCE, lambda line: on_status(line["status"]))
    return None if answer is None else list(answer["ended"])


def check_owner(folder: Path) -> None:
    """
    See that an agent of ours would leave nothing in a state folder that its own agent cannot read.

    Raises:
        UsageError: Somebody else's agent has it.
    """
    if folder.is_dir() and folder.stat().st_uid != os.geteuid():
        raise UsageError(
            f"{folder}: belongs to the user {folder.stat().st_uid}, whose agent does not run; run this as that user"
        )


def _told(folder: Path) -> str:
    try:
        if ask(folder, LOOK) is not None:
            return KNOWS
    except HostError:
        return SOON
    return SOON if lock_owner(folder) else OFF


def _check(folder: Path) -> None:
    if not folder.is_dir():
        raise FileError(f"{folder}: there is no such state folder; has the agent been installed and started?")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise FileError(f"{folder}: only its owner may look; are you root?")


def _size(folder: Path) -> int:
    try:
        return sum(path.stat().st_size for path in folder.iterdir())
    except OSError:
        return 0
