"""The run that an agent which is restarted leaves to the next process."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ccm_agent.agent.events.run_report import Checkpoint
from ccm_agent.model.errors import FileError
from ccm_agent.storage.journal import sync_folder
from ccm_agent.storage.state_file import StateFile


class Checkpoints:
    """
    The one run of a node that waits for the next process.

    Attributes:
        run: Its id; "" when there is none.
    """

    def __init__(self, path: Path) -> None:
        self.run = ""
        self._path = path
        self._file = StateFile(path, Checkpoint)
        self._found: Checkpoint | None = None

    def open(self) -> None:
        """Read what the last process left; what cannot be read is said so, and its run has been interrupted. Blocking."""
        self._found = self._file.load()
        self.run = self._found.run if self._found else ""

    async def save(self, checkpoint: Checkpoint) -> None:
        """
        Leave a run to the next process; it is safe from a power cut when this returns.

        Raises:
            FileError: It cannot be written.
        """
        await asyncio.to_thread(self._file.write, checkpoint)

    async def take(self, run: str) -> Checkpoint | None:
        """
        Take a run up again, which can be done once; None when it is not the one that waits.

        Raises:
            FileError: The file cannot be removed, so it might be taken up twice.
        """
        found = self._found
        if found is None or found.run != run:
            return None
        await asyncio.to_thread(self.drop)
        return found

    def drop(self) -> None:
        """
        Forget the run that waits: it is taken up, or over. Blocking.

        Raises:
            FileError: The file is still there.
        """
        self._found, self.run = None, ""
        try:
            self._path.unlink()
            sync_folder(self._path.parent)
        except FileNotFoundError:
            return
        except OSError as err:
            raise FileError(f"{self._path}: cannot be removed: {err.strerror}") from err
