"""The attributes that a goss rule requests, and their values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from msgspec import Struct

from ccm_agent.health.host import HealthCheckHost


class NoValue(Struct, frozen=True):
    """A missing value. Matchers do not match it. `why` is the reason, such as "the connection was refused"."""

    why: str


class GossQuery(Struct, frozen=True, kw_only=True):
    """
    The attributes that a rule requests.

    Attributes:
        subject: The subject of the rule, such as a path or the name of a package.
        options: The rule's options.
        asked: The attributes that the rule uses.
        host: The ports for inspecting the host.
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
Returns a value or `NoValue` for each requested attribute. The result may contain other attributes too.

Raises HostError if the host cannot be inspected, such as when a program is missing or a file cannot be read.
"""
