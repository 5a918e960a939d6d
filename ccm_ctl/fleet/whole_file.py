"""Write files of the operator, such as keys, certificates, lists, saved plans and rules, either completely or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from ccm_agent.model.errors import InputError

PRIVATE = 0o600
PUBLIC = 0o644


def write_whole(path: Path, body: bytes, *, mode: int = PRIVATE) -> None:
    """
    Replace a file, or create it and its folder. On return, the content is on disk.

    A reader sees either the old content or the complete new content. The file has `mode` from the first byte on, minus the bits
    of the umask. A symlink is replaced, not followed.

    Raises:
        InputError: It cannot be written, or the path is not a regular file, such as /dev/null. The old content is kept.
    """
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as err:
        raise InputError(f"{path.parent}: the folder cannot be created: {err.strerror}") from err
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{path}: cannot be written: not a regular file")
        try:
            create_file(new, body, mode=mode)
            new.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        _sync_folder(path.parent)
    except OSError as err:
        raise InputError(f"{path}: cannot be written: {err.strerror}") from err


def create_file(path: Path, body: bytes, *, mode: int = PRIVATE) -> None:
    """
    Create a file with `mode` from the first byte on. On return, the content is on disk.

    Raises:
        FileExistsError: The file exists.
        OSError: It cannot be written.
    """
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(number, "wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Write the folder to disk. Otherwise the new name may be lost in a power failure."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)
