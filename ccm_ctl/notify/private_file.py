"""Files of notifications: written whole or not at all, and readable for their owner alone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ccm_agent.model.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def write_private(path: Path, body: bytes) -> None:
    """
    Replace a file, with mode 0600.

    Raises:
        UsageError: It cannot be written; the earlier content stays.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as err:
        raise UsageError(f"{path}: cannot be written: {err.strerror}") from err
