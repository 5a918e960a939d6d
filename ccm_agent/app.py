"""
The composition root. Only this module and `app_agent.py`, which does the same for the agent, build real adapters.

Modules are imported where they are used, so each command imports only the modules that it needs. For example, `ccm apply` of
files does not import the broker modules.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ccm_agent.app_expressions import make_environment, make_expressions
from ccm_agent.engine.request import ApplyOptions, ManifestSource, StopFlag
from ccm_agent.model import merge
from ccm_agent.model.errors import DataError
from ccm_agent.model.ids import new_id
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.resources.catalog import Catalog
from ccm_agent.version import VERSION

__all__ = ["App", "ApplyOptions", "ManifestSource", "StopFlag"]

if TYPE_CHECKING:
    import asyncio

    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.signatures.node_state import StateReader
    from ccm_agent.engine.deps import EngineDeps, MakeExpressions
    from ccm_agent.engine.run import LocalEngine, PreparedManifest
    from ccm_agent.hiera.sources import Sources
    from ccm_agent.manifest.expressions import Expressions
    from ccm_agent.manifest.findings import Finding
    from ccm_agent.model.outcome import SessionSummary
    from ccm_agent.model.ports import Clock, KeyReader, Objects, RenderWorker
    from ccm_agent.model.records.registration import RegistrationEntry
    from ccm_agent.registration.lookup import RegistrationLookup
    from ccm_agent.registration.registry import RegistrationStream
    from ccm_agent.system.render_process import RenderLimits
    from ccm_agent.templates.broker_functions import BrokerFunctions
    from ccm_agent.templates.gjson import Result
    from ccm_agent.templates.rendering import Renderer


USUAL_CONTEXT = "CCM"
"""The context of the `nats` program that Choria CCM uses."""


class App:
    """
    The adapters of one process.

    Args:
        environ: The process environment, which locates custom facts and contexts.
        directory: The working directory; "" for the process's own.
        context: The context of the `nats` program for the broker. "" uses the environment, or else the context CCM, the
            selected context, or the broker on this host.
        connection: An existing connection to use instead.
        clock: The clock; None for the host's.
        stream: The stream of registrations; "" for the usual one.
        settle_s: The time for nodes to register again after an outage of the broker, in seconds; None for the default.
        render_limits: The limits of a template; None for the usual limits.
        get_reader: Returns an object that verifies the registrations of nodes; None if they are not verified.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        directory: str = "",
        context: str = "",
        *,
        connection: Connection | None = None,
        clock: Clock | None = None,
        stream: str = "",
        settle_s: float | None = None,
        render_limits: RenderLimits | None = None,
        get_reader: Callable[[], StateReader | None] = lambda: None,
    ) -> None:
        self.environ = environ
        self.directory = directory or os.getcwd()  # noqa: PTH109 - pathlib is slow to import
        self._context = context
        self._connection = connection
        self._clock = clock
        self._stream = stream
        self._settle_s = settle_s
        self._render_limits = render_limits
        self._get_reader = get_reader
        self._render_worker: RenderWorker | None = None
        self._asking: BrokerFunctions | None = None
        self._catalog: Catalog | None = None
        self._ports: dict[str, Any] = {}

    @property
    def catalog(self) -> Catalog:
        """Return the resource types."""
        if self._catalog is None:
            self._catalog = Catalog()
        return self._catalog

    def engine(self) -> LocalEngine:
        """Return the engine of this host."""
        from ccm_agent.engine.run import LocalEngine

        return LocalEngine(self.deps())

    @asynccontextmanager
    async def source(self, url: str, module_path: str = "") -> AsyncIterator[ManifestSource]:
        """
        Yield the manifest at a path or URL. Files that were unpacked for it are removed afterwards.

        Args:
            url: The path or URL.
            module_path: The directory or http(s) URL with the templates of a TinyCM manifest; "" for the manifest's folder.

        Raises:
            ManifestError: The URL is not a source, or contains no manifest.
            CcmError: The manifest cannot be fetched.
        """
        from ccm_agent.engine.sources import open_source

        if module_path and "://" not in module_path:
            module_path = posixpath.normpath(posixpath.join(self.directory, module_path))
        async with open_source(url, self.port, self.objects, module_path) as source:
            yield source

    def rendered(self, plan: PreparedManifest) -> str:
        """Return a loaded manifest as YAML. Templates are rendered unless they need values that are not known yet."""
        from ccm_agent.engine.render import render_plan

        return render_plan(plan.loaded, plan.state.masker)

    async def objects(self, bucket: str) -> Objects:
        """Return an object store of the broker."""
        from ccm_agent.bus.objects import NatsObjects

        return NatsObjects(await self.connection(), bucket)

    def deps(self) -> EngineDeps:
        """Return the ports for the engine."""
        from ccm_agent.engine.deps import EngineDeps
        from ccm_agent.sessions.refresh_store import RefreshStore, creations_folder, refresh_folder
        from ccm_agent.system.files import SystemFiles
        from ccm_agent.system.runner import SystemRunner

        return EngineDeps(
            runner=SystemRunner(),
            files=SystemFiles(),
            clock=self.clock,
            catalog=self.catalog,
            make_expressions=self.expression_maker(),
            gather_facts=self.facts,
            sources=self.sources,
            directory=self.directory,
            port=self.port,
            version=VERSION,
            refreshes=RefreshStore(refresh_folder()),
            creations=creations_folder(),
        )

    @property
    def clock(self) -> Clock:
        """Return the clock."""
        if self._clock is None:
            from ccm_agent.system.clock import SystemClock

            self._clock = SystemClock()
        return self._clock

    def expression_maker(self) -> MakeExpressions:
        """Return a function that creates the expressions of one manifest. They query the broker on the current event loop."""
        import asyncio

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None

        def make(
            facts: Mapping[str, Any], data: Mapping[str, Any], environ: Mapping[str, str], directory: str
        ) -> Expressions:
            return make_expressions(facts, data, environ, directory, lambda: self.asking(loop), self.renderer)

        return make

    def renderer(self) -> Renderer:
        """Return the renderer of whole-file templates. Its separate process starts with the first template."""
        from ccm_agent.templates.rendering import Renderer

        if self._render_worker is None:
            from ccm_agent.system.render_process import RenderProcess

            self._render_worker = RenderProcess(self._render_limits)
        return Renderer(self._render_worker)

    def asking(self, loop: asyncio.AbstractEventLoop | None) -> BrokerFunctions:
        """Return the functions with which expressions query the broker on a loop."""
        if self._asking is None:
            from ccm_agent.templates.broker_functions import BrokerFunctions

            self._asking = BrokerFunctions(loop, self._broker)
        return self._asking

    def _broker(self) -> _Broker:
        from ccm_agent.bus.connection.choose_broker import broker_name
        from ccm_agent.registration.lookup import RegistrationLookup

        connection = self._connection
        lookup = RegistrationLookup(
            connection.settings.address
            if connection
            else broker_name(self.environ, self._context, USUAL_CONTEXT),
            self.connection,
            self.port("records"),
            self.clock,
            stream=self._stream,
            settle_s=self._settle_s,
            get_reader=self._get_reader,
        )
        return _Broker(lookup, self.bucket)

    def facts(self, *layers: Mapping[str, Any]) -> Mapping[str, Any]:
        """
        Return this host's facts, overridden by layers. Each family of facts is gathered when one of its facts is first read.
        """
        from ccm_agent.facts.gather import gather

        return gather(self.environ, *layers)

    def sources(self, directory: str) -> Sources:
        """Return the sources of Hiera documents by URL. Relative paths are relative to the directory."""
        from ccm_agent.hiera.sources import Sources
        from ccm_agent.system.files import SystemFiles

        return Sources(
            SystemFiles(),
            download=self.port("download"),
            open_bucket=self.bucket,
            directory=directory,
        )

    def port(self, name: str) -> Any:
        """Return an optional port by name; KeyError for an unknown name."""
        if name not in self._ports:
            self._ports[name] = _PORTS[name]()
        return self._ports[name]

    async def bucket(self, name: str) -> KeyReader:
        """Return a bucket of the broker. Connects to the broker if there is no connection."""
        from ccm_agent.bus.node_data import open_bucket

        return open_bucket(await self.connection(), name)

    async def registry(self, stream: str = "") -> RegistrationStream:
        """Return the registrations of a stream."""
        from ccm_agent.registration.registry import RegistrationStream

        return RegistrationStream(await self.connection(), stream)

    async def connection(self) -> Connection:
        """
        Return the connection to the process's broker.

        Raises:
            BusError: The connection failed.
        """
        if self._connection is None:
            from ccm_agent.bus.connection.choose_broker import choose_broker, named_by_credentials
            from ccm_agent.bus.connection.connection import Connection

            chosen = choose_broker(
                self.environ, context=self._context, usual_context=USUAL_CONTEXT, program="ccm"
            )
            connection = Connection(named_by_credentials(chosen))
            await connection.__aenter__()
            self._connection = connection
            await connection.connect_now()
        return self._connection

    async def resolve_hiera(
        self, url: str, facts: Mapping[str, Any], overrides: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """
        Return the data of a Hiera document for some facts. Overrides are merged, and the document's rules are checked.

        Raises:
            CcmError: The document cannot be fetched or resolved, or breaks its own rules.
        """
        from ccm_agent.hiera import rules

        resolved, _ = await self.sources(self.directory).resolve(url, facts)
        data = merge.deep(resolved.data, overrides)
        rules.check(data, resolved.rules)
        return data

    def lint(
        self, name: str, text: str, *, strict_ccm: bool = False, ignored: Collection[str] = ()
    ) -> list[Finding]:
        """Return the findings in a manifest's text; see `manifest.lint`."""
        from ccm_agent.manifest.document import make_document
        from ccm_agent.manifest.lint import lint

        document = make_document(text.encode(), name, self.directory)
        return lint(document, self.catalog, strict_ccm=strict_ccm, ignored=ignored)

    async def evaluate(
        self,
        text: str,
        facts: Mapping[str, Any],
        data: Mapping[str, Any],
        environ: Mapping[str, str],
        *,
        is_template: bool = False,
    ) -> tuple[Any, str]:
        """
        Return the value of an expression or template, and its printed form.

        Raises:
            ExpressionError: The evaluation failed. The message shows the position in the text.
        """
        import asyncio

        from ccm_agent.templates import resolve
        from ccm_agent.templates.goprint import go_print

        asking = self.asking(asyncio.get_running_loop())
        environment = make_environment(facts, data, environ, self.directory, asking, self.renderer())

        def evaluated() -> tuple[Any, str]:
            if is_template:
                value = resolve.render_value(text, environment)
                return value, go_print(value)
            found = resolve.evaluate_shown(text, environment)
            return found.value, found.text

        return await asyncio.to_thread(evaluated)

    def close_renderer(self) -> None:
        """End the process that renders templates. Blocks briefly."""
        if self._render_worker is not None:
            self._render_worker.close()

    async def close(self) -> None:
        """Disconnect from the broker, and end the process that renders templates."""
        self.close_renderer()
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.__aexit__(None, None, None)


def _download() -> Any:
    from ccm_agent.system.http.download import SystemDownload

    return SystemDownload(user_agent=f"ccm/{VERSION}")


def _locks() -> Any:
    from ccm_agent.system.locks import SystemLocks, lock_directory

    return SystemLocks(lock_directory())


def _kernel() -> Any:
    from ccm_agent.system.kernel import SystemKernel

    return SystemKernel()


def _network() -> Any:
    from ccm_agent.system.http.network import SystemNetwork

    return SystemNetwork(user_agent=f"ccm/{VERSION}")


def _unpack() -> Any:
    from ccm_agent.system.archives.unpack import Unpacker

    return Unpacker()


def _key_files() -> Any:
    from ccm_agent.system.key_files import SystemKeyFiles

    return SystemKeyFiles()


def _trees() -> Any:
    from ccm_agent.system.trees.trees import SystemTrees

    return SystemTrees()


def _records() -> Any:
    from ccm_agent.system.state_records import SystemRecords, record_directory

    return SystemRecords(record_directory())


_PORTS = {
    "download": _download,
    "key_files": _key_files,
    "kernel": _kernel,
    "locks": _locks,
    "network": _network,
    "records": _records,
    "tree_editor": _trees,
    "trees": _trees,
    "unpack": _unpack,
}


def json_text(value: object, indent: str = "  ") -> str:
    """
    Format JSON as Choria CCM does: keys are sorted, and whole floats have no decimal point.

    Raises:
        DataError: JSON cannot represent a number in the value.
    """
    from ccm_agent.templates.gojson import JSONError, write

    try:
        return write(value, indent, escapes_markup=False)
    except JSONError as err:
        raise DataError(f"cannot be written as JSON: {err}") from err


def similar_fact(facts: Mapping[str, Any], path: str) -> str:
    """Return the end of the error about a missing fact: `, did you mean X?`, or the command that lists all facts."""
    from ccm_agent.templates.fact_texts import fact_paths

    return did_you_mean(path, fact_paths(facts)) or "; see `ccm facts`"


def find(values: object, path: str) -> Result:
    """Return the result of a GJSON path. If there is none, its `value()` is None and its `raw` is empty."""
    from ccm_agent.templates.gjson import get

    return get(json_text(values, indent=""), path)


def new_session(directory: str) -> str:
    """Create a session store; see `sessions.directory.new_session_directory`."""
    from ccm_agent.sessions.directory import new_session_directory

    return new_session_directory(directory)


async def session_summary(directory: str) -> SessionSummary:
    """
    Return the summary of a session. A session without a directory is empty.

    Raises:
        FileError: The store cannot be read.
    """
    from ccm_agent.sessions.directory import open_session
    from ccm_agent.sessions.memory import MemorySession
    from ccm_agent.system.clock import SystemClock

    session = await open_session(directory) if os.path.lexists(directory) else MemorySession()  # noqa: ASYNC240
    return session.summary(new_id(), SystemClock().now())


class _Broker:
    """The `BrokerClient` of one process, for expressions."""

    def __init__(
        self, lookup: RegistrationLookup, open_bucket: Callable[[str], Awaitable[KeyReader]]
    ) -> None:
        self._lookup = lookup
        self._open_bucket = open_bucket

    async def registrations(
        self, cluster: str, protocol: str, service: str, address: str
    ) -> list[RegistrationEntry]:
        from ccm_agent.registration.entries import RegistrationQuery

        return await self._lookup.find(RegistrationQuery(cluster, protocol, service, address))

    async def kv_get(self, bucket: str, key: str) -> bytes | None:
        entry = await (await self._open_bucket(bucket)).get(key)
        return None if entry is None else entry.value
