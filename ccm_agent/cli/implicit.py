"""Checks of files that are read although no option or argument names them, such as files in the working directory."""

from __future__ import annotations

import os
import pwd
import stat


def why_not_trusted(path: str) -> str:
    """
    Return the reason why root must not read a file that was not named explicitly; "" if it may. Other users may always read it.

    The content of such a file influences actions of root, but other users may be able to create files in its directory.

    Args:
        path: The file, which must exist.
    """
    if os.geteuid() != 0:
        return ""
    own, here = os.lstat(path), os.stat(os.path.dirname(path) or ".")  # noqa: PTH116, PTH120 - pathlib is slow to import
    seen = os.stat(path)  # noqa: PTH116
    for one, what in ((own, "it"), (seen, "its target"), (here, "its directory")):
        if one.st_uid != 0:
            return f"{what} belongs to {_user(one.st_uid)}"
    if _others_write(seen):
        return "other users can write to it"
    if _others_write(here) and (not here.st_mode & stat.S_ISVTX or seen.st_nlink > 1):
        return "other users can create files in its directory"
    return ""


def why_path_not_trusted(path: str) -> str:
    """
    Return the reason why root must not run the commands in a file; "" if it may. Other users may always run them.

    The check includes all parent directories, because their owners could replace the file after the check.

    Args:
        path: The file, which must exist.
    """
    if os.geteuid() != 0:
        return ""
    if why := why_not_trusted(path):
        return why
    ways = (os.path.abspath(path), os.path.realpath(path))  # noqa: PTH100 - pathlib is slow to import
    for folder in {one[:end] or "/" for one in ways for end in range(len(one)) if one[end] == "/"}:
        seen = os.stat(folder)  # noqa: PTH116
        if seen.st_uid != 0:
            return f"{folder} belongs to {_user(seen.st_uid)}"
        if _others_write(seen) and not seen.st_mode & stat.S_ISVTX:
            return f"other users can create files in {folder}"
    return ""


def _others_write(seen: os.stat_result) -> bool:
    return bool(seen.st_mode & stat.S_IWOTH or (seen.st_mode & stat.S_IWGRP and seen.st_gid != 0))


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
