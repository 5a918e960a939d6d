"""The Protocol of service providers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ccm_agent.resources.service.model import ServiceProperties, ServiceState


class ServiceProvider(Protocol):
    """
    Reads and changes services.

    The state afterwards decides whether a verb worked, not its exit status: init systems report failure for things they did, and
    success for things they did not. Output of a failed verb is in the next state's `said`.
    """

    async def status(self, wanted: ServiceProperties) -> ServiceState:
        """Return whether the service runs and is enabled; CommandError if it does not exist."""
        ...

    async def look_ahead(self, wanted: Sequence[ServiceProperties]) -> Sequence[ServiceState | None]:
        """Return what `status` would for each, if one call of the init system's tool tells it."""
        ...

    async def start(self, name: str) -> None:
        """Start a stopped service."""
        ...

    async def stop(self, name: str) -> None:
        """Stop a running service."""
        ...

    async def restart(self, name: str) -> None:
        """Stop and start a running service."""
        ...

    async def enable(self, name: str) -> None:
        """Enable the service at boot."""
        ...

    async def disable(self, name: str) -> None:
        """Disable the service at boot."""
        ...
