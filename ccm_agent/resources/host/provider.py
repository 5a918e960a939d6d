"""The Protocol of host providers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ccm_agent.resources.contract import Provider
from ccm_agent.resources.host.model import HostProperties, HostState


class HostProvider(Provider[HostProperties, HostState], Protocol):
    """Reads and changes entries of /etc/hosts. All methods raise HostError if the operating system refuses."""

    async def look_ahead(self, wanted: Sequence[HostProperties]) -> Sequence[HostState | None]:
        """Return what `status` would for each: the file is read once."""
        ...

    async def write(self, wanted: HostProperties) -> None:
        """Write the lines of the host atomically; other lines and comments are kept."""
        ...

    async def remove(self, wanted: HostProperties) -> None:
        """Remove the lines of the host."""
        ...
