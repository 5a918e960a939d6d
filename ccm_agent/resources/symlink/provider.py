"""The Protocol of symlink providers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ccm_agent.resources.contract import Provider
from ccm_agent.resources.symlink.model import SymlinkProperties, SymlinkState


class SymlinkProvider(Provider[SymlinkProperties, SymlinkState], Protocol):
    """Reads and changes symlinks, and never follows one. All methods raise HostError if the operating system refuses."""

    async def look_ahead(self, wanted: Sequence[SymlinkProperties]) -> Sequence[SymlinkState | None]:
        """Return what `status` would for each."""
        ...

    async def link(self, wanted: SymlinkProperties) -> None:
        """Make or replace the symlink atomically; with `force` also replace a file or an empty directory."""
        ...

    async def remove(self, wanted: SymlinkProperties) -> None:
        """Remove what is at the path, but no directory with content."""
        ...
