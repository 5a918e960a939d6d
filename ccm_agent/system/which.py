"""Finds programs."""

from __future__ import annotations

import os
import stat

from ccm_agent.model.errors import CommandError


def find_program(name: str, search_path: str = "") -> str:
    """
    Return the path of a program.

    If the name contains a slash, return it unchanged. Otherwise return the first executable file in the search path.

    Args:
        search_path: Directories, separated by colons; "" for the PATH of this process. Relative directories are skipped, because
            the result must not depend on the current directory.

    Raises:
        CommandError: There is no such program.
    """
    if "/" in name:
        return name
    directories = search_path or os.environ.get("PATH") or os.defpath
    for directory in directories.split(":"):
        candidate = f"{directory}/{name}"
        if name and directory.startswith("/") and os.access(candidate, os.X_OK) and _is_file(candidate):
            return candidate
    if not name:
        raise CommandError("the command is empty; name a program")
    raise CommandError(f"{name}: no such program in the search path; install it, or write its absolute path")


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116 - a Path costs more than the call
    except OSError:
        return False
