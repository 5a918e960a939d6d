"""All exit codes of both programs. `ccm` uses the first three; `ccmctl` uses all of them."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit code of a program. Scripts rely on these numbers, so they never change."""

    OK = 0
    """Success."""

    COULD_NOT_RUN = 1
    """The command could not run, or could not finish: usage error, unreadable manifest, no broker, unknown target."""

    FAILED = 2
    """`ccm`: a resource failed or had an unmet requirement. `ccmctl`: a node failed or refused, or a rollout waits for
    an operator."""

    MISSING = 3
    """`ccmctl`: no node failed, but a node was offline, unreachable, lost, expired or superseded."""
