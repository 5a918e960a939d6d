"""
The file of the node's policy: read only where no user but root and the agent's own can write.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

from ccm_agent.model.errors import FileError
from ccm_agent.policy.document import Policy, parse_policy

LIMIT_BYTES = 1 << 20
"""Far more than anyone writes."""

NAME = "policy.yaml"
"""Beside the agent's configuration, unless `policy_file` names another."""


def read_policy(path: Path, types: Collection[str], *, is_required: bool) -> Policy | None:
    """
    The policy in a file. Blocking.

    Args:
        path: The file.
        types: The resource types there are.
        is_required: The configuration names it, so it must be there.

    Returns:
        None when it is not there and need not be.

    Raises:
        FileError: It cannot be read, or others may write to it or into its folder.
        DocumentError: It is not a policy, with file, line and the nearest right key.
    """
    try:
        return parse_policy(_content(path), str(path), types)
    except FileNotFoundError as err:
        if not is_required:
            return None
        raise FileError(f"{path}: there is no such file; write the policy, or remove `policy_file`") from err
    except OSError as err:
        raise FileError(f"{path}: cannot read the policy: {err.strerror or err}") from err


def _content(path: Path) -> bytes:
    # a FIFO in the file's place must not hold up the agent
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise FileError(f"{path}: is not a regular file")
        _refuse_shared(path, found)
        # who may replace the file may as well write to it
        folder = path.resolve().parent
        _refuse_shared(folder, folder.stat())
        content = file.read(LIMIT_BYTES + 1)
    if len(content) > LIMIT_BYTES:
        raise FileError(f"{path}: is larger than {LIMIT_BYTES} bytes")
    return content


def _refuse_shared(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise FileError(
            f"{path}: user {found.st_uid} owns it and would decide the policy: give it to root with `chown root {path}`"
        )
    is_sticky_folder = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_sticky_folder:
        raise FileError(
            f"{path}: others may write to it (mode {stat.S_IMODE(found.st_mode):04o}) and would decide the policy: "
            f"`chmod go-w {path}`"
        )
