"""Sets attributes of files and directories, and removes files."""

from __future__ import annotations

import errno
import os
import stat

from ccm_agent.model.errors import FileError
from ccm_agent.system.accounts import group_id, user_id
from ccm_agent.system.atomic_write import reported
from ccm_agent.system.attributes import ACL, set_owner_and_mode
from ccm_agent.system.file_inspection import refuse_other
from ccm_agent.system.threads import CancelFlag
from ccm_agent.system.trees.directory import Directory, open_parent
from ccm_agent.system.trees.removal import remove_tree

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def set_attributes(path: str, owner: str, group: str, mode: int) -> None:
    """Set owner, group and mode of a file or directory; see `Files.set_attributes`."""
    uid, gid = user_id(owner), group_id(group)
    with open_parent(path) as place:
        set_attributes_in(place, uid, gid, mode)


def set_attributes_in(
    place: Directory, uid: int, gid: int, mode: int, expected: tuple[int, int] | None = None
) -> None:
    """
    Set attributes of a file or directory in an open directory. A uid or gid of -1 leaves the owner or group unchanged.

    Args:
        expected: Device and inode of the inspected file. It is an error if the path now refers to a different file.
    """
    path = place.path
    with reported(path, "its owner and mode cannot be set"):
        seen = place.look()
        if seen is None:
            raise FileError(f"{path}: does not exist", errno=errno.ENOENT)
        if expected not in (None, (seen.st_dev, seen.st_ino)):
            raise FileError(f"{path}: another process replaced it just now; try again")
        if stat.S_ISLNK(seen.st_mode):
            raise FileError(f"{path}: is a symlink; owner and mode are not set through it", errno=errno.ELOOP)
        if not stat.S_ISDIR(seen.st_mode):
            refuse_other(path, seen.st_mode)
            refuse_planted(place, seen)
        _set(place, seen, uid, gid, mode)


def make_directory(path: str, owner: str, group: str, mode: int) -> None:
    """Create a directory if it is missing, and set its attributes; see `Files.set_attributes`."""
    with open_parent(path, make_mode=mode) as place, reported(path, "the directory cannot be created"):
        seen = place.look()
        if seen is not None and stat.S_ISLNK(seen.st_mode):
            _give_way(place)
            seen = None
        if seen is None:
            os.mkdir(place.name, mode, dir_fd=place.fd)
            place.sync()
            seen = os.stat(place.name, dir_fd=place.fd, follow_symlinks=False)
        if not stat.S_ISDIR(seen.st_mode):
            raise FileError(f"{path}: exists and is not a directory", errno=errno.ENOTDIR)
        # as in Choria CCM, users are looked up after the directory is created, so an unknown user is an error only then
        _set(place, seen, user_id(owner), group_id(group), mode)


def _give_way(place: Directory) -> None:
    """
    Remove a symlink at the path of a desired directory. Fails if the symlink refers to a directory, because its content would
    become unreachable.
    """
    try:
        target = os.stat(place.name, dir_fd=place.fd)
    except OSError:
        target = None
    if target is not None and stat.S_ISDIR(target.st_mode):
        raise FileError(
            f"{place.path}: is a symlink to a directory, which is not changed through it", errno=errno.ELOOP
        )
    os.unlink(place.name, dir_fd=place.fd)


def _set(place: Directory, seen: os.stat_result, uid: int, gid: int, mode: int) -> None:
    try:
        fd = os.open(place.name, _OPEN, dir_fd=place.fd)
    except PermissionError:
        _set_unread(place, seen, uid, gid, mode)
        return
    try:
        _refuse_swapped(place, fd, seen)
        set_owner_and_mode(fd, uid, gid, mode)
    finally:
        os.close(fd)


def _set_unread(place: Directory, seen: os.stat_result, uid: int, gid: int, mode: int) -> None:
    """Set attributes of a file that this user owns but cannot read. Uses /proc and an O_PATH descriptor."""
    fd = os.open(place.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.fd)
    try:
        _refuse_swapped(place, fd, seen)
        path = f"/proc/self/fd/{fd}"
        os.chown(path, uid, gid)
        os.chmod(path, mode)  # noqa: PTH101 - a Path costs more than the call
    finally:
        os.close(fd)


def _refuse_swapped(place: Directory, fd: int, seen: os.stat_result) -> None:
    if not os.path.samestat(os.fstat(fd), seen):
        raise FileError(
            f"{place.path}: another process replaced it just now; its owner and mode are not touched"
        )


def refuse_planted(place: Directory, seen: os.stat_result) -> None:
    """
    Refuse a hardlinked file in a directory in which other users can create entries, because another user may have planted the
    link.

    (If enabled, fs.protected_hardlinks prevents users from creating such links.)
    """
    if seen.st_nlink > 1 and _others_make_names(place, seen):
        raise FileError(
            f"{place.path}: has another hard link, and other users can create entries in its directory; "
            "its owner and mode are not changed"
        )


def _others_make_names(place: Directory, seen: os.stat_result) -> bool:
    """Whether someone other than root, this process's user and the file's owner may have created the entry in this directory."""
    here = os.fstat(place.fd)
    if here.st_mode & stat.S_IWOTH or here.st_uid not in (0, os.geteuid(), seen.st_uid):
        return True
    if not here.st_mode & stat.S_IWGRP:
        return False
    # with an ACL, these bits are the maximum permissions of all other users and groups in it
    return here.st_gid not in (0, os.getegid()) or _has_acl(place)


def _has_acl(place: Directory) -> bool:
    try:
        return ACL in os.listxattr(f"/proc/self/fd/{place.fd}")
    except OSError:  # the file system does not support ACLs
        return False


def remove(path: str, recursive: bool, stop: CancelFlag) -> None:
    """Remove a path; see `Files.remove`."""
    try:
        with open_parent(path) as place, reported(path, "cannot be removed"):
            seen = place.look()
            if seen is None:
                return
            if not stat.S_ISDIR(seen.st_mode):
                os.unlink(place.name, dir_fd=place.fd)
            elif recursive:
                remove_tree(place.fd, place.name, path, stop)
            else:
                os.rmdir(place.name, dir_fd=place.fd)
            place.sync()
    except FileError as err:
        if err.errno != errno.ENOENT:
            raise
