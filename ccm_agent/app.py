"""
The composition root: the only module that builds real adapters.

Everything is imported where it is built, so that a command pays for what it uses: `ccm apply` of files loads no broker.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ccm_agent.engine.request import ApplyOptions, ManifestSource, StopFlag
from ccm_agent.version import VERSION

__all__ = ["App", "ApplyOptions", "ManifestSource", "StopFlag", "make_expressions"]

if TYPE_CHECKING:
    from ccm_agent.bus.connection import Connection
    from ccm_agent.engine.expressions import Expressions
    from ccm_agent.engine.run import LocalEngine, Plan
    from ccm_agent.engine.world import World
    from ccm_agent.hiera.sources import Sources
    from ccm_agent.model.ports import KeyValue, Objects
    from ccm_agent.resources.catalog import Catalog


class App:
    """
    The adapters of one process.

    Args:
        environ: The process environment: where custom facts and contexts are.
        directory: The working directory; "" asks the system.
        context: Context of the `nats` program, for what needs a broker.
    """

    def __init__(self, environ: Mapping[str, str], directory: str = "", context: str = "") -> None:
        self.environ = environ
        self.directory = directory or os.getcwd()  # noqa: PTH109 - pathlib is slow to import
        self._context = context
        self._connection: Connection | None = None
        self._catalog: Catalog | None = None
        self._ports: dict[str, Any] = {}

    @property
    def catalog(self) -> Catalog:
        """The resource types."""
        if self._catalog is None:
            from ccm_agent.resources.catalog import Catalog

            self._catalog = Catalog()
        return self._catalog

    def engine(self) -> LocalEngine:
        """The engine of this host."""
        from ccm_agent.engine.run import LocalEngine

        return LocalEngine(self.world())

    @asynccontextmanager
    async def source(self, url: str) -> AsyncIterator[ManifestSource]:
        """
        The manifest at a path or URL; what had to be unpacked for it is gone afterwards.

        Raises:
            ManifestError: The URL is no source, or holds no manifest.
            CcmError: It cannot be fetched.
        """
        from ccm_agent.engine.sources import open_source

        async with open_source(url, self.port, self.objects) as source:
            yield source

    def rendered(self, plan: Plan) -> str:
        """A loaded manifest as YAML, its templates rendered as far as they are by now."""
        from ccm_agent.engine.render import render_plan

        return render_plan(plan.loaded)

    async def objects(self, bucket: str) -> Objects:
        """An object store of the broker."""
        from ccm_agent.bus.objects import NatsObjects

        return NatsObjects(await self.connection(), bucket)

    def world(self) -> World:
        """What the engine may use."""
        from ccm_agent.engine.world import World
        from ccm_agent.system.clock import SystemClock
        from ccm_agent.system.files import SystemFiles
        from ccm_agent.system.runner import SystemRunner

        return World(
            runner=SystemRunner(),
            files=SystemFiles(),
            clock=SystemClock(),
            catalog=self.catalog,
            make_expressions=make_expressions,
            gather_facts=self.facts,
            sources=self.sources,
            directory=self.directory,
            port=self.port,
            version=VERSION,
        )

    def facts(self, *layers: Mapping[str, Any]) -> Mapping[str, Any]:
        """This host's facts with layers over them; each family is gathered when it is first read."""
        from ccm_agent.facts.gather import gather

        return gather(self.environ, *layers)

    def sources(self, directory: str) -> Sources:
        """Hiera documents by URL; relative paths begin in a directory."""
        from ccm_agent.hiera.sources import Sources
        from ccm_agent.system.files import SystemFiles

        return Sources(
            SystemFiles(),
            download=self.port("download"),
            open_bucket=self.bucket,
            directory=directory,
        )

    def port(self, name: str) -> Any:
        """A port that not every command needs; KeyError for one that there is not."""
        if name not in self._ports:
            self._ports[name] = _PORTS[name]()
        return self._ports[name]

    async def bucket(self, name: str) -> KeyValue:
        """A bucket of the broker, which is asked for at once."""
        from ccm_agent.bus.kv import NatsKeyValue

        return NatsKeyValue(await self.connection(), name)

    async def connection(self) -> Connection:
        """
        The connection to the broker of the process's context.

        Raises:
            BusError: There is none.
        """
        if self._connection is None:
            from ccm_agent.bus.connection import Connection
            from ccm_agent.bus.settings import settings_from_context

            connection = Connection(settings_from_context(self._context, program="ccm"))
            await connection.__aenter__()
            self._connection = connection
            await connection.connect_now()
        return self._connection

    async def close(self) -> None:
        """Let go of the broker."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.__aexit__(None, None, None)


def _download() -> Any:
    from ccm_agent.system.http import SystemDownload

    return SystemDownload(user_agent=f"ccm/{VERSION}")


def _locks() -> Any:
    from ccm_agent.system.locks import SystemLocks, lock_directory

    return SystemLocks(lock_directory())


_PORTS = {"download": _download, "locks": _locks}


def make_expressions(
    facts: Mapping[str, Any], data: Mapping[str, Any], environ: Mapping[str, str], directory: str
) -> Expressions:
    """Expressions about one manifest; the language is imported when the first one is met."""
    return _Expressions(facts, data, environ, directory)


class _Expressions:
    def __init__(
        self, facts: Mapping[str, Any], data: Mapping[str, Any], environ: Mapping[str, str], directory: str
    ) -> None:
        self._given = (facts, data, environ, directory)
        self._made: Any = None

    @property
    def _environment(self) -> Any:
        if self._made is None:
            from ccm_agent.templates.env import Environment

            facts, data, environ, directory = self._given
            self._made = Environment(
                facts=facts if isinstance(facts, dict) else dict(facts),
                data=data if isinstance(data, dict) else dict(data),
                environ=environ,
                working_dir=directory,
            )
        return self._made

    def text(self, template: str) -> str:
        from ccm_agent.templates.resolve import render_text

        return render_text(template, self._environment)

    def typed(self, template: str) -> Any:
        from ccm_agent.templates.resolve import render_value

        return render_value(template, self._environment)

    def holds(self, expression: str) -> bool:
        from ccm_agent.templates.resolve import evaluate_condition

        return evaluate_condition(expression, self._environment)

    def jet_file(self, name: str) -> str:
        body = self._environment.read_file(f"./{name}")
        text: str = self._environment.render("jet", body, name=name)
        return text
