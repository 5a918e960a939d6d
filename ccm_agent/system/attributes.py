"""Owner, mode and extended attributes of an open file."""

from __future__ import annotations

import os
import stat

from ccm_agent.model.errors import FileError
from ccm_agent.system.directory import Directory

NOT_CARRIED_OVER = frozenset({"security.capability", "security.ima", "security.evm"})
"""They vouch for content; on other content they would be wrong, or dangerous."""
RELIED_ON = ("security.selinux", "system.posix_acl_access", "user.")
"""What somebody relies on is carried over or the change fails; the rest only where the file system lets us."""


def set_owner_and_mode(fd: int, uid: int, gid: int, mode: int) -> None:
    """In this order: a change of owner takes bits of the mode away."""
    seen = os.fstat(fd)
    if uid not in (-1, seen.st_uid) or gid not in (-1, seen.st_gid):
        os.fchown(fd, uid, gid)
        seen = os.fstat(fd)
    if stat.S_IMODE(seen.st_mode) != mode:
        os.fchmod(fd, mode)


def carry_over(place: Directory, fd: int) -> None:
    """
    Give a new file the SELinux label, ACL and extended attributes of the regular file that it is to replace.

    Raises:
        FileError: One that somebody relies on cannot be set.
    """
    old = place.look()
    if old is None or not stat.S_ISREG(old.st_mode):
        return
    path = f"/proc/self/fd/{place.fd}/{place.name}"  # needs no permission to read the file, unlike its descriptor
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:  # a file system without any
        return
    for name in names:
        if name not in NOT_CARRIED_OVER:
            _carry(place, path, fd, name)


def _carry(place: Directory, path: str, fd: int, name: str) -> None:
    try:
        value = os.getxattr(path, name, follow_symlinks=False)
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
