"""The package lists of repositories, for apt and for dnf."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

REFRESH_LIMIT_S = 300.0
"""Fetching the package lists of one repository. A mirror that takes longer is down."""


class PackageLists(Protocol):
    """
    apt or dnf.

    Attributes:
        name: "apt" or "dnf".
    """

    @property
    def name(self) -> str: ...

    async def try_out(self, repository: str, folder: str, file: bytes) -> None:
        """
        Fetch the signed metadata of one repository, whose file is not in its place yet. No list of the host changes.

        Args:
            repository: Its name.
            folder: An empty directory that all users can read.
            file: The content of its file.

        Raises:
            CommandError: That failed.
        """
        ...

    async def refresh(self, repository: str, path: str) -> None:
        """
        Fetch the package lists of one repository, if they are not fetched when they are used. Other lists stay as they are.

        Args:
            repository: Its name.
            path: Its file.

        Raises:
            CommandError: That failed.
        """
        ...

    async def fault(self) -> str:
        """Return why the package manager cannot read its configuration; "" if it can."""
        ...

    async def places(self, names: Collection[str]) -> Mapping[str, str]:
        """Return files that do not have the name of a repository, but define it; by its name."""
        ...
