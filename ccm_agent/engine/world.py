"""What an engine is given: the ports to the host, the types, and how facts, data and expressions come about."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from ccm_agent.engine.expressions import Expressions
from ccm_agent.hiera.sources import Sources
from ccm_agent.model import merge
from ccm_agent.model.ports import Clock, Files, Runner
from ccm_agent.model.registration import RegistrationEntry
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import Probe

MakeExpressions = Callable[[Mapping[str, Any], Mapping[str, Any], Mapping[str, str], str], Expressions]
"""From facts, data, environment and the directory that relative paths begin in."""


class World(Struct, frozen=True, kw_only=True):
    """
    Everything outside that an engine uses; `app.py` makes the real one.

    Attributes:
        runner, files, clock: Ports to the host.
        catalog: The resource types.
        make_expressions: See `MakeExpressions`.
        gather_facts: Reads the facts of this host; blocking, so it is called in a thread.
        sources: Fetches hiera documents; relative paths begin in the directory given.
        directory: Where relative paths of manifests and hiera documents begin: the working directory; absolute.
        ports: Further ports, by the name that `ResourceContext.port` knows them by.
        register: Publishes a service entry; None where there is no broker.
        probe: What providers ask about the host; None asks the host itself.
        version: Of this program, for events.
    """

    runner: Runner
    files: Files
    clock: Clock
    catalog: Catalog
    make_expressions: MakeExpressions
    gather_facts: Callable[[], Mapping[str, Any]]
    sources: Callable[[str], Sources]
    directory: str
    ports: Mapping[str, Any] = {}
    register: Callable[[RegistrationEntry], Awaitable[None]] | None = None
    probe: Probe | None = None
    version: str = ""


class Facts(Mapping[str, Any]):
    """
    Facts of this host, gathered when somebody first reads one: most manifests never do.

    Reading may block for as long as gathering takes. Safe to use from several threads.

    Args:
        gather: Reads them.
        more: Merged over what was gathered.
    """

    def __init__(self, gather: Callable[[], Mapping[str, Any]], more: Mapping[str, Any]) -> None:
        self._gather = gather
        self._more = more
        self._values: dict[str, Any] | None = None
        self._lock = threading.Lock()

    @property
    def is_gathered(self) -> bool:
        """Somebody has read a fact already."""
        return self._values is not None

    @property
    def values_now(self) -> dict[str, Any]:
        """All of them, as a plain mapping."""
        with self._lock:
            if self._values is None:
                self._values = merge.deep(dict(self._gather()), self._more)
            return self._values

    def __getitem__(self, key: str) -> Any:
        return self.values_now[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_now)

    def __len__(self) -> int:
        return len(self.values_now)
