"""Looks up names and IDs of users and groups."""

from __future__ import annotations

from ccm_agent.model.errors import FileError

LARGEST_ID = (1 << 32) - 2
"""The largest valid ID. The next larger number is -1 as an unsigned integer, with which chown(2) does not change the owner."""


class AccountNames:
    """
    Maps user and group IDs to names. Each ID is looked up only once.

    Create a new object for each inspection, so that new users are found. Lookups are cached because name services can be slow.
    """

    def __init__(self) -> None:
        self._users: dict[int, str] = {}
        self._groups: dict[int, str] = {}

    def user(self, uid: int) -> str:
        """Return a user's name, or the ID as text if the system has no such user."""
        name = self._users.get(uid)
        if name is None:
            import pwd

            try:
                name = pwd.getpwuid(uid).pw_name
            except KeyError:
                name = str(uid)
            self._users[uid] = name
        return name

    def group(self, gid: int) -> str:
        """Return a group's name, or the ID as text if the system has no such group."""
        name = self._groups.get(gid)
        if name is None:
            import grp

            try:
                name = grp.getgrgid(gid).gr_name
            except KeyError:
                name = str(gid)
            self._groups[gid] = name
        return name


def user_id(owner: str) -> int:
    """
    Return the ID of a user. A string of digits is the ID itself; for "", return -1.

    Raises:
        FileError: There is no such user, or the ID is not valid.
    """
    if (number := _number(owner, "user")) is not None:
        return number
    import pwd

    try:
        return pwd.getpwnam(owner).pw_uid
    except (KeyError, ValueError) as err:
        raise FileError(f"there is no user {owner!r} on this machine") from err


def group_id(group: str) -> int:
    """Return the ID of a group; see `user_id`."""
    if (number := _number(group, "group")) is not None:
        return number
    import grp

    try:
        return grp.getgrnam(group).gr_gid
    except (KeyError, ValueError) as err:
        raise FileError(f"there is no group {group!r} on this machine") from err


def _number(text: str, what: str) -> int | None:
    if not text:
        return -1
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(LARGEST_ID)) or int(digits) > LARGEST_ID:
        raise FileError(f"{what} {text} is out of range: the maximum is {LARGEST_ID}")
    return int(digits)
