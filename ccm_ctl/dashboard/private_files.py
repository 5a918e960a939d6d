"""Files with secrets, which other users must not be able to read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ccm_agent.model.errors import InputError

SIZE_LIMIT_BYTES = 256 << 10


def read_private_text(path: Path) -> str:
    """
    Return the text of a file that only its owner can read.

    Raises:
        InputError: Other users can read the file, or it is not a text file of at most 256 KiB.
    """
    return _read(path, 0o077, f"other users can read it; `chmod 600 {path}`")


def read_trusted_text(path: Path) -> str:
    """
    Return the text of a file that only its owner can change. Other users may be able to read it.

    Raises:
        InputError: Other users can write the file, or it is not a text file of at most 256 KiB.
    """
    return _read(path, 0o022, f"other users can write it; `chmod go-w {path}`")


def _read(path: Path, forbidden: int, problem: str) -> str:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            body = file.read(SIZE_LIMIT_BYTES + 1) if not mode & forbidden else b""
        text = body.decode()
    except OSError as err:
        raise InputError(f"{path}: cannot be read: {err.strerror}") from err
    except UnicodeDecodeError as err:
        raise InputError(f"{path}: not a text file") from err
    if mode & forbidden:
        raise InputError(f"{path}: {problem}")
    if len(body) > SIZE_LIMIT_BYTES:
        raise InputError(f"{path}: larger than {SIZE_LIMIT_BYTES >> 10} KiB")
    return text
