"""
Contexts, connection and wiring: the module that assembles the parts of the controller.

A command receives an `Application` with the connection options, the terminal, and `run`. `run` connects, does the command's
work and returns its exit code. Before that, nothing is connected and no slow module is imported.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.clikit.interrupts import interruptible
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.clikit.text import plural
from ccm_agent.model.errors import NotFoundError, UsageError
from ccm_agent.model.exits import Exit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from ccm_agent.bus.access.audit_writer import AuditWriter
    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.connection.settings import BusSettings
    from ccm_agent.bus.disconnects import ConnectionEnd
    from ccm_agent.bus.signatures.signatory import Signatory
    from ccm_agent.bus.signatures.trust import Trust
    from ccm_agent.model.ports import RenderWorker
    from ccm_ctl.fleet.keys.signers_timestamp import RenewalState
    from ccm_ctl.fleet.nodes.stored_nodes import StoredNodes
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.rollout.scheduled import DueRollout
    from ccm_ctl.fleet.schedules.stored_schedule import Schedule


PAUSE_S = 1.0
"""The maximum pause between attempts to reconnect to a broker, so that pages of the dashboard are current again within 3 s."""


class ConnectionOptions(Struct, frozen=True, kw_only=True):
    """
    The connection options of the command line. The environment and the selected context supply the others.

    Attributes:
        context: The name of a context of the `nats` program.
        server: URLs, separated by commas.
        creds, nkey: Files with credentials.
        user, password: Credentials that replace the files.
        ca, cert, key: Files for TLS.
        operator: The operator's name in requests.
        insecure: Whether to accept a broker without credentials or TLS at any address.
        no_cache: Whether to read all nodes from the broker, even those that an earlier command has read.
    """

    context: str = ""
    server: str = ""
    creds: str = ""
    nkey: str = ""
    user: str = ""
    password: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""
    operator: str = ""
    insecure: bool = False
    no_cache: bool = False


class Broker(Struct, frozen=True):
    """
    A connection and the objects that use it.

    Attributes:
        fleet: The fleet on this broker.
        connection: The connection; None in tests of commands without a broker.
        audit: Writes the operator's audit trail; None if these credentials do not write one.
    """

    fleet: Fleet
    connection: Connection | None = None
    audit: AuditWriter | None = None


class Application:
    """
    The environment of a command.

    Attributes:
        terminal: The terminal for output.
        reach: The connection options.
        debug: Whether to show errors with their traceback.
        interrupt_message: Printed after Ctrl-C, such as how to follow the run again; "" for none.
        goes_on_for_ever: Whether the command runs until Ctrl-C, which is then a success.
    """

    def __init__(
        self,
        terminal: Terminal,
        environ: Mapping[str, str],
        connect: Callable[[BusSettings], AbstractAsyncContextManager[Broker]] | None = None,
    ) -> None:
        self.terminal = terminal
        self.environ = environ
        self.reach = ConnectionOptions()
        self.debug = False
        self.interrupt_message = ""
        self.goes_on_for_ever = False
        self._connect = connect or connected

    def settings(self) -> BusSettings:
        """
        Return the connection settings: from the command line, then the environment, then the selected context.

        Raises:
            CcmError: A named context does not exist or is not valid, or an address is not valid.
        """
        return bus_settings(self.reach, self.environ)

    @contextlib.asynccontextmanager
    async def broker(self) -> AsyncIterator[Broker]:
        """Connect to the broker within the context. Raises the errors of `settings`, and BusError if it is unreachable."""
        async with self._connect(await asyncio.to_thread(self.settings)) as broker:
            yield self._warned(broker)

    def render_worker(self) -> RenderWorker:
        """Return a process that renders users' templates. It starts with the first template. The caller must close it."""
        from ccm_agent.system.render_process import RenderLimits, RenderProcess

        # users wait for this process, so its limits are lower than those of an agent
        limits = RenderLimits(cpu_s=3, grace_s=1, memory_bytes=128 << 20)
        return RenderProcess(limits, wall_s=8.0)

    def run(self, work: Callable[[Fleet], Coroutine[Any, Any, Exit]]) -> Exit:
        """Connect, do the work, and return its exit code. Errors are raised. An interruption is reported, and the code is 1."""

        async def with_fleet(broker: Broker) -> Exit:
            return await work(broker.fleet)

        return self.run_on_broker(with_fleet)

    def run_on_broker(self, work: Callable[[Broker], Coroutine[Any, Any, Exit]]) -> Exit:
        """See `run`. The work receives the broker instead of the fleet."""
        settings = self.settings()

        async def connect_and_work() -> Exit:
            async with self._connect(settings) as broker:
                done = await work(self._warned(broker))
            self._report_lost_entries(broker.audit)
            return done

        return self.run_alone(connect_and_work)

    def _warned(self, broker: Broker) -> Broker:
        """Return the broker with a fleet that prints warnings on the terminal. With `--no-cache`, it has no cache of nodes."""
        fleet = replace(broker.fleet, warn=self.terminal.warn)
        return replace(broker, fleet=replace(fleet, all_nodes=None) if self.reach.no_cache else fleet)

    def _report_lost_entries(self, audit: AuditWriter | None) -> None:
        if audit is not None and audit.lost:
            self.terminal.note(
                f"{plural(audit.lost, 'signed action')} without an entry in the audit trail: {audit.trouble}"
            )

    def run_alone(self, work: Callable[[], Coroutine[Any, Any, Exit]]) -> Exit:
        """Run work that connects to the broker itself. Errors and interruptions are handled as in `run`."""
        _log(debug=self.debug)

        async def main() -> Exit:
            with interruptible():
                return await work()

        try:
            return asyncio.run(main())
        except (asyncio.CancelledError, KeyboardInterrupt):
            self.terminal.break_off()
            if self.goes_on_for_ever:
                return Exit.OK
            self.terminal.note(self.interrupt_message or "interrupted")
            return Exit.COULD_NOT_RUN


def bus_settings(reach: ConnectionOptions, environ: Mapping[str, str]) -> BusSettings:
    """See `Application.settings`."""
    from ccm_agent.bus.access.credentials import name_in_credentials
    from ccm_agent.bus.connection.choose_broker import choose_broker
    from ccm_agent.bus.connection.settings import replaced
    from ccm_agent.model.secret import Secret

    said = reach.operator or environ.get("CCM_OPERATOR", "")
    operator = said or next(filter(None, logins(environ)))
    given: dict[str, Any] = {
        name: value
        for name in ("creds", "nkey", "user", "ca", "cert", "key")
        if (value := getattr(reach, name))
    }
    if reach.password or reach.user:
        given["password"] = Secret(reach.password or environ.get("NATS_PASSWORD", ""))
    settings = choose_broker(
        environ,
        server=reach.server,
        context=reach.context,
        identity=operator,
        program="ccmctl",
        operator_flag=_operator_flag,
        **given,
    )
    credentials = _read_credentials(settings.creds)
    if said:
        _check_operator(said, settings.creds, credentials)
    elif certified := name_in_credentials(credentials):
        # For these credentials, the broker delivers replies only to inboxes under the certified name.
        settings = replaced(settings, identity=certified)
    # An operator is waiting, and operators are few, so the pause does not grow after failures.
    settings = replaced(
        settings, pause_s=PAUSE_S, longest_pause_s=PAUSE_S, longest_connect_s=settings.connect_s
    )
    return replaced(settings, insecure=True) if reach.insecure else settings


@contextlib.asynccontextmanager
async def connected(settings: BusSettings) -> AsyncIterator[Broker]:
    """Yield a connection to a broker and the fleet on it; BusError if the connection fails."""
    from ccm_agent.bus.connection.broker_errors import NoRespondersError
    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.streams import explain_no_responders
    from ccm_ctl.fleet.keys.signers_timestamp import renewing

    signatory, trust, audit = await asyncio.to_thread(_load_keys, settings)
    async with Connection(settings) as connection:
        await connection.connect_now()
        fleet = fleet_over(connection, settings.identity, signatory, trust)
        fleet = replace(fleet, all_nodes=_cached_nodes(settings, fleet))
        try:
            trail = audit.writing(connection) if audit is not None else contextlib.nullcontext()
            async with trail, renewing(fleet, connection):
                yield Broker(fleet, connection, audit)
        except NoRespondersError as err:
            raise await explain_no_responders(connection, err) from err


def fleet_over(
    connection: Connection, operator: str, signatory: Signatory | None, trust: Trust | None
) -> Fleet:
    """Return the fleet on a connection. See `Fleet` for `signatory` and `trust`."""
    from ccm_agent.bus.events import NatsEvents
    from ccm_agent.bus.kv import NatsKeyValue
    from ccm_agent.bus.objects import NatsObjects
    from ccm_agent.bus.requests import NatsRequests
    from ccm_agent.bus.signatures.signed_bucket import SignedBucket
    from ccm_agent.bus.signatures.trust import TRUST_BUCKET
    from ccm_agent.model.records.join import JOINS_BUCKET
    from ccm_ctl.fleet.data.node_data import OperatorData
    from ccm_ctl.fleet.keys.signers_timestamp import renew
    from ccm_ctl.fleet.nodes.registered_services import RegisteredServices
    from ccm_ctl.fleet.nodes.sites import NatsSiteReader
    from ccm_ctl.fleet.ports import Fleet, LocalClock
    from ccm_ctl.fleet.trust.seen_signers import SeenSigners

    # only a few commands read schedules, and the import takes a tenth of the start time of a command
    async def schedules(left_out: list[str]) -> list[Schedule]:
        from ccm_ctl.fleet.schedules.schedules import read_schedules

        return await read_schedules(connection, fleet, left_out)

    async def confirm() -> RenewalState:
        return await renew(fleet, connection)

    async def due_rollouts() -> list[DueRollout]:
        from ccm_ctl.fleet.schedules.schedules import read_due_rollouts

        return await read_due_rollouts(connection)

    async def disconnects(on_disconnect: Callable[[ConnectionEnd], None]) -> Callable[[], Awaitable[None]]:
        from ccm_agent.bus.disconnects import follow_disconnects

        return await follow_disconnects(connection, on_disconnect)

    def signed(bucket: str) -> SignedBucket:
        return SignedBucket(NatsKeyValue(connection, bucket), bucket, signatory)

    nodes = NatsKeyValue(connection, "CCM_NODES")
    data, node_data = NatsKeyValue(connection, "CCM_DATA"), NatsKeyValue(connection, "CCM_NODE_DATA")
    fleet = Fleet(
        operator=operator,
        link=connection,
        requests=NatsRequests(connection, signatory),
        events=NatsEvents(connection),
        nodes=nodes,
        facts=signed("CCM_FACTS"),
        data=OperatorData(data, node_data, nodes, signatory),
        assignments=signed("CCM_ASSIGNMENTS"),
        runs=NatsKeyValue(connection, "CCM_RUNS"),
        manifests=NatsObjects(connection, "CCM_MANIFESTS"),
        clock=LocalClock(),
        signatory=signatory,
        trust=trust,
        signers=signed(TRUST_BUCKET),
        joins=signed(JOINS_BUCKET),
        services=RegisteredServices(connection),
        sites=NatsSiteReader(connection),
        disconnects=disconnects,
        schedules=schedules,
        due_rollouts=due_rollouts,
        slots=NatsKeyValue(connection, "CCM_SLOTS"),
        secrets=signed("CCM_SECRETS"),
        seen=SeenSigners(),
        confirm=confirm,
    )
    return fleet


def _cached_nodes(settings: BusSettings, fleet: Fleet) -> Callable[[], Awaitable[StoredNodes]]:
    """Return a function that reads all nodes, with a cache file for this broker and these credentials."""

    async def read() -> StoredNodes:
        from ccm_agent.bus.kv import NatsKeyValue
        from ccm_ctl.fleet.nodes.cached_nodes import CachedNodes
        from ccm_ctl.fleet.nodes.inventory_file import InventoryFile, cache_folder
        from ccm_ctl.fleet.nodes.stored_nodes import read_stored

        folder, bucket = cache_folder(os.environ), fleet.nodes
        if folder is None or settings.token is not None or not isinstance(bucket, NatsKeyValue):
            return await read_stored(bucket)
        key = fleet.signatory.public_key if fleet.signatory is not None else ""
        names = (*settings.servers, settings.creds, settings.nkey, settings.user, settings.identity, key)
        return await CachedNodes(bucket, InventoryFile(folder, names)).read()

    return read


def _load_keys(settings: BusSettings) -> tuple[Signatory | None, Trust | None, AuditWriter | None]:
    """
    Return the signing key, the trust settings of the credentials, and the writer that records each signature in the audit trail.

    A file that exists but cannot be read is ignored here, because connecting reports the error.
    """
    from pathlib import Path

    from ccm_agent.bus.access.audit import operator_subject
    from ccm_agent.bus.access.audit_entry import AuditedKey
    from ccm_agent.bus.access.audit_writer import AuditWriter
    from ccm_agent.bus.access.credentials import forbids_publishing
    from ccm_agent.bus.signatures.signatory import Signatory
    from ccm_agent.bus.signatures.signing import signing_key_in_credentials
    from ccm_agent.bus.signatures.trust import trust_in_credentials
    from ccm_ctl.fleet.ports import LocalClock
    from ccm_ctl.fleet.trust.newest_signers import keys_of

    path = settings.creds or settings.nkey
    if path and not Path(path).exists():
        raise NotFoundError(
            f"{path}: the credentials file does not exist; check --creds, CCM_CREDS and the NATS context"
        )
    text = _read_credentials(path)
    key, trust, clock = signing_key_in_credentials(text), trust_in_credentials(text, path), LocalClock()

    def now_ms() -> int:
        return int(clock.now().timestamp() * 1000)

    if key is None:
        return None, trust, None
    name = settings.identity
    if trust is None or forbids_publishing(text, operator_subject(name)):
        return Signatory(key, now_ms), trust, None
    audit = AuditWriter(name, key, now_ms, keys_of(trust, name))
    return Signatory(AuditedKey(key, audit.take), now_ms), trust, audit


def _log(*, debug: bool) -> None:
    """Configure logging. Error messages and notes already contain the useful part of the bus log. `--debug` shows all of it."""
    logging.basicConfig(
        level=logging.DEBUG if debug else logging.CRITICAL,
        format="%(relativeCreated)6d ms %(levelname)s %(name)s: %(message)s",
        force=True,
    )


def _operator_flag(subject: str) -> str:
    from ccm_agent.bus.access.permissions import operator_flag_for

    return operator_flag_for(subject)


def _read_credentials(creds: str) -> str:
    """Return the text of a credentials file; "" if there is none or it cannot be read. Connecting reports the error."""
    from pathlib import Path

    try:
        return Path(creds).read_text(encoding="utf-8") if creds else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _check_operator(operator: str, creds: str, credentials: str) -> None:
    """
    Refuse an operator name for which the broker would not deliver replies to these credentials.

    Raises:
        UsageError: The credentials are limited to the inbox of another operator.
    """
    from ccm_agent.bus.access.credentials import name_in_credentials, only_inboxes_in_credentials
    from ccm_agent.bus.subjects import inbox_prefix

    inboxes = only_inboxes_in_credentials(credentials)
    if inboxes and not any(
        subject.startswith((f"{inbox_prefix(operator)}.", "_INBOX.", "_INBOX_*")) for subject in inboxes
    ):
        name = name_in_credentials(credentials)
        raise UsageError(
            f"{creds}: these credentials belong to `{name}`, but the operator is set to `{operator}`; "
            "remove --operator and CCM_OPERATOR, or use the credentials of that operator"
        )


def logins(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield possible names of the current user, in order of preference. Some may be empty. The last one is never empty."""
    import pwd

    yield from (environ.get(one, "") for one in ("SUDO_USER", "LOGNAME", "USER"))
    with contextlib.suppress(KeyError):  # in a container, the user ID may have no name
        yield pwd.getpwuid(os.getuid()).pw_name
    yield f"uid-{os.getuid()}"
