"""Reads the mount points of this host. A file can also be a mount point, even on the same file system as its directory."""

from __future__ import annotations

import os
import re
from bisect import bisect_left

MOUNTS = "/proc/self/mountinfo"
READ_BYTES = 1 << 20
_ESCAPED = re.compile(rb"\\([0-7]{3})")


class MountPoints:
    """
    The mount points at the time of the first use.

    Mount points that are added later are safe, because the kernel refuses to rename or remove them.

    Source: proc_pid_mountinfo(5).
    """

    def __init__(self) -> None:
        self._paths: list[str] | None = None

    def below(self, fd: int) -> frozenset[str]:
        """Return the mount points below an open directory, relative to it. Empty if they cannot be read."""
        if self._paths is None:
            self._paths = _read_paths()
        try:
            top = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - a Path costs more than the call
        except OSError:
            return frozenset()
        prefix, found = f"{top.rstrip('/')}/", set()
        for path in self._paths[bisect_left(self._paths, prefix) :]:
            if not path.startswith(prefix):
                break
            found.add(path.removeprefix(prefix))
        return frozenset(found)


def _read_paths() -> list[str]:
    try:
        fd = os.open(MOUNTS, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        text = b""
        while data := os.read(fd, READ_BYTES):
            text += data
    finally:
        os.close(fd)
    fields = (line.split(b" ") for line in text.split(b"\n"))
    return sorted(os.fsdecode(_unescape(one[4])) for one in fields if len(one) > 4)


def _unescape(field: bytes) -> bytes:
    """Decode the octal escapes of a field, such as `\\040` for a space."""
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), field)
