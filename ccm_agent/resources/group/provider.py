"""The Protocol of group providers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ccm_agent.resources.group.model import GroupProperties, GroupState


class GroupProvider(Protocol):
    """Reads and changes local groups. All methods raise HostError if the host refuses; nothing of that verb is done then."""

    async def status(self, wanted: GroupProperties) -> GroupState:
        """Return the group in local files. A group that only a directory service provides is absent."""
        ...

    async def look_ahead(self, wanted: Sequence[GroupProperties]) -> Sequence[GroupState | None]:
        """Return what `status` would for each, with one read."""
        ...

    async def create(self, wanted: GroupProperties) -> None:
        """Create the group, without members."""
        ...

    async def set_gid(self, name: str, gid: int) -> None:
        """Change the number. It also changes in the entries of users whose primary group it is; files keep the old one."""
        ...

    async def add_members(self, name: str, members: Sequence[str]) -> None:
        """Add users that exist."""
        ...

    async def set_members(self, name: str, members: Sequence[str]) -> None:
        """Replace the list of members by users that exist."""
        ...

    async def remove(self, name: str) -> None:
        """Remove the group. One that is the primary group of a user is refused."""
        ...
