"""The directory for persistent state of both programs."""

from __future__ import annotations

import os


def state_directory() -> str:
    """
    Return the state directory: the system's directory for root, and the user's own directory for other users.
    XDG_STATE_HOME overrides it. Source: XDG Base Directory Specification.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    if state.startswith("/"):
        return f"{state}/ccm"
    if os.geteuid() == 0:
        return "/var/lib/ccm"
    return os.path.expanduser("~/.local/state/ccm")  # noqa: PTH111 - pathlib is slow to import
