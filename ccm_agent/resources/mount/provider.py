"""The Protocol of mount providers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ccm_agent.resources.contract import Provider
from ccm_agent.resources.mount.model import MountProperties, MountState


class MountProvider(Provider[MountProperties, MountState], Protocol):
    """Reads and changes file systems. All methods raise HostError if the operating system refuses."""

    async def look_ahead(self, wanted: Sequence[MountProperties]) -> Sequence[MountState | None]:
        """Return what `status` would for each: both tables are read once."""
        ...

    async def create_directory(self, wanted: MountProperties) -> None:
        """Create the mount point."""
        ...

    async def mount(self, wanted: MountProperties) -> None:
        """Mount the file system."""
        ...

    async def remount(self, wanted: MountProperties, device: str) -> None:
        """Change the options of the file system that is mounted from a device."""
        ...

    async def unmount(self, wanted: MountProperties) -> None:
        """Unmount the file system; neither lazily nor by force."""
        ...

    async def write_entry(self, wanted: MountProperties) -> None:
        """Write the entry into /etc/fstab atomically; other lines are kept."""
        ...

    async def remove_entry(self, wanted: MountProperties) -> None:
        """Remove the entry from /etc/fstab."""
        ...
