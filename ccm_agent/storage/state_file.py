"""
Reads and writes small state files of the agent, which are replaced atomically.

They speed up or improve a restart. The agent works without any of them.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from ccm_agent.model.errors import FileError
from ccm_agent.model.formats.json_text import encode_message
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.storage.journal import make_private_folder, replace_file

log = logging.getLogger(__name__)

T = TypeVar("T")


class StateFile(Generic[T]):
    """A small state file with mode 0600. It is written atomically, and only if its value has changed."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        """
        Args:
            path: The path of the file. Its folder is created if necessary.
            kind: The type of its value.
        """
        self._path = path
        self._kind = kind
        self._saved: T | None = None
        self._lock = asyncio.Lock()

    def load(self) -> T | None:
        """
        Return the value in the file. If the file does not exist, return None. If it cannot be read, log this and return None.
        Blocking.
        """
        try:
            return decode_foreign(self._path.read_bytes(), self._kind)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as err:
            log.warning("a state file is skipped", extra={"path": str(self._path), "reason": str(err)})
            return None

    def mark_saved(self, value: T) -> None:
        """Record that the file contains this value, so it need not be written."""
        self._saved = value

    def is_saved(self, value: T) -> bool:
        """Whether the file contains this value."""
        return self._saved == value

    async def save(self, value: T) -> bool:
        """
        Save a value in a thread, unless the file already contains it. Return whether this succeeded.

        A failure is only logged, because the agent works without the file, and the next call tries again.

        Args:
            value: The value. It must not be modified afterwards.
        """
        # allow only one writer at a time, because concurrent writers could damage the file
        async with self._lock:
            if self.is_saved(value):
                return True
            try:
                await asyncio.to_thread(self.write, value)
            except FileError as err:
                log.warning("state is not saved on disk", extra={"path": str(self._path), "reason": str(err)})
                return False
            self._saved = value
            return True

    def write(self, value: T) -> None:
        """
        Replace the file's content. Blocking.

        Raises:
            FileError: The disk is full or failing. The file is unchanged.
        """
        try:
            make_private_folder(self._path.parent)
            replace_file(self._path, [encode_message(value)])
        except OSError as err:
            raise FileError(f"{self._path}: cannot write: {err.strerror}; check the free disk space") from err
