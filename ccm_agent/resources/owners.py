"""Names of the user and group of this process, and comparison of owners."""

from __future__ import annotations

import os


def own_user() -> str:
    """Return the user of this process: the name, or the number as text if the system has no name for it."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def own_group() -> str:
    """Return the group of this process: the name, or the number as text if the system has no name for it."""
    import grp

    try:
        return grp.getgrgid(os.getgid()).gr_name
    except KeyError:
        return str(os.getgid())


def is_same_owner(wanted: str, name: str, number: int) -> bool:
    """Whether a desired owner is the current owner. Digits are compared as a number, other texts as a name."""
    if wanted[:1].isdigit() and wanted.isascii() and wanted.isdigit():
        return wanted.lstrip("0") == str(number).lstrip("0")
    return wanted == name
