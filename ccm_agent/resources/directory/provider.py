"""The Protocol of directory providers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from ccm_agent.model.records.undo import EarlierState, KeepFile
from ccm_agent.resources.changes import FileChange
from ccm_agent.resources.contract import Provider
from ccm_agent.resources.directory.model import DirectoryProperties, DirectoryState


class DirectoryProvider(Provider[DirectoryProperties, DirectoryState], Protocol):
    """
    Reads and changes directories with their content.

    Symlinks in the directory are not followed, and other file systems mounted in it are not entered. `status` does not raise an
    error for an unreadable directory. The state contains the error.
    """

    async def look_ahead(self, wanted: Sequence[DirectoryProperties]) -> Sequence[DirectoryState | None]:
        """Return the result of `status` for each resource."""
        ...

    async def compare(self, wanted: DirectoryProperties) -> Sequence[FileChange]:
        """Return the contents of the files that the next `sync` changes, before and after the change, for a diff."""
        ...

    def keep(self, wanted: DirectoryProperties, keep: KeepFile) -> AsyncIterator[EarlierState]:
        """Keep the entries that the next `sync` changes, and yield the resources that restore them; see `UndoRules.parts`."""
        ...

    async def sync(self, wanted: DirectoryProperties) -> None:
        """Make the changes that were determined when the state was last read. Removals are made last."""
        ...
