"""The Protocol of system providers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ccm_agent.resources.contract import Provider
from ccm_agent.resources.system.model import SystemProperties, SystemState


class SystemProvider(Provider[SystemProperties, SystemState], Protocol):
    """Reads and changes settings of the machine. All methods raise HostError if the operating system refuses."""

    async def look_ahead(self, wanted: Sequence[SystemProperties]) -> Sequence[SystemState | None]:
        """Return what `status` would for each."""
        ...

    async def set(self, place: str, value: str) -> None:
        """
        Set a value. Files are written atomically; their other lines are kept.

        Args:
            place: A path in `SystemState.values`.
            value: The value; "" removes it.
        """
        ...
