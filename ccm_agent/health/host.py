"""The ports through which health checks inspect the host."""

from __future__ import annotations

from typing import Any, Protocol

from ccm_agent.model.ports import Clock, Files, Runner


class HealthCheckHost(Protocol):
    """The ports of a health check. The check accesses the host only through them."""

    @property
    def runner(self) -> Runner: ...
    @property
    def files(self) -> Files: ...
    @property
    def clock(self) -> Clock: ...

    def port(self, name: str) -> Any:
        """Return an optional port by name, such as "network". KeyError if this program does not provide the port."""
        ...
