"""What a check may use of the host."""

from __future__ import annotations

from typing import Any, Protocol

from ccm_agent.model.ports import Clock, Files, Runner


class HealthCheckHost(Protocol):
    """Ports, the only ways to the host."""

    @property
    def runner(self) -> Runner: ...
    @property
    def files(self) -> Files: ...
    @property
    def clock(self) -> Clock: ...

    def port(self, name: str) -> Any:
        """A port that not every check needs, by name: "network". KeyError when this program has none."""
        ...
