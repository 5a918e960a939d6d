"""Names and numbers of users and groups."""

from __future__ import annotations

from ccm_agent.model.errors import FileError

LARGEST_ID = (1 << 32) - 2
"""One more means "leave it as it is" to chown(2)."""


class AccountNames:
    """
    Names of numbers, each asked for once.

    Made anew for each look: a name service may be slow, but a user that was made since must be seen.
    """

    def __init__(self) -> None:
        self._users: dict[int, str] = {}
        self._groups: dict[int, str] = {}

    def user(self, uid: int) -> str:
        """A user's name; the number as text where the system knows none."""
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
        """A group's name; the number as text where the system knows none."""
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
    The number of a user: digits are the number itself, whatever the system knows; "" is -1.

    Raises:
        FileError: There is no such user, or no such number.
    """
    if (number := _number(owner, "user")) is not None:
        return number
    import pwd

    try:
        return pwd.getpwnam(owner).pw_uid
    except (KeyError, ValueError) as err:
        raise FileError(f"there is no user {owner!r} on this machine") from err


def group_id(group: str) -> int:
    """The number of a group, as `user_id` has it for users."""
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
        raise FileError(f"{what} {text} is out of range: numbers end at {LARGEST_ID}")
    return int(digits)
