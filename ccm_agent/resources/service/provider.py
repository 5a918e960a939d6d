"""What a service provider can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ccm_agent.resources.service.model import ServiceProperties, ServiceState


class ServiceProvider(Protocol):
    """
    Looks at services and changes them.

    Whether a verb worked is told by the state afterwards, not by its exit status: systems report failure for what they did, and
    success for what they did not. What a verb complained about is in the next state's `said`.
    """

    async def status(self, wanted: ServiceProperties) -> ServiceState:
        """Whether it runs and is enabled; CommandError for a service that is not there."""
        ...

    async def look_ahead(self, wanted: Sequence[ServiceProperties]) -> Sequence[ServiceState | None]:
        """What `status` would say of each, where one question to the system tells."""
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
        """Have it start at boot."""
        ...

    async def disable(self, name: str) -> None:
        """Have it not start at boot."""
        ...
