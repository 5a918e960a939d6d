"""What a goss rule asks about its subject, and the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from msgspec import Struct

from ccm_agent.health.host import HealthCheckHost


class NoValue(Struct, frozen=True):
    """There is no value, so no matcher matches; `why` gives the reason, such as "the connection was refused"."""

    why: str


class GossQuery(Struct, frozen=True, kw_only=True):
    """
    What a rule asks for.

    Attributes:
        subject: What the rule is about: a path, the name of a package.
        options: The rule's options.
        asked: The attributes that the rule needs.
        host: The ports to look with.
    """

    subject: str
    options: Mapping[str, Any]
    asked: Collection[str]
    host: HealthCheckHost

    def limit_s(self, default_ms: float) -> float:
        """Return the rule's timeout in seconds; the option is in milliseconds."""
        return float(self.options.get("timeout") or default_ms) / 1000


LookAt = Callable[[GossQuery], Awaitable[dict[str, Any]]]
"""
Returns a value, or `NoValue`, for each asked attribute; it may return more.

Raises HostError when the host cannot be asked: a program is missing, a file cannot be read.
"""
