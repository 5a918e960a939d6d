"""Who runs this program, by name where the system knows one."""

from __future__ import annotations

import os


def own_user() -> str:
    """Name of the user that this process acts as; the number as text where the system knows no name."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def own_group() -> str:
    """Name of the group that this process acts as; the number as text where the system knows no name."""
    import grp

    try:
        return grp.getgrgid(os.getegid()).gr_name
    except KeyError:
        return str(os.getegid())
