"""What the controller asks of the bus: the project's ports, put together as one fleet."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol

from msgspec import Struct

from ccm_agent.bus.signatory import Signatory
from ccm_agent.bus.trust import Trust
from ccm_agent.model.ports import Clock, Events, KeyHistory, KeyValue, Link, Objects, Requests


class Bucket(KeyValue, KeyHistory, Protocol):
    """A bucket as an operator sees it: keys, history and changes."""


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
    """

    operator: str
    link: Link
    requests: Requests
    events: Events
    nodes: Bucket
    facts: Bucket
    data: Bucket
    assignments: Bucket
    runs: Bucket
    manifests: Objects
    clock: Clock
    signatory: Signatory | None = None
    trust: Trust | None = None
    signers: Bucket | None = None


class SystemClock:
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
