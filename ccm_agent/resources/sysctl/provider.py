"""The Protocol of sysctl providers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ccm_agent.resources.contract import Provider
from ccm_agent.resources.sysctl.model import SysctlProperties, SysctlState


class SysctlProvider(Provider[SysctlProperties, SysctlState], Protocol):
    """Reads and sets parameters of the kernel. All methods raise HostError if the operating system refuses."""

    async def look_ahead(self, wanted: Sequence[SysctlProperties]) -> Sequence[SysctlState | None]:
        """Return what `status` would for each: each file is read once, and all live values in one call."""
        ...

    async def set_live(self, wanted: SysctlProperties) -> None:
        """Set the value of the running kernel."""
        ...

    async def write_line(self, wanted: SysctlProperties) -> None:
        """Write the parameter's line into the file, atomically; other lines are kept."""
        ...

    async def remove_line(self, wanted: SysctlProperties) -> None:
        """Remove the parameter's line from the file, and the file if nothing else is in it."""
        ...
