"""
The composition root of the agent, a long-running process. See `app.py` for commands.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from ccm_agent.agent.cache.document_cache import CachedDownload
from ccm_agent.agent.desired.origins import SourcePorts
from ccm_agent.agent.process import control_socket as control_socket
from ccm_agent.agent.process.agent import Agent
from ccm_agent.agent.process.context import AgentPorts
from ccm_agent.agent.process.log_setup import set_up_logging
from ccm_agent.agent.process.main import SystemdNotifier, serve, serve_once
from ccm_agent.agent.runs.admission import read_policy
from ccm_agent.agent.state.settings import BrokerSettings, Settings, read_config, read_secret, with_context
from ccm_agent.agent.state.state_folder import check_configured, determine_identity
from ccm_agent.app import App, ApplyOptions
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import BusSettings, settings_for, settings_from_context
from ccm_agent.bus.events import NatsEvents
from ccm_agent.bus.layout import NODES
from ccm_agent.bus.node_data import can_read_own, open_bucket
from ccm_agent.bus.objects import NatsObjects
from ccm_agent.bus.requests import NatsRequests
from ccm_agent.bus.signatures.node_key import NodeKey
from ccm_agent.bus.signatures.node_state import NodeStateBucket, StateReaderRef, find_slot_forgery
from ccm_agent.bus.signatures.secret_reader import SecretReader
from ccm_agent.bus.signatures.trust import Trust, trust_in_credentials
from ccm_agent.engine.masking import shorten_for_bus
from ccm_agent.engine.parse_cache import ParseCache
from ccm_agent.engine.run import LocalEngine
from ccm_agent.engine.slots import NodeSlots
from ccm_agent.facts.gather import gather
from ccm_agent.hiera.sources import OpenBucket, Sources
from ccm_agent.joining.renewal import CredentialRenewal
from ccm_agent.metrics.registry import CallbackMetric
from ccm_agent.model.codec import decode_document
from ccm_agent.model.errors import BusError, DocumentError, FileError, NotFoundError, Place
from ccm_agent.model.ports import Clock
from ccm_agent.model.records.host_import import HostResources
from ccm_agent.model.records.registration import RegistrationEntry
from ccm_agent.model.records.slots import BUCKET
from ccm_agent.model.secret import Masker
from ccm_agent.policy.grant import Grant
from ccm_agent.registration.publish import EntrySigner, Publisher
from ccm_agent.sessions.refresh_store import RefreshStore
from ccm_agent.system import process_stats
from ccm_agent.system.clock import SystemClock
from ccm_agent.system.detached_output import hand_over_output
from ccm_agent.system.files import SystemFiles
from ccm_agent.system.render_process import RenderLimits
from ccm_agent.system.runner import SystemRunner
from ccm_agent.system.systemd_restart import is_restarting
from ccm_agent.system.threads import Threads
from ccm_agent.templates.target_matcher import TargetMatcher
from ccm_agent.version import VERSION

log = logging.getLogger(__name__)


SECRETS_KEPT = 2000
"""The maximum number of secret texts that are removed from an agent's log. Each run adds its secrets; the newest are kept."""

GARBAGE_THRESHOLD = (20_000, 20, 20)
"""See `gc.set_threshold`."""


def check_agent(config: str) -> None:
    """
    Check that an agent can start with a configuration file.

    Raises:
        CcmError: The agent cannot start. The message contains the file, the line, and a remedy.
    """
    settings = read_config(Path(config))
    check_configured(settings.identity)
    types = App(os.environ, directory="/").catalog.names()
    read_policy(Path(settings.policy_file), types, is_required=settings.is_policy_required)


def run_agent(
    config: str,
    context: str = "",
    *,
    clock: Clock | None = None,
    run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run,
) -> None:
    """
    Run this node's agent until it receives a request to stop.

    Args:
        config: The agent's configuration file.
        context: A context of the `nats` program that replaces the configured broker; "" for the configured broker.
        clock: A clock that replaces the host's.
        run: Runs the agent to its end.

    Raises:
        CcmError: The agent cannot start.
    """
    path = Path(config)
    settings = with_context(read_config(path), context)
    secrets = Masker(limit=SECRETS_KEPT)
    set_up_logging(settings.log_level, settings.log_format, secrets=secrets)
    restarts = partial(is_restarting, SystemRunner())
    build = partial(build_agent, clock=clock, secrets=secrets)
    # an agent's objects live for one run or for years; a collection after every 700 objects would take a tenth of each run
    gc.set_threshold(*GARBAGE_THRESHOLD)
    run(serve(path, settings, build, SystemdNotifier(), hand_over_output, restarts))


def state_folder(config: str) -> Path:
    """
    Return the folder in which the agent of a configuration file stores its state.

    Raises:
        CcmError: The file cannot be read.
    """
    return Path(read_config(Path(config)).state_dir)


def converge_alone(config: str, context: str, limit_s: float) -> list[dict[str, Any]]:
    """
    Run as the agent until it has converged once. Return the results of all manifests and assignments, as `Ended`.

    Raises:
        CcmError: The agent cannot start, or did not finish.
    """
    path = Path(config)
    settings = with_context(read_config(path), context)
    control_socket.check_owner(Path(settings.state_dir))
    secrets = Masker(limit=SECRETS_KEPT)
    set_up_logging("warn", settings.log_format, secrets=secrets)
    build = partial(build_agent, secrets=secrets)
    ended = asyncio.run(serve_once(path, settings, build, hand_over_output, limit_s))
    plain: list[dict[str, Any]] = to_builtins(ended)
    return plain


@asynccontextmanager
async def build_agent(
    settings: Settings, clock: Clock | None = None, secrets: Masker | None = None
) -> AsyncIterator[Agent]:
    """Return the agent of this node. It connects to its broker in the background. `clock` replaces the host's clock."""
    node = await asyncio.to_thread(determine_identity, settings.identity, Path(settings.state_dir))
    broker = await asyncio.to_thread(
        bus_settings, settings.broker, node, first_spread_s=settings.connect_spread_s
    )
    connection = Connection(broker or BusSettings(identity=node))
    if broker is not None and secrets is not None:
        for secret in filter(None, (broker.password, broker.token)):
            secrets.learn(secret)
    async with AsyncExitStack() as stack:
        # without a broker the connection is never started, and the agent works as if the broker were unavailable
        if broker is not None:
            await stack.enter_async_context(connection)
        trust = await asyncio.to_thread(read_trust, broker.creds if broker else "", settings.trusted_root)
        ports = agent_ports(connection, settings, clock, trust, secrets)
        yield await asyncio.to_thread(Agent, settings, ports, version=VERSION)


def bus_settings(broker: BrokerSettings, node: str, *, first_spread_s: float) -> BusSettings | None:
    """
    Return the settings for the broker; None if the configuration has no broker. Blocking, because it reads small files.

    Args:
        broker: The broker section of the configuration.
        node: The node's identity.
        first_spread_s: The maximum random delay before the first attempt, in seconds.

    Raises:
        CcmError: The context or a secret's file cannot be read.
    """
    others: dict[str, Any] = {
        "identity": node,
        "program": f"ccm agent {node}",
        "first_spread_s": first_spread_s,
    }
    for field in ("creds", "nkey", "user"):
        if value := getattr(broker, field):
            others[field] = value
    if broker.password_file:
        others["password"] = read_secret(broker.password_file)
    if broker.token_file:
        others["token"] = read_secret(broker.token_file)
    if broker.tls is not None:
        tls = {"ca": broker.tls.ca, "cert": broker.tls.cert, "key": broker.tls.key}
        others |= {name: value for name, value in tls.items() if value}
    if broker.insecure:
        others["insecure"] = True
    if broker.servers:
        return settings_for(list(broker.servers), **others)
    try:
        return settings_from_context(broker.context, **others)
    except NotFoundError:
        if broker.is_default_context:
            return None
        raise


def read_trust(creds: str, root: str) -> Trust | None:
    """
    Return the trust settings of a node's credentials; None if neither they nor the configuration have any. Blocking.

    Args:
        creds: The credentials file; "" if there is none.
        root: The root key in the configuration, which overrides the credentials' root key.

    Raises:
        FileError: The file cannot be read.
        InputError: The file's trust block is damaged.
    """
    trust = None
    if creds:
        try:
            trust = trust_in_credentials(Path(creds).read_text(encoding="utf-8"), creds)
        except (OSError, UnicodeDecodeError) as err:
            raise FileError(f"{creds}: the credentials cannot be read: {err}") from err
    if root and (trust is None or trust.root != root):
        return Trust(root=root)
    return trust


def agent_ports(
    connection: Connection,
    settings: Settings,
    clock: Clock | None = None,
    trust: Trust | None = None,
    secrets: Masker | None = None,
) -> AgentPorts:
    """Return the agent's ports for a connection and a clock (the host's by default). `secrets` are removed from the log."""
    clock = clock or SystemClock()
    states = StateReaderRef()
    app = App(
        os.environ,
        directory="/",
        connection=connection,
        clock=clock,
        stream=settings.registration_stream,
        settle_s=settings.registration_settle_s,
        get_reader=lambda: states.get(),
        render_limits=RenderLimits(
            cpu_s=settings.template_cpu_s, memory_bytes=settings.template_memory_bytes
        ),
    )
    refreshes = RefreshStore(Path(settings.state_dir) / "refresh")
    node_key = NodeKey(connection.settings.creds or connection.settings.nkey)

    def now_ms() -> int:
        return int(clock.now().timestamp() * 1000)

    slots = NodeSlots(
        connection.settings.identity,
        NodeStateBucket(connection, BUCKET, node_key, now_ms, carries_certificate=True),
        clock,
        renew_s=settings.slot_renew_s,
        hold_s=settings.slot_hold_s,
        find_forgery=lambda entry: find_slot_forgery(states.get(), entry),
    )
    secret_reader = SecretReader(connection.settings.identity, node_key, _find_loop())
    expressions = app.expression_maker()  # the engine is created in a thread without a loop

    def make_engine(open_bucket: OpenBucket, numbers: dict[str, int]) -> LocalEngine:
        def sources(directory: str) -> Sources:
            return Sources(
                SystemFiles(),
                download=CachedDownload(app.port("download"), Path(settings.state_dir) / "data" / "web"),
                open_bucket=open_bucket,
                directory=directory,
                numbers=numbers,
                demand_stamps=settings.stamped_data is True,
            )

        secret_reader.use(open_bucket, numbers)
        deps = replace(
            app.deps(),
            open_secret=secret_reader.open,
            sources=sources,
            make_expressions=expressions,
            register=_register(connection, settings, partial(_sign_entry, node_key, now_ms)),
            read_document=ParseCache().read,
            secrets=secrets,
            refreshes=refreshes,
            creations=Path(settings.state_dir) / "creations",
            slots=slots,
        )
        return LocalEngine(deps)

    def gather_facts() -> dict[str, Any]:
        layers = [_facts_file(settings.facts_file)] if settings.facts_file else []
        return gather(os.environ, *layers).load()

    return AgentPorts(
        link=connection,
        requests=NatsRequests(connection),
        events=NatsEvents(connection),
        objects=NatsObjects(connection, "CCM_MANIFESTS"),
        bucket=lambda name: open_bucket(connection, name),
        nodes=NodeStateBucket(connection, NODES, node_key, now_ms),
        make_engine=make_engine,
        gather_facts=gather_facts,
        matches=TargetMatcher(Threads("ccm-select", 1).call),
        shorten=lambda event: shorten_for_bus(event, app.catalog.find(event.type)),
        clock=clock,
        sources=SourcePorts(
            files=SystemFiles(),
            download=app.port("download"),
            objects=lambda name: NatsObjects(connection, name),
        ),
        trust=trust,
        readings=_readings(connection),
        node_key=node_key,
        states=states,
        waits_for=lambda: app.port("locks").waits_for,
        resource_types=app.catalog.names,
        close=app.close_renderer,
        secrets=secrets,
        can_read_own=partial(can_read_own, connection),
        refreshes=refreshes,
        slots=slots,
        find_resources=partial(_find_resources, app),
        keep_credentials=_keeper(connection),
    )


async def _find_resources(
    app: App, types: Sequence[str], contents: Sequence[str], grant: Grant | None
) -> HostResources:
    from ccm_agent.app_import import find_host_resources

    return await find_host_resources(app, types, ApplyOptions(environ={}, grant=grant), contents)


def _keeper(connection: Connection) -> Callable[[Callable[[], None]], Coroutine[Any, Any, None]] | None:
    creds = connection.settings.creds
    return CredentialRenewal(connection, Path(creds)).run if creds else None


def _find_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _sign_entry(
    key: NodeKey, now_ms: Callable[[], int], subject: str, body: bytes, lasts_s: float | None
) -> dict[str, str]:
    """
    Return the headers of a registration. They include the certificate, because load balancers do not read the node's record.
    """
    issued_ms = now_ms()
    expires_ms = issued_ms + int(lasts_s * 1000) if lasts_s else 0
    return key.sign_state(subject, body, issued_ms=issued_ms, expires_ms=expires_ms, carries_certificate=True)


def _register(
    connection: Connection, settings: Settings, sign: EntrySigner
) -> Callable[[RegistrationEntry], Awaitable[None]] | None:
    """Return the object that registers services; None if the configuration has no registration stream."""
    if not settings.registration:
        return None
    publisher = Publisher(connection, settings.registration, settings.registration_stream, sign)

    async def register(entry: RegistrationEntry) -> None:
        try:
            await publisher.publish(entry)
        except BusError as err:
            log.warning("a service is not registered", extra={"service": entry.service, "reason": str(err)})
            raise

    return register


def _readings(connection: Connection) -> list[CallbackMetric]:
    """Return the metrics of the connection and of this process."""
    started = time.time()
    return [
        CallbackMetric(
            "choria_ccm_agent_reconnects_total",
            "Reconnections to the broker",
            lambda: connection.reconnects,
            kind="counter",
        ),
        CallbackMetric("process_resident_memory_bytes", "Resident memory", process_stats.resident_bytes),
        CallbackMetric(
            "process_cpu_seconds_total",
            "CPU time, user and system",
            process_stats.cpu_seconds,
            kind="counter",
        ),
        CallbackMetric("process_open_fds", "Open file descriptors", process_stats.open_files),
        CallbackMetric("process_start_time_seconds", "Start time of the process", lambda: started),
    ]


def _facts_file(path: str) -> Mapping[str, Any]:
    try:
        facts = decode_document(Path(path).read_bytes(), path)
    except OSError as err:
        raise FileError(f"{path}: cannot read the facts file: {err.strerror}") from err
    if not isinstance(facts, dict):
        raise DocumentError("facts must be a mapping of names to values", place=Place(path))
    return facts
