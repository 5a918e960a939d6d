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
    from collections.abc import Sequence

    from ccm_agent.bus.connection import Connection
    from ccm_agent.daemon.agent import Agent, Ports
    from ccm_agent.daemon.config import Settings
    from ccm_agent.engine.expressions import Expressions
    from ccm_agent.engine.lint import Finding
    from ccm_agent.engine.run import LocalEngine, Plan
    from ccm_agent.engine.world import World
    from ccm_agent.hiera.sources import OpenBucket, Sources
    from ccm_agent.model.outcome import SessionSummary
    from ccm_agent.model.ports import KeyValue, Objects
    from ccm_agent.resources.catalog import Catalog
    from ccm_agent.templates.env import Environment
    from ccm_agent.templates.gjson import Result


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

    async def resolve_hiera(
        self, url: str, facts: Mapping[str, Any], overrides: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """
        A hiera document's data for some facts, overrides merged over it and its rules checked.

        Raises:
            CcmError: It cannot be fetched or resolved, or breaks its own rules.
        """
        from ccm_agent.hiera import rules
        from ccm_agent.model import merge

        resolved, _ = await self.sources(self.directory).resolve(url, facts)
        data = merge.deep(resolved.data, overrides)
        rules.check(data, resolved.rules)
        return data

    def lint(self, name: str, text: str, *, strict_ccm: bool = False) -> list[Finding]:
        """What is wrong with a manifest's text; see `engine.lint`."""
        from ccm_agent.engine.lint import lint
        from ccm_agent.engine.load import make_document

        return lint(make_document(text.encode(), name, self.directory), self.catalog, strict_ccm=strict_ccm)

    def evaluate(
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
        from ccm_agent.templates import resolve
        from ccm_agent.templates.values import go_print

        environment = make_environment(facts, data, environ, self.directory)
        if is_template:
            value = resolve.render_value(text, environment)
            return value, go_print(value)
        found = resolve.evaluate_shown(text, environment)
        return found.value, found.text

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


def _unpack() -> Any:
    from ccm_agent.system.unpack import Unpacker

    return Unpacker()


def _trees() -> Any:
    from ccm_agent.system.trees import SystemTrees

    return SystemTrees()


def _records() -> Any:
    from ccm_agent.system.records import SystemRecords, record_directory

    return SystemRecords(record_directory())


_PORTS = {
    "download": _download,
    "locks": _locks,
    "records": _records,
    "trees": _trees,
    "unpack": _unpack,
}


def json_text(value: object, indent: str = "  ") -> str:
    """
    JSON as Choria CCM prints it: keys sorted, a whole float without its point.

    Raises:
        DataError: JSON has no word for a number in it.
    """
    from ccm_agent.model.errors import DataError
    from ccm_agent.templates.gojson import JSONError, write

    try:
        return write(value, indent, escapes_markup=False)
    except JSONError as err:
        raise DataError(f"this cannot be written as JSON: {err}") from err


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
    from ccm_agent.model.ids import new_id
    from ccm_agent.sessions.directory import open_session
    from ccm_agent.sessions.memory import MemorySession
    from ccm_agent.system.clock import SystemClock

    session = await open_session(directory) if os.path.lexists(directory) else MemorySession()  # noqa: ASYNC240
    return session.summary(new_id(), SystemClock().now())


def make_expressions(
    facts: Mapping[str, Any], data: Mapping[str, Any], environ: Mapping[str, str], directory: str
) -> Expressions:
    """Expressions about one manifest; the language is imported when the first one is met."""
    return _Expressions(facts, data, environ, directory)


def make_environment(
    facts: Mapping[str, Any], data: Mapping[str, Any], environ: Mapping[str, str], directory: str
) -> Environment:
    """What expressions and templates about one manifest see."""
    from ccm_agent.templates.env import Environment

    return Environment(
        facts=facts if isinstance(facts, dict) else dict(facts),
        data=data if isinstance(data, dict) else dict(data),
        environ=environ,
        working_dir=directory,
    )


class _Expressions:
    def __init__(
        self, facts: Mapping[str, Any], data: Mapping[str, Any], environ: Mapping[str, str], directory: str
    ) -> None:
        self._given = (facts, data, environ, directory)
        self._made: Environment | None = None

    @property
    def environment(self) -> Environment:
        if self._made is None:
            self._made = make_environment(*self._given)
        return self._made

    def text(self, template: str) -> str:
        from ccm_agent.templates.resolve import render_text

        return render_text(template, self.environment)

    def typed(self, template: str) -> Any:
        from ccm_agent.templates.resolve import render_value

        return render_value(template, self.environment)

    def holds(self, expression: str) -> bool:
        from ccm_agent.templates.resolve import evaluate_condition

        return evaluate_condition(expression, self.environment)

    def jet_file(self, name: str) -> str:
        body = self.environment.read_file(f"./{name}")
        text: str = self.environment.render("jet", body, name=name)
        return text


def check_agent(config: str) -> None:
    """
    See that an agent could start with a configuration file.

    Raises:
        CcmError: It could not: file, line, and what to do.
    """
    from pathlib import Path

    from ccm_agent.daemon.config import read_config
    from ccm_agent.daemon.identity import check_configured

    check_configured(read_config(Path(config)).identity)


def run_agent(config: str, context: str = "") -> None:
    """
    Run this node's agent until it is asked to stop.

    Args:
        config: Its configuration file.
        context: A context of the `nats` program instead of the configured broker; "" keeps that.

    Raises:
        CcmError: It cannot start.
    """
    import asyncio
    from pathlib import Path

    from ccm_agent.daemon.config import read_config, with_context
    from ccm_agent.daemon.logs import set_up_logging
    from ccm_agent.daemon.notify import Notifier
    from ccm_agent.daemon.service import serve
    from ccm_agent.system.leftover import hand_over_output

    path = Path(config)
    settings = with_context(read_config(path), context)
    set_up_logging(settings.log_level, settings.log_format)
    asyncio.run(serve(path, settings, build_agent, Notifier(), hand_over_output))


@asynccontextmanager
async def build_agent(settings: Settings) -> AsyncIterator[Agent]:
    """The agent of this node on its broker, which it is connected to in the background."""
    import asyncio
    from contextlib import AsyncExitStack
    from pathlib import Path

    from ccm_agent.bus.connection import Connection
    from ccm_agent.bus.settings import BusSettings
    from ccm_agent.daemon.agent import Agent
    from ccm_agent.daemon.broker import bus_settings
    from ccm_agent.daemon.identity import settle_identity

    node = await asyncio.to_thread(settle_identity, settings.identity, Path(settings.state_dir))
    broker = await asyncio.to_thread(
        bus_settings, settings.broker, node, first_spread_s=settings.connect_spread_s
    )
    connection = Connection(broker or BusSettings(identity=node))
    async with AsyncExitStack() as stack:
        # without a broker the connection is never begun, and the agent works as if the broker were away
        if broker is not None:
            await stack.enter_async_context(connection)
        ports = agent_ports(connection, settings)
        yield await asyncio.to_thread(Agent, settings, ports, version=VERSION)


def agent_ports(connection: Connection, settings: Settings) -> Ports:
    """What an agent asks of the world, on a connection."""
    from msgspec.structs import replace

    from ccm_agent.bus.events import NatsEvents
    from ccm_agent.bus.kv import NatsKeyValue
    from ccm_agent.bus.objects import NatsObjects
    from ccm_agent.bus.requests import NatsRequests
    from ccm_agent.daemon.agent import Ports
    from ccm_agent.engine.mask import for_bus
    from ccm_agent.engine.run import LocalEngine
    from ccm_agent.facts.gather import gather
    from ccm_agent.hiera.sources import Sources
    from ccm_agent.system.clock import SystemClock
    from ccm_agent.system.files import SystemFiles

    app = App(os.environ, directory="/")

    def make_engine(open_bucket: OpenBucket, numbers: dict[str, int]) -> LocalEngine:
        def sources(directory: str) -> Sources:
            return Sources(
                SystemFiles(),
                download=app.port("download"),
                open_bucket=open_bucket,
                directory=directory,
                numbers=numbers,
                demand_stamps=settings.stamped_data,
            )

        return LocalEngine(replace(app.world(), sources=sources))

    def gather_facts() -> dict[str, Any]:
        layers = [_facts_file(settings.facts_file)] if settings.facts_file else []
        return gather(os.environ, *layers).load()

    return Ports(
        link=connection,
        requests=NatsRequests(connection),
        events=NatsEvents(connection),
        objects=NatsObjects(connection, "CCM_MANIFESTS"),
        bucket=lambda name: NatsKeyValue(connection, name),
        make_engine=make_engine,
        gather_facts=gather_facts,
        matches=_matches,
        shorten=lambda event: for_bus(event, app.catalog.find(event.type)),
        clock=SystemClock(),
    )


def _matches(targets: Sequence[str], where: str, node: str, facts: Mapping[str, Any]) -> bool:
    """Any of the targets means the node, and so does the expression."""
    from ccm_agent.templates.selector import parse_selector, parse_where

    is_meant = not targets or any(parse_selector(text).matches(node, facts) for text in targets)
    return is_meant and (not where or parse_where(where).matches(node, facts))


def _facts_file(path: str) -> Mapping[str, Any]:
    from pathlib import Path

    from ccm_agent.model.codec import decode_document
    from ccm_agent.model.errors import DocumentError, FileError, Place

    try:
        facts = decode_document(Path(path).read_bytes(), path)
    except OSError as err:
        raise FileError(f"{path}: cannot read the file of facts: {err.strerror}") from err
    if not isinstance(facts, dict):
        raise DocumentError("facts are a mapping of names to values", place=Place(path))
    return facts
