"""What an archive provider can do."""

from __future__ import annotations

from typing import Protocol

from ccm_agent.resources.archive.model import ArchiveProperties, ArchiveState


class ArchiveProvider(Protocol):
    """Looks at archives, downloads and unpacks them. What is at the target is never half an archive."""

    async def status(self, wanted: ArchiveProperties) -> ArchiveState:
        """What is there; FileError where something that is not a file stands in the archive's place."""
        ...

    async def download(self, wanted: ArchiveProperties) -> None:
        """Fetch the archive, prove its checksum and put it in its place, owner and all."""
        ...

    async def extract(self, wanted: ArchiveProperties) -> None:
        """Unpack it. An archive that cannot be unpacked does not stay where nothing else would tell that it failed."""
        ...

    async def set_attributes(self, wanted: ArchiveProperties) -> None:
        """Set owner and group of the archive that is there, and take away permissions that it should not have."""
        ...

    async def remove(self, wanted: ArchiveProperties) -> None:
        """Remove the archive file; what was unpacked stays."""
        ...
