"""What the controller asks of the bus: the project's ports, put together as one fleet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Protocol

from msgspec import Struct

from ccm_agent.bus.signatory import Signatory
from ccm_agent.bus.trust import Trust
from ccm_agent.model.ports import (
    BrokerConnection,
    Clock,
    Events,
    KeyHistory,
    KeyValue,
    Objects,
    Requests,
    SignedStore,
)
from ccm_agent.templates.broker_functions import BrokerClient
from ccm_ctl.fleet.stored_schedule import Schedule


class Bucket(KeyValue, KeyHistory, Protocol):
    """A bucket as an operator sees it: keys, history and changes."""


class IndexBucket(Bucket, Protocol):
    """A bucket whose past can be removed."""

    async def purge_before(self, key: str, revision: int) -> None:
        """
        Remove what is stored of a key before a revision.

        Raises:
            BusDeniedError: Only operators with `--admin` may.
        """
        ...


class TextBucket(Bucket, SignedStore, Protocol):
    """A bucket that keeps documents in slots."""


class DataBucket(Bucket, Protocol):
    """Hiera data. Documents that one node alone may read look like all others."""

    async def is_kept_apart(self, key: str) -> bool:
        """
        Whether a document that is written now is stored where its node alone can read it.

        It is not when its key names no node, and when the node says that its version or credentials do not let it read there.
        """
        ...

    async def exposed(self, prefix: str = "") -> dict[str, int]:
        """
        How many revisions of each document under `node/NAME` every node can read; only those with any.

        Args:
            prefix: Only of keys that begin so.
        """
        ...

    async def protect(self, key: str) -> None:
        """
        Move all revisions of a document to where its node alone can read them, and remove them from where all nodes can.

        The document keeps its text, its author and its number; what assignments pinned stays readable.

        Raises:
            BusDeniedError: Only operators with `--admin` may.
            RevisionError: The document was written meanwhile.
        """
        ...


class Fleet(Struct, frozen=True, kw_only=True):
    """
    Everything that the controller reaches over one connection.

    Attributes:
        operator: Who asks, as requests and records say it.
        link: The connection.
        requests, events: Requests to agents, and what they say.
        nodes, facts, data, assignments, runs: The buckets CCM_NODES, CCM_FACTS, CCM_DATA, CCM_ASSIGNMENTS and CCM_RUNS.
        manifests: Bundles by digest.
        clock: What time it is.
        signatory: Signs in the operator's name; None where the credentials hold no key.
        trust: The trust block of the operator's credentials; None: it has none.
        signers: The bucket CCM_TRUST; None: it is not read.
        schedules: Reads the schedules; None: they cannot be read. Raises BusSetupError where the broker has none.
        services: Answers `registrations()` in a gate; None: it cannot be asked.
        slots: The bucket CCM_SLOTS; None: it is not read.
    """

    operator: str
    link: BrokerConnection
    requests: Requests
    events: Events
    nodes: Bucket
    facts: Bucket
    data: DataBucket
    assignments: Bucket
    runs: Bucket
    manifests: Objects
    clock: Clock
    signatory: Signatory | None = None
    trust: Trust | None = None
    signers: Bucket | None = None
    services: BrokerClient | None = None
    schedules: Callable[[], Awaitable[list[Schedule]]] | None = None
    slots: Bucket | None = None


class LocalClock:
    """This machine's time."""

    def now(self) -> datetime:
        """See `Clock.now`."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        await asyncio.sleep(seconds)
