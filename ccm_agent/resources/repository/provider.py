"""The Protocol of repository providers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ccm_agent.resources.changes import FileChange
from ccm_agent.resources.contract import Provider
from ccm_agent.resources.repository.model import RepositoryProperties, RepositoryState


class RepositoryProvider(Provider[RepositoryProperties, RepositoryState], Protocol):
    """Reads and writes the files of repositories. All methods raise HostError if the operating system refuses."""

    async def look_ahead(self, wanted: Sequence[RepositoryProperties]) -> Sequence[RepositoryState | None]:
        """Return what `status` would for each. All files are inspected at once; only files that differ are read."""
        ...

    async def compare(self, wanted: RepositoryProperties, found: RepositoryState) -> Sequence[FileChange]:
        """Return what changes in the files, for a diff."""
        ...

    async def write(self, wanted: RepositoryProperties, found: RepositoryState, *, refresh: bool) -> None:
        """
        Write both files.

        The key is read or fetched, and compared with its fingerprint. With `refresh`, the package manager fetches the package
        lists with copies of both files. Only after that the files are changed, and they are restored if the package manager
        cannot read its configuration with them.

        Raises:
            PropertyError: It is not the key with the desired fingerprint.
            DownloadError: The key cannot be fetched.
            CommandError: The package lists cannot be fetched.
        """
        ...

    async def remove(self, wanted: RepositoryProperties, found: RepositoryState) -> None:
        """Remove the file of the repository, and its key if that file names it."""
        ...
