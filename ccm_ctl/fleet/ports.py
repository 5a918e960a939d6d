"""The ports of the controller, combined as one fleet."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from ccm_agent.bus.signatures.signed_bucket import SignableBucket
from ccm_agent.model.ports import KeyHistory, KeyReader, KeyValue
from ccm_agent.templates.broker_functions import BrokerClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from ccm_agent.bus.disconnects import ConnectionEnd
    from ccm_agent.bus.signatures.signatory import Signatory
    from ccm_agent.bus.signatures.trust import Trust
    from ccm_agent.bus.signatures.verified import Base
    from ccm_agent.model.ports import BrokerConnection, Clock, Events, Objects
    from ccm_agent.registration.entries import StreamEntry
    from ccm_ctl.fleet.data.node_data import OperatorData
    from ccm_ctl.fleet.nodes.sites import NatsSiteReader
    from ccm_ctl.fleet.nodes.stored_nodes import StoredNodes
    from ccm_ctl.fleet.rollout.scheduled import DueRollout
    from ccm_ctl.fleet.schedules.stored_schedule import Schedule
    from ccm_ctl.fleet.trust.seen_signers import SeenSigners

log = logging.getLogger(__name__)


class Bucket(KeyValue, KeyHistory, Protocol):
    """A bucket with the operations of an operator: keys, history and changes."""


class RequestSender(Protocol):
    """Sends requests to agents."""

    async def publish(
        self, subject: str, body: bytes, headers: Mapping[str, str] | None = None, *, base: Sequence[Base]
    ) -> None:
        """
        Sign and send a request that was made from `base`.

        Raises:
            BusUnavailableError: The broker cannot be reached.
            BusDeniedError: The broker refuses it.
        """
        ...


class DocumentBucket(KeyReader, KeyHistory, Protocol):
    """A bucket with documents for agents. Each write specifies its base."""

    async def write(self, key: str, value: bytes, revision: int, base: Sequence[Base]) -> int:
        """Sign and write a key, only if its newest revision is this one (0: it must be absent). See `KeyValue.update`."""
        ...

    async def remove(self, key: str, base: Sequence[Base], *, number: int = 0, note: str = "") -> None:
        """Sign and write a deletion. See `KeyValue.delete`."""
        ...


class ServiceRegistry(BrokerClient, Protocol):
    """The registered services, as stored. For decisions, use `node_state.VerifiedServices`."""

    async def matching(self, cluster: str, protocol: str, service: str, address: str) -> list[StreamEntry]:
        """Return the stored entries that match a query. Raises the same errors as `stored`."""
        ...

    async def stored(self) -> list[StreamEntry]:
        """
        Return the stored entries, including marks for expired and removed services.

        Raises:
            BusError: The registry cannot be read.
        """
        ...


def _log_warning(text: str) -> None:
    log.warning(text)


class Fleet(Struct, frozen=True, kw_only=True):
    """
    All parts of a fleet that the controller uses over one connection.

    Attributes:
        operator: The operator's name in requests and records.
        link: The connection.
        requests, events: Sends requests to agents, and reads their events.
        nodes, facts, data, assignments, runs: The buckets CCM_NODES, CCM_FACTS, CCM_DATA, CCM_ASSIGNMENTS and CCM_RUNS.
        manifests: Bundles, by digest.
        clock: The clock.
        signatory: Signs for the operator. None: the credentials contain no key.
        trust: The trust block of the operator's credentials. None: they have none.
        signers: The bucket CCM_TRUST. None: it is not read.
        joins: The bucket CCM_JOINS. None: it is not read.
        schedules: Reads the schedules, and adds the subjects of unreadable ones to a list. Raises BusSetupError if the broker
            has no schedules. None: they cannot be read.
        due_rollouts: Reads the due starts of scheduled rollouts. Raises BusError. None: they cannot be read.
        services: The registered services, also for `registrations()` in a gate. None: they cannot be read.
        secrets: The bucket CCM_SECRETS. None: it is not read.
        slots: The bucket CCM_SLOTS. None: it is not read.
        seen: The signers lists that this operator has seen on this machine. None: they are not remembered.
        confirm: Confirms that the signers list is the newest one, if these credentials permit it. Raises BusError. None: it is
            never confirmed.
        warn: Warns the operator about data that are ignored in a decision.
        all_nodes: Reads the records and presences of all nodes, possibly from a cache. None: `nodes` is read.
        sites: The sites with brokers of their own. None: they are not read.
        disconnects: Calls a function when a connection of a node has ended, until the returned function is called
            (`bus.disconnects`). None: it never calls one.
    """

    operator: str
    link: BrokerConnection
    requests: RequestSender
    events: Events
    nodes: Bucket
    facts: DocumentBucket
    data: OperatorData
    assignments: DocumentBucket
    runs: SignableBucket
    manifests: Objects
    clock: Clock
    signatory: Signatory | None = None
    trust: Trust | None = None
    signers: DocumentBucket | None = None
    joins: DocumentBucket | None = None
    services: ServiceRegistry | None = None
    schedules: Callable[[list[str]], Awaitable[list[Schedule]]] | None = None
    due_rollouts: Callable[[], Awaitable[list[DueRollout]]] | None = None
    slots: Bucket | None = None
    secrets: DocumentBucket | None = None
    seen: SeenSigners | None = None
    confirm: Callable[[], Awaitable[object]] | None = None
    warn: Callable[[str], None] = _log_warning
    all_nodes: Callable[[], Awaitable[StoredNodes]] | None = None
    sites: NatsSiteReader | None = None
    disconnects: (
        Callable[[Callable[[ConnectionEnd], None]], Awaitable[Callable[[], Awaitable[None]]]] | None
    ) = None


class LocalClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """See `Clock.now`."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        await asyncio.sleep(seconds)
