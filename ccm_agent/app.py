"""
The composition root: the only module that builds real adapters, with `app_agent.py` for the agent's.

Everything is imported where it is built, so that a command pays for what it uses: `ccm apply` of files loads no broker.
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
"""The context of the `nats` program that Choria CCM takes."""


class App:
    """
    The adapters of one process.

    Args:
        environ: The process environment: where custom facts and contexts are.
        directory: The working directory; "" asks the system.
        context: Context of the `nats` program, for what needs a broker; "" asks the environment, then takes the context CCM, the
            selected one, or the broker on this host.
        connection: A connection that is there already, instead.
        clock: Time; None is the host's.
        stream: The stream of registrations; "" is the usual one.
        settle_s: How long nodes have to register again after the broker was away; None is the usual time.
        render_limits: What a template may use; None is the usual.
        get_reader: Returns what verifies the registrations of nodes; None where nothing is verified.
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
        """The resource types."""
        if self._catalog is None:
            self._catalog = Catalog()
        return self._catalog

    def engine(self) -> LocalEngine:
        """The engine of this host."""
        from ccm_agent.engine.run import LocalEngine

        return LocalEngine(self.deps())

    @asynccontextmanager
    async def source(self, url: str, module_path: str = "") -> AsyncIterator[ManifestSource]:
        """
        The manifest at a path or URL; what had to be unpacked for it is gone afterwards.

        Args:
            url: The path or URL.
            module_path: The directory or http(s) URL with the templates of a TinyCM manifest; "" takes the manifest's folder.

        Raises:
            ManifestError: The URL is not a source, or holds no manifest.
            CcmError: It cannot be fetched.
        """
        from ccm_agent.engine.sources import open_source

        if module_path and "://" not in module_path:
            module_path = posixpath.normpath(posixpath.join(self.directory, module_path))
        async with open_source(url, self.port, self.objects, module_path) as source:
            yield source

    def rendered(self, plan: PreparedManifest) -> str:
        """A loaded manifest as YAML, its templates rendered as far as they are by now."""
        from ccm_agent.engine.render import render_plan

        return render_plan(plan.loaded, plan.state.masker)

    async def objects(self, bucket: str) -> Objects:
        """An object store of the broker."""
        from ccm_agent.bus.objects import NatsObjects

        return NatsObjects(await self.connection(), bucket)

    def deps(self) -> EngineDeps:
        """What the engine may use."""
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
        """Time."""
        if self._clock is None:
            from ccm_agent.system.clock import SystemClock

            self._clock = SystemClock()
        return self._clock

    def expression_maker(self) -> MakeExpressions:
        """Makes expressions about one manifest. They ask the broker on the loop that this is called on."""
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
        """Renders whole-file templates in a process of their own, which the first one starts."""
        from ccm_agent.templates.rendering import Renderer

        if self._render_worker is None:
            from ccm_agent.system.render_process import RenderProcess

            self._render_worker = RenderProcess(self._render_limits)
        return Renderer(self._render_worker)

    def asking(self, loop: asyncio.AbstractEventLoop | None) -> BrokerFunctions:
        """What expressions ask the broker, which is on a loop."""
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

    async def bucket(self, name: str) -> KeyReader:
        """A bucket of the broker, which is asked for at once."""
        from ccm_agent.bus.node_data import open_bucket

        return open_bucket(await self.connection(), name)

    async def registry(self, stream: str = "") -> RegistrationStream:
        """The registrations of a stream."""
        from ccm_agent.registration.registry import RegistrationStream

        return RegistrationStream(await self.connection(), stream)

    async def connection(self) -> Connection:
        """
        The connection to the process's broker.

        Raises:
            BusError: There is none.
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
        A hiera document's data for some facts, overrides merged over it and its rules checked.

        Raises:
            CcmError: It cannot be fetched or resolved, or breaks its own rules.
        """
        from ccm_agent.hiera import rules

        resolved, _ = await self.sources(self.directory).resolve(url, facts)
        data = merge.deep(resolved.data, overrides)
        rules.check(data, resolved.rules)
        return data

    def lint(
        self, name: str, text: str, *, strict_ccm: bool = False, ignored: Collection[str] = ()
    ) -> list[Finding]:
        """What is wrong with a manifest's text; see `manifest.lint`."""
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
        The value of an expression, or of a template, and what it prints as.

        Raises:
            ExpressionError: It fails; the message shows where in the text.
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
        """End the process that renders templates. Blocking, for the moment that this takes."""
        if self._render_worker is not None:
            self._render_worker.close()

    async def close(self) -> None:
        """Let go of the broker, and of the process that renders templates."""
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
    JSON as Choria CCM prints it: keys sorted, a whole float without its point.

    Raises:
        DataError: JSON has no word for a number in it.
    """
    from ccm_agent.templates.gojson import JSONError, write

    try:
        return write(value, indent, escapes_markup=False)
    except JSONError as err:
        raise DataError(f"cannot be written as JSON: {err}") from err


def similar_fact(facts: Mapping[str, Any], path: str) -> str:
    """The end of an error about a fact that is not there: `, did you mean X?`, or where all are shown."""
    from ccm_agent.templates.fact_texts import fact_paths

    return did_you_mean(path, fact_paths(facts)) or "; see `ccm facts`"


def find(values: object, path: str) -> Result:
    """What a GJSON path finds; its `value()` is None, and its `raw` empty, where there is nothing."""
    from ccm_agent.templates.gjson import get

    return get(json_text(values, indent=""), path)


def new_session(directory: str) -> str:
    """Make a session store; see `sessions.directory.new_session_directory`."""
    from ccm_agent.sessions.directory import new_session_directory

    return new_session_directory(directory)


async def session_summary(directory: str) -> SessionSummary:
    """
    What happened in a session; one that has no directory yet is empty.

    Raises:
        FileError: The store cannot be read.
    """
    from ccm_agent.sessions.directory import open_session
    from ccm_agent.sessions.memory import MemorySession
    from ccm_agent.system.clock import SystemClock

    session = await open_session(directory) if os.path.lexists(directory) else MemorySession()  # noqa: ASYNC240
    return session.summary(new_id(), SystemClock().now())


class _Broker:
    """What expressions ask: the `BrokerClient` of one process."""

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
