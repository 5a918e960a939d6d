"""
Small files of the agent's own state, written whole or not at all, mode 0600.

They hold what is convenient to know after a restart; whoever reads one must be able to do without it.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ccm_agent.agent.events.journal import replace_file
from ccm_agent.model.errors import FileError
from ccm_agent.model.json_text import encode_told
from ccm_agent.model.untrusted_json import decode_foreign

log = logging.getLogger(__name__)

T = TypeVar("T")


def load_state(path: Path, kind: type[T]) -> T | None:
    """What a file holds; None when it is not there, and when it is no such thing, which is logged. Blocking."""
    try:
        return decode_foreign(path.read_bytes(), kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as err:
        log.warning("a file of state is passed over", extra={"path": str(path), "reason": str(err)})
        return None


async def save_state(path: Path, value: Any) -> None:
    """
    Replace a file's content, in one hop to a thread.

    Raises:
        FileError: The disk is full or failing; the file is as before.
    """
    await asyncio.to_thread(save_state_sync, path, value)


def save_state_sync(path: Path, value: Any) -> None:
    """`save_state`, blocking."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, [encode_told(value)])
    except OSError as err:
        raise FileError(f"{path}: cannot write: {err.strerror}; is the disk full?") from err
