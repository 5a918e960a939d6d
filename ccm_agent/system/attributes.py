"""Sets the owner, mode and extended attributes of an open file."""

from __future__ import annotations

import os
import stat

from ccm_agent.model.errors import FileError
from ccm_agent.system.trees.directory import Directory

NOT_CARRIED_OVER = frozenset({"security.capability", "security.ima", "security.evm"})
"""Attributes that are not copied, because they belong to the old content and would be wrong or dangerous for new content."""
ACL = "system.posix_acl_access"
RELIED_ON = ("security.selinux", ACL, "user.")
"""Attributes that must be copied, otherwise the change fails. Other attributes are copied if possible."""


def set_owner_and_mode(fd: int, uid: int, gid: int, mode: int) -> None:
    """Set owner and mode. The owner is set first, because changing it clears bits of the mode."""
    seen = os.fstat(fd)
    if uid not in (-1, seen.st_uid) or gid not in (-1, seen.st_gid):
        os.fchown(fd, uid, gid)
        seen = os.fstat(fd)
    if stat.S_IMODE(seen.st_mode) != mode:
        os.fchmod(fd, mode)


def carry_over(place: Directory, fd: int, uid: int) -> None:
    """
    Copy the SELinux label, ACL and extended attributes of a regular file to the new file that will replace it.

    The ACL is copied only if the old file belongs to root, to this process's user, or to the owner of the new file. Otherwise
    another user could plant a file whose ACL gives access to the new content.

    Args:
        uid: The owner of the new file; -1 for the user of this process.

    Raises:
        FileError: An attribute in RELIED_ON cannot be set.
    """
    try:
        # with an O_PATH descriptor, the file cannot be swapped, and it need not be readable
        old = os.open(place.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.fd)
    except FileNotFoundError:
        return
    try:
        seen = os.fstat(old)
        if stat.S_ISREG(seen.st_mode):
            _carry_all(place, old, fd, is_trusted=seen.st_uid in (0, os.geteuid(), uid))
    finally:
        os.close(old)


def _carry_all(place: Directory, old: int, fd: int, *, is_trusted: bool) -> None:
    path = f"/proc/self/fd/{old}"
    try:
        names = os.listxattr(path)
    except OSError:  # the file system does not support extended attributes
        return
    for name in names:
        if name not in NOT_CARRIED_OVER and (is_trusted or name != ACL):
            _carry(place, path, fd, name)


def _carry(place: Directory, path: str, fd: int, name: str) -> None:
    try:
        value = os.getxattr(path, name)
        if _value(fd, name) != value:
            os.setxattr(fd, name, value)
    except OSError as err:
        if name.startswith(RELIED_ON):
            raise FileError(
                f"{place.path}: cannot be replaced because its attribute {name} cannot be kept: {err.strerror}",
                errno=err.errno or 0,
            ) from err


def _value(fd: int, name: str) -> bytes | None:
    try:
        return os.getxattr(fd, name)
    except OSError:
        return None
