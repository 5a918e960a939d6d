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

from ccm_agent.daemon.journal import replace_file
from ccm_agent.model.errors import FileError
from ccm_agent.model.foreign import decode_foreign
from ccm_agent.model.texts import encode_told

log = logging.getLogger(__name__)

T = TypeVar("T")


def read_kept(path: Path, kind: type[T]) -> T | None:
    """What a file holds; None when it is not there, and when it is no such thing, which is logged. Blocking."""
    try:
        return decode_foreign(path.read_bytes(), kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as err:
        log.warning("a file of state is passed over", extra={"path": str(path), "reason": str(err)})
        return None


async def write_kept(path: Path, value: Any) -> None:
    """
    Replace a file's content, in one hop to a thread.

    Raises:
        FileError: The disk is full or failing; the file is as before.
    """
    await asyncio.to_thread(store_kept, path, value)


def store_kept(path: Path, value: Any) -> None:
    """`write_kept`, blocking."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, [encode_told(value)])
    except OSError as err:
        raise FileError(f"{path}: cannot write: {err.strerror}; is the disk full?") from err
