"""The Protocol for package lists of repositories."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

REFRESH_LIMIT_S = 300.0
"""The time limit for fetching the package lists of one repository. A mirror that takes longer is treated as unreachable."""


class PackageLists(Protocol):
    """
    The package lists of apt or dnf.

    Attributes:
        name: "apt" or "dnf".
    """

    @property
    def name(self) -> str: ...

    async def try_out(self, repository: str, folder: str, file: bytes) -> None:
        """
        Fetch the signed metadata of a repository before its file is written. The host's lists do not change.

        Args:
            repository: The name of the repository.
            folder: An empty directory that all users can read.
            file: The content of the repository's file.

        Raises:
            CommandError: The metadata cannot be fetched.
        """
        ...

    async def refresh(self, repository: str, path: str) -> None:
        """
        Fetch the package lists of one repository, unless the package manager fetches them on demand. Other lists do not change.

        Args:
            repository: The name of the repository.
            path: The path of the repository's file.

        Raises:
            CommandError: The package lists cannot be fetched.
        """
        ...

    async def fault(self) -> str:
        """Return the reason why the package manager cannot read its configuration; "" if it can."""
        ...

    async def places(self, names: Collection[str]) -> Mapping[str, str]:
        """Return files that define a repository of one of these names under another file name, by repository name."""
        ...
