"""
The node's entries in `CCM_NODES`: a heartbeat, a small record, and all its facts.

The heartbeat expires automatically; record and facts are written only if they have changed. If another heartbeat was written
between two of ours, there is a second agent with our name (ADR 22).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from ccm_agent.facts.gather import lasting
from ccm_agent.model.errors import BusError, RevisionError
from ccm_agent.model.formats.json_text import encode_message
from ccm_agent.model.formats.untrusted_json import Moment
from ccm_agent.model.ports import Clock, KeyValue
from ccm_agent.model.wire import FactsRecord, NodeRecord, Presence

log = logging.getLogger(__name__)

BUCKET = "CCM_NODES"

CONFLICTS = 2
"""
The number of consecutive overwritten heartbeats that indicate a conflict. A single one may be ours, if its acknowledgement was
lost.
"""

PEACEFUL = 2
"""The number of consecutive intact heartbeats that end a conflict. Heartbeats of two agents do not always collide."""

INVENTORY_WRITES = 500.0
"""
The writes per second to `CCM_NODES` above which nodes send fewer heartbeats: those of 30,000 nodes with one heartbeat a minute.
"""

LONGEST_STRETCH = 10.0
"""The largest multiple of the configured interval, regardless of the number that a broker reports."""

FASTEST_STRETCH = 2.0
"""The largest factor of growth from one heartbeat to the next."""

RECORD_AGE_S = 3600.0
FACTS_AGE_S = 86_400.0
"""Unchanged entries are written again after this time, because an operator may have removed a node that is alive."""

WARNINGS = ("identity", "policy", "assignments")
"""The kinds of warnings in a record's `conflict`, the most severe first."""

FACTS_LIMIT_BYTES = 900_000
"""A broker accepts messages of up to 1 MiB. Larger facts are published without their largest families."""


class LastRun(Struct, frozen=True):
    """The newest ended run, as recorded by an earlier process of this node."""

    node: str = ""
    last_run: str = ""
    last_state: str = ""
    last_time: Moment | None = None


class NodePresence:
    """
    The three keys of one node.

    Attributes:
        is_duplicate: Whether another agent with this name is alive.
        is_requested: Set when a heartbeat should be sent now.
        record: This node's record.
        scopes: The scopes of requests to this node.
        stretch: The multiple of the configured interval at which this node sends heartbeats; 1 unless the fleet is very large.
    """

    def __init__(self, bucket: KeyValue, record: NodeRecord, clock: Clock, *, ttl_s: int) -> None:
        """
        Args:
            bucket: `CCM_NODES`.
            record: This node's record; the services of the agent change its fields.
            clock: Returns the current time.
            ttl_s: How long a presence lasts after a heartbeat, in seconds, before `stretch` is applied.
        """
        self.record = record
        self.scopes: list[str] = []
        self.is_duplicate = False
        self.is_requested = asyncio.Event()
        self._bucket = bucket
        self._clock = clock
        self.stretch = self._next_stretch = 1.0
        self._shortest_ttl_s = ttl_s
        self._warnings: dict[str, str] = {}
        self._conflicts = 0
        self._peaceful = 0
        self._revision = 0
        self._beat_at = 0.0
        self._written_record = b""
        self._written_facts = ""
        self._record_at = self._facts_at = clock.monotonic()
        self._are_facts_doubtful = False

    def ended(self, run: str, state: str, time: datetime | None = None) -> None:
        """
        Record that the newest run has ended. With `time`, it ended before this process started, and a newer run in the record
        is kept.
        """
        record = self.record
        if time is None or record.last_time is None or record.last_time <= time:
            record.last_run, record.last_state, record.last_time = run, state, time or self._clock.now()

    def recall(self, left: Mapping[str, Any]) -> None:
        """Read the last run from the status of an earlier process; invalid values are ignored."""
        try:
            found = msgspec.convert(left, LastRun)
        except msgspec.ValidationError:
            return
        if found.node == self.record.node and found.last_run and not self.record.last_run:
            record = self.record
            record.last_run, record.last_state, record.last_time = (
                found.last_run,
                found.last_state,
                found.last_time,
            )

    def set_warning(self, about: str, sentence: str) -> None:
        """Set the warning about this node's identity, policy or assignments; "" removes it."""
        self._warnings[about] = sentence
        self.record.conflict = "; ".join(self._warnings[one] for one in WARNINGS if self._warnings.get(one))

    def request_heartbeat(self) -> None:
        """Request a heartbeat, because the record has a change that should not wait."""
        self.is_requested.set()

    async def beat(self, run: str) -> bool:
        """
        Send a heartbeat.

        Args:
            run: The current run; "" if there is none.

        Returns:
            Whether `is_duplicate` has changed.

        Raises:
            BusError: The broker is unavailable, or does not allow the write.
        """
        record = self.record
        now = self._clock.now()
        waited, self.stretch = self.stretch, self._next_stretch
        presence = Presence(
            node=record.node,
            machine=record.machine,
            started=record.started,
            time=now,
            run=run,
            ttl_s=self._ttl_s,
        )
        key, body = f"presence.{record.node}", encode_message(presence)
        age_s = self._clock.monotonic() - self._beat_at
        if not self._revision or age_s >= self._ttl_s:
            # There is nothing to compare with: the stored heartbeat may be from before our restart, or has expired.
            await self._put(key, body)
            return False
        before = self._revision
        try:
            self._revision = await self._bucket.update(key, body, before, ttl_s=self._ttl_s)
        except RevisionError:
            if not self._conflicts:
                # An operator removed a node that is alive, or a second agent wrote its own record, so the other keys may be
                # wrong.
                self.reconnected()
            self._conflicts, self._peaceful = self._conflicts + 1, 0
            await self._put(key, body)
        except BusError:
            # It may have been stored nevertheless, and would then look like that of another agent.
            self._revision = 0
            raise
        else:
            self._peaceful += 1
            if self._peaceful >= PEACEFUL or not self.is_duplicate:
                self._conflicts = 0
            # the time between a requested heartbeat and the one before is too short to measure the writes of a fleet
            if age_s > self._shortest_ttl_s / 6:
                self._next_stretch = next_stretch(waited, (self._revision - before) / age_s)
        self._beat_at = self._clock.monotonic()
        was, self.is_duplicate = self.is_duplicate, self._conflicts >= CONFLICTS
        return was != self.is_duplicate

    def reconnected(self) -> None:
        """Treat the stored keys as unknown: the broker may have lost them, or may be a different one."""
        self._written_record = b""
        self._are_facts_doubtful = bool(self._written_facts)

    async def write_record(self) -> bool:
        """Write the node's record if it has changed, or was not written for an hour. Returns whether it was written."""
        body = encode_message(self.record)
        now = self._clock.monotonic()
        if body == self._written_record and now - self._record_at < RECORD_AGE_S:
            return False
        await self._bucket.put(f"node.{self.record.node}", body)
        self._written_record, self._record_at = body, now
        return True

    async def write_facts(self, facts: Mapping[str, Any], *, is_regular: bool = False) -> bool:
        """
        Write all facts if they have changed, ignoring volatile facts. Returns whether they were written.

        Args:
            facts: All facts.
            is_regular: Whether this is a regular heartbeat. The nodes of a fleet send these at different times, so facts that
                the broker may have lost and day-old facts are also written.
        """
        digest = facts_digest(facts)
        now = self._clock.monotonic()
        is_due = is_regular and (self._are_facts_doubtful or now - self._facts_at > FACTS_AGE_S)
        if digest == self._written_facts and not is_due:
            return False
        await self._bucket.put(f"facts.{self.record.node}", self._facts_body(facts, digest))
        self._written_facts, self._facts_at = digest, now
        self._are_facts_doubtful = False
        return True

    def _facts_body(self, facts: Mapping[str, Any], digest: str) -> bytes:
        record = FactsRecord(node=self.record.node, time=self._clock.now(), digest=digest, facts=dict(facts))
        body = encode_message(record)
        while len(body) > FACTS_LIMIT_BYTES and record.facts:
            largest = max(record.facts, key=lambda family: len(encode_message(record.facts[family])))
            log.warning("facts are too large to be published completely", extra={"left_out": largest})
            del record.facts[largest]
            body = encode_message(record)
        return body

    async def remove_presence(self) -> None:
        """Remove the heartbeat, so that controllers see immediately that this node goes offline."""
        await self._bucket.delete(f"presence.{self.record.node}")

    @property
    def _ttl_s(self) -> int:
        return int(self._shortest_ttl_s * self.stretch)

    async def _put(self, key: str, body: bytes) -> None:
        self._revision = 0
        self._revision = await self._bucket.put(key, body, ttl_s=self._ttl_s)
        self._beat_at = self._clock.monotonic()


def next_stretch(stretch: float, writes: float) -> float:
    """
    Return the multiple of the configured interval for the next heartbeat.

    All nodes do the same, so together they write about `INVENTORY_WRITES` per second, regardless of their number.

    Args:
        stretch: The multiple during the measurement.
        writes: The measured writes per second to `CCM_NODES`, by all nodes.
    """
    wanted = stretch * writes / INVENTORY_WRITES
    return max(1.0, min(wanted, stretch * FASTEST_STRETCH, LONGEST_STRETCH))


def facts_digest(facts: Mapping[str, Any]) -> str:
    """Return a digest of the facts without those that change constantly, such as free memory."""
    return hashlib.sha256(encode_message(lasting(facts), order="deterministic")).hexdigest()
