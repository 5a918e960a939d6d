"""
Protection against other users' symlinks in the path of a file that root reads.

The content of the file may become visible to other users. A user must therefore not be able to use a symlink in
their own directory to expose a file that they cannot read. (The kernel applies a similar rule in sticky
directories: fs.protected_symlinks.)
"""

from __future__ import annotations

import os
import stat

SYMLINKS_ON_THE_WAY = 40
"""The kernel's limit of symlinks in a path; see path_resolution(7)."""


def why_misled(path: str, fd: int) -> str:
    """
    Return the reason why an open file must not be read by its path; "" if it may be read.

    A symlink is accepted if its owner is root, this process's user or the owner of the file, or if every user
    can read the file.

    Args:
        path: The absolute path.
        fd: The descriptor of the open file.
    """
    seen = os.fstat(fd)
    real = _name_of(fd, seen, path)
    if real == os.path.normpath(path):
        return ""
    resolved, makers = _way(path)
    makers -= {0, os.geteuid(), seen.st_uid}
    if resolved != real:
        return "it was changed just now"
    if not makers or _is_for_all(real, seen):
        return ""
    return f"a symlink of user {min(makers)} leads to {real}, which that user may not read"


def _name_of(fd: int, seen: os.stat_result, path: str) -> str:
    try:
        name = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - a Path costs more than the call
    except OSError:  # /proc is not mounted
        return os.path.realpath(path)
    # another file may have replaced it in the meantime
    return name if seen.st_nlink else name.removesuffix(" (deleted)")


def _way(path: str) -> tuple[str, set[int]]:
    """
    Return the real path, and the owners of the symlinks in the given path; "" if the path no longer exists.
    """
    waiting = path.split("/")[::-1]
    here, links = "", 0
    makers: set[int] = set()
    while waiting:
        part = waiting.pop()
        if part in ("", "."):
            continue
        if part == "..":
            here = here.rpartition("/")[0]
            continue
        try:
            seen = os.lstat(f"{here}/{part}")
            target = os.readlink(f"{here}/{part}") if stat.S_ISLNK(seen.st_mode) else None  # noqa: PTH115
        except OSError:
            return "", makers
        if target is None:
            here = f"{here}/{part}"
            continue
        makers.add(seen.st_uid)
        links += 1
        if links > SYMLINKS_ON_THE_WAY:
            return "", makers
        here = "" if target.startswith("/") else here
        waiting += target.split("/")[::-1]
    return here or "/", makers


def _is_for_all(real: str, seen: os.stat_result) -> bool:
    """Whether every user can reach and read a file."""
    if not seen.st_mode & stat.S_IROTH:
        return False
    while real := real.rpartition("/")[0]:
        try:
            if not os.stat(real).st_mode & stat.S_IXOTH:  # noqa: PTH116
                return False
        except OSError:
            return False
    return True
