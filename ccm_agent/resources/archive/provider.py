"""The Protocol of archive providers."""

from __future__ import annotations

from typing import Protocol

from ccm_agent.resources.archive.model import ArchiveProperties, ArchiveState


class ArchiveProvider(Protocol):
    """Reads the state of archives, downloads and unpacks them. The target is never an incomplete archive."""

    async def status(self, wanted: ArchiveProperties) -> ArchiveState:
        """Return the current state; FileError if the path exists and is not a file."""
        ...

    async def download(self, wanted: ArchiveProperties) -> None:
        """Download the archive, verify its checksum, and put it in place with owner and mode."""
        ...

    async def extract(self, wanted: ArchiveProperties) -> None:
        """Unpack the archive. If that fails and no `creates` would show it, the archive is removed."""
        ...

    async def set_attributes(self, wanted: ArchiveProperties) -> None:
        """Set owner and group of the existing archive, and remove permissions beyond the allowed ones."""
        ...

    async def remove(self, wanted: ArchiveProperties) -> None:
        """Remove the archive file; unpacked files stay."""
        ...
