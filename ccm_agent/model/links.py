"""
Symlinks that others made, on the way to a file that is read as root.

What is read goes where the operator wants it, and others may see it there: a link that a user left in a directory of his own must
not be a way to read what he may not. (The kernel has a part of this rule for sticky directories, fs.protected_symlinks.)
"""

from __future__ import annotations

import os
import stat

SYMLINKS_ON_THE_WAY = 40
"""As the kernel has it, path_resolution(7)."""


def why_misled(path: str, fd: int) -> str:
    """
    Why an open file must not be read under the path that it was opened by; "" when it may be.

    A symlink counts if root or we made it, or who owns the file, or if anyone could read the file anyway.

    Args:
        path: The path, absolute.
        fd: The file.
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
    except OSError:  # there is no /proc
        return os.path.realpath(path)
    # another file may have taken its place meanwhile, as files are replaced
    return name if seen.st_nlink else name.removesuffix(" (deleted)")


def _way(path: str) -> tuple[str, set[int]]:
    """Where a path leads, and who made the symlinks on it; "" where it leads nowhere any more."""
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
    """Whether any user may read a file, and come to it."""
    if not seen.st_mode & stat.S_IROTH:
        return False
    while real := real.rpartition("/")[0]:
        try:
            if not os.stat(real).st_mode & stat.S_IXOTH:  # noqa: PTH116
                return False
        except OSError:
            return False
    return True
