"""Every exit code of both programs. `ccm` ends with one of the first three, `ccmctl` with any."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """How a program ended; scripts rely on these numbers, so they never change."""

    OK = 0
    """All well."""

    COULD_NOT_RUN = 1
    """Nothing, or not everything, could be tried: usage, an unreadable manifest, no broker, no such target."""

    FAILED = 2
    """`ccm`: a resource failed or had an unmet requirement. `ccmctl`: a node failed or refused."""

    MISSING = 3
    """`ccmctl`: no node failed, but one was offline, unreachable, lost, expired or superseded."""
