"""What a package provider can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ccm_agent.resources.package.model import PackageProperties, PackageState


class PackageProvider(Protocol):
    """
    Looks at packages and changes them.

    A verb MUST end by itself or fail: it never asks a question, and it says who holds the package manager's lock when that is
    why it failed. All raise CommandError with the tail of what the tool said.
    """

    async def status(self, wanted: PackageProperties) -> PackageState:
        """The installed version, or absent. A package that is not wholly installed is absent."""
        ...

    async def look_ahead(self, wanted: Sequence[PackageProperties]) -> Sequence[PackageState | None]:
        """What `status` would say of each, by one question to the tool."""
        ...

    async def install(self, name: str, version: str) -> None:
        """Install a package: `version` is "present", "latest" or a version."""
        ...

    async def upgrade(self, name: str, version: str) -> None:
        """Bring an installed package to a newer version, or to the newest with "latest"."""
        ...

    async def downgrade(self, name: str, version: str) -> None:
        """Bring an installed package to an older version."""
        ...

    async def uninstall(self, name: str) -> None:
        """Remove a package; its configuration files stay where the tool keeps them."""
        ...
