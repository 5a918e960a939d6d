"""
What the next process has to know of a run that the agent's own restart parts in two.

An agent that is restarted, by a package of the run in hand perhaps, ends no run: it finishes the resource in hand and writes down
what came of each so far. One file is enough, for there is one run at a time. It goes when the run is taken up again, so a
process that is killed after that leaves an interrupted run and no second beginning.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from ccm_agent.agent.cache.state_file import load_state, save_state
from ccm_agent.agent.events.journal import sync_folder
from ccm_agent.model.errors import FileError
from ccm_agent.model.outcome import TransactionEvent


class Checkpoint(Struct, kw_only=True):
    """
    Where a run stands.

    Attributes:
        run: Its id.
        number: Number of the last event that was told.
        began: When it began.
        digest: Of its manifest.
        data_revisions: As its start told them.
        done: What came of each resource so far, in order, stable ones too; without properties and state.
    """

    run: str
    number: int
    began: datetime
    digest: str = ""
    data_revisions: dict[str, int] = {}
    done: list[TransactionEvent] = []


class Checkpoints:
    """
    The one run of a node that waits for the next process.

    Attributes:
        run: Its id; "" when there is none.
    """

    def __init__(self, path: Path) -> None:
        """Nothing is read yet."""
        self.run = ""
        self._path = path
        self._found: Checkpoint | None = None

    def open(self) -> None:
        """Read what the last process left; what cannot be read is said so, and its run has been interrupted. Blocking."""
        self._found = load_state(self._path, Checkpoint)
        self.run = self._found.run if self._found else ""

    async def keep(self, continuation: Checkpoint) -> None:
        """
        Leave a run to the next process; it is safe from a power cut when this returns.

        Raises:
            FileError: It cannot be written.
        """
        await save_state(self._path, continuation)

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
