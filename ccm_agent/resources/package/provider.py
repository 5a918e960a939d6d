"""The Protocol of package providers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ccm_agent.resources.package.model import PackageProperties, PackageState


class PackageProvider(Protocol):
    """
    Reads and changes packages.

    Each method MUST end without user input. If the package manager's lock causes a failure, the error contains the process that
    holds the lock. All methods raise CommandError with the end of the tool's output if they fail.
    """

    async def status(self, wanted: PackageProperties) -> PackageState:
        """Return the installed version, or "absent". A partially installed package is treated as absent."""
        ...

    async def look_ahead(self, wanted: Sequence[PackageProperties]) -> Sequence[PackageState | None]:
        """Return the result of `status` for each package, with one call of the tool."""
        ...

    async def install(self, name: str, version: str) -> None:
        """Install a package. `version` is "present", "latest" or a version."""
        ...

    async def upgrade(self, name: str, version: str) -> None:
        """Upgrade an installed package to a version, or to the newest with "latest"."""
        ...

    async def downgrade(self, name: str, version: str) -> None:
        """Downgrade an installed package to a version."""
        ...

    async def uninstall(self, name: str) -> None:
        """Remove a package. The tool decides whether configuration files are kept."""
        ...
