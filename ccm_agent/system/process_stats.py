"""Reads the resource usage of this process, as reported by the kernel. Only Linux reports all values."""

from __future__ import annotations

import os
import resource
from pathlib import Path

_SELF = Path("/proc/self")


def resident_bytes() -> int:
    """Return the resident memory in bytes, from /proc/self/statm; 0 if this file does not exist."""
    try:
        pages = int((_SELF / "statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds() -> float:
    """Return the used CPU time in seconds (user and system), without child processes."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def open_files() -> int:
    """Return the number of open file descriptors; 0 if the kernel does not report it."""
    try:
        return sum(1 for _ in (_SELF / "fd").iterdir())
    except OSError:
        return 0
