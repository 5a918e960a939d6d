"""What looking at a thing gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from msgspec import Struct

from ccm_agent.health.host import HealthCheckHost


class NoValue(Struct, frozen=True):
    """There is no such value, so no matcher fits it; `why` says why, as in "the connection was refused"."""

    why: str


class GossQuery(Struct, frozen=True, kw_only=True):
    """
    What is to be looked at.

    Attributes:
        subject: The thing: a path, a package's name.
        options: The rule's options.
        asked: The attributes that somebody wants to know.
        host: What it may be looked at with.
    """

    subject: str
    options: Mapping[str, Any]
    asked: Collection[str]
    host: HealthCheckHost

    def limit_s(self, default_ms: float) -> float:
        """How long it may take, in seconds; the option is in milliseconds."""
        return float(self.options.get("timeout") or default_ms) / 1000


LookAt = Callable[[GossQuery], Awaitable[dict[str, Any]]]
"""
Gives a value, or `NoValue`, for each asked attribute (more do no harm).

Raises HostError when it cannot be looked at: a program is missing, a file cannot be read.
"""
