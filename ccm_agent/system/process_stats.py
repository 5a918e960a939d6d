"""What this process itself uses, as the kernel says. Linux alone tells all of it."""

from __future__ import annotations

import os
import resource
from pathlib import Path

_SELF = Path("/proc/self")


def resident_bytes() -> int:
    """Resident memory in bytes, from /proc/self/statm; 0 where there is none."""
    try:
        pages = int((_SELF / "statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds() -> float:
    """CPU time so far, user and system; that of programs it started is not in it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def open_files() -> int:
    """How many file descriptors are open; 0 where the kernel does not tell."""
    try:
        return sum(1 for _ in (_SELF / "fd").iterdir())
    except OSError:
        return 0
