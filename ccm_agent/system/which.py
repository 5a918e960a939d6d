"""Where programs are."""

from __future__ import annotations

import os
import stat

from ccm_agent.model.errors import CommandError


def find_program(name: str, search_path: str = "") -> str:
    """
    What to execute for a name: itself when it holds a slash, else the first executable file of that name.

    Args:
        search_path: Directories, separated by colons; "" takes our own PATH. Relative ones are passed over: what is run must
            not depend on where we happen to stand.

    Raises:
        CommandError: There is none.
    """
    if "/" in name:
        return name
    directories = search_path or os.environ.get("PATH") or os.defpath
    for directory in directories.split(":"):
        candidate = f"{directory}/{name}"
        if name and directory.startswith("/") and os.access(candidate, os.X_OK) and _is_file(candidate):
            return candidate
    raise CommandError(f"{name}: no such program in {directories}")


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116 - a Path costs more than the call
    except OSError:
        return False
