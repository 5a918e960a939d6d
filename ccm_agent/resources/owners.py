"""Owners: who runs this program, and whether a wanted owner is the one that was found."""

from __future__ import annotations

import os


def own_user() -> str:
    """Name of the user that this process runs as; the number as text where the system knows no name."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def own_group() -> str:
    """Name of the group that this process runs as; the number as text where the system knows no name."""
    import grp

    try:
        return grp.getgrgid(os.getgid()).gr_name
    except KeyError:
        return str(os.getgid())


def is_same_owner(wanted: str, name: str, number: int) -> bool:
    """Digits are a number, whatever the system calls it; anything else is a name."""
    if wanted[:1].isdigit() and wanted.isascii() and wanted.isdigit():
        return wanted.lstrip("0") == str(number).lstrip("0")
    return wanted == name
