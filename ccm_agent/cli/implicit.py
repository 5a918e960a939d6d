"""Files in the working directory that are read without being named."""

from __future__ import annotations

import os
import stat


def why_not_trusted(path: str) -> str:
    """
    Why root must not read a file that only lies where a command is started; "" when it may, and for other users.

    Such a file influences what root does, and root may be in a directory where other users create files.

    Args:
        path: A relative path without directories. The file is there.
    """
    if os.geteuid() != 0:
        return ""
    own, here = os.lstat(path), os.stat(".")  # noqa: PTH116 - pathlib is slow to import
    seen = os.stat(path)  # noqa: PTH116
    for one, what in ((own, "it"), (seen, "its target"), (here, "its directory")):
        if one.st_uid != 0:
            return f"{what} belongs to {_user(one.st_uid)}"
    if _others_write(seen):
        return "other users can write to it"
    if _others_write(here) and (not here.st_mode & stat.S_ISVTX or seen.st_nlink > 1):
        return "other users can create files in its directory"
    return ""


def _others_write(seen: os.stat_result) -> bool:
    return bool(seen.st_mode & stat.S_IWOTH or (seen.st_mode & stat.S_IWGRP and seen.st_gid != 0))


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
