"""The Protocol of user providers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ccm_agent.resources.user.model import UserChange, UserProperties, UserState


class UserProvider(Protocol):
    """
    Reads and changes local users.

    All methods raise HostError if the host refuses; nothing of that verb is done then. A hash is never an argument of a program,
    because other users can read those.
    """

    async def status(self, wanted: UserProperties) -> UserState:
        """Return the user in local files. A user that only a directory service provides is absent."""
        ...

    async def look_ahead(self, wanted: Sequence[UserProperties]) -> Sequence[UserState | None]:
        """Return what `status` would for each, with one read of each file. Keys are read only where they are managed."""
        ...

    async def create(self, wanted: UserProperties) -> None:
        """Create the user with its groups and without a password. It gets a group of its own if none is named."""
        ...

    async def modify(self, name: str, change: UserChange) -> None:
        """Change an existing user. A new uid also becomes the owner of the files in the home directory."""
        ...

    async def add_groups(self, name: str, groups: Sequence[str]) -> None:
        """Make the user a member of groups that exist."""
        ...

    async def set_groups(self, name: str, groups: Sequence[str]) -> None:
        """Make the user a member of exactly these groups, besides the primary one."""
        ...

    async def create_home(self, name: str) -> None:
        """Create the missing home directory of an existing user, with the files in /etc/skel."""
        ...

    async def set_password(self, name: str, field: str) -> None:
        """Write the second field of /etc/shadow."""
        ...

    async def lock(self, name: str) -> None:
        """Lock the password, and expire the account."""
        ...

    async def unlock(self, name: str, locks: int, *, is_expired: bool) -> None:
        """Remove the locks from the password, and with `is_expired` the expiry of the account."""
        ...

    async def add_keys(self, name: str, lines: Sequence[str]) -> None:
        """Add SSH keys to those in the user's file."""
        ...

    async def set_keys(self, name: str, lines: Sequence[str]) -> None:
        """Replace the user's SSH keys; without any, the file is removed."""
        ...

    async def remove(self, name: str) -> None:
        """Remove the user, not its home directory. A user who is logged in or has running processes is refused."""
        ...

    async def remove_home(self, path: str) -> None:
        """Remove a home directory with its content, without following symlinks."""
        ...
