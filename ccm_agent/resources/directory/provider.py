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

    No symlink in the directory is followed, and no other file system that is mounted in it is entered. `status` raises nothing
    for a directory that cannot be read: the state has the error.
    """

    async def look_ahead(self, wanted: Sequence[DirectoryProperties]) -> Sequence[DirectoryState | None]:
        """Return what `status` would for each."""
        ...

    async def compare(self, wanted: DirectoryProperties) -> Sequence[FileChange]:
        """Return the contents that the next `sync` changes, before and after, for a diff."""
        ...

    def keep(self, wanted: DirectoryProperties, keep: KeepFile) -> AsyncIterator[EarlierState]:
        """Keep what the next `sync` changes, and yield the resources that restore it; see `UndoRules.parts`."""
        ...

    async def sync(self, wanted: DirectoryProperties) -> None:
        """Make the changes that the last look found: write first, remove last."""
        ...
