"""Owner, mode and extended attributes of an open file."""

from __future__ import annotations

import os
import stat

from ccm_agent.model.errors import FileError
from ccm_agent.system.directory import Directory

NOT_CARRIED_OVER = frozenset({"security.capability", "security.ima", "security.evm"})
"""They vouch for content; on other content they would be wrong, or dangerous."""
ACL = "system.posix_acl_access"
RELIED_ON = ("security.selinux", ACL, "user.")
"""What somebody relies on is carried over or the change fails; the rest only where the file system lets us."""


def set_owner_and_mode(fd: int, uid: int, gid: int, mode: int) -> None:
    """In this order: a change of owner takes bits of the mode away."""
    seen = os.fstat(fd)
    if uid not in (-1, seen.st_uid) or gid not in (-1, seen.st_gid):
        os.fchown(fd, uid, gid)
        seen = os.fstat(fd)
    if stat.S_IMODE(seen.st_mode) != mode:
        os.fchmod(fd, mode)


def carry_over(place: Directory, fd: int, uid: int) -> None:
    """
    Give a new file the SELinux label, ACL and extended attributes of the regular file that it is to replace.

    The ACL only of a file whose owner could say anyway who reads the new one: somebody else may have put the file there so that
    its ACL lets him read what comes into its place.

    Args:
        uid: Whose the new file will be; -1: ours.

    Raises:
        FileError: One that somebody relies on cannot be set.
    """
    try:
        # a bare path descriptor: the file cannot be swapped under us, and need not be ours to read
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
    except OSError:  # a file system without any
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
                f"{place.path}: cannot be replaced, for its attribute {name} cannot be kept: {err.strerror}",
                errno=err.errno or 0,
            ) from err


def _value(fd: int, name: str) -> bytes | None:
    try:
        return os.getxattr(fd, name)
    except OSError:
        return None
