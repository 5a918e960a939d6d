"""
What `CCM_NODES` holds about this node, and when it is written: a heartbeat, a small record, and all its facts.

The heartbeat expires by itself; record and facts are written only when they changed. A heartbeat that was overwritten between two
of ours means a second agent with our name (ADR 22).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ccm_agent.agent.events.publisher import AgentEventPublisher
from ccm_agent.agent.process.config import Settings
from ccm_agent.agent.requests.request_log import RequestLog
from ccm_agent.agent.requests.subscriptions import Subscriptions
from ccm_agent.facts.gather import lasting
from ccm_agent.model.errors import BusError, RevisionError
from ccm_agent.model.json_text import encode_told
from ccm_agent.model.ports import BrokerConnection, Clock, KeyValue
from ccm_agent.model.untrusted_json import Moment
from ccm_agent.model.wire import DUPLICATE_IDENTITY, FactsRecord, NodeRecord, Presence

log = logging.getLogger(__name__)

BUCKET = "CCM_NODES"

CONFLICTS = 2
"""So many signs of life in a row that somebody wrote over: one alone may be our own, whose acknowledgement was lost."""

PEACEFUL = 2
"""So many in a row that nobody wrote over end the suspicion: two agents' beats drift past each other now and then."""

RECORD_AGE_S = 3600.0
FACTS_AGE_S = 86_400.0
"""What did not change is written again after this time: somebody may have removed a node that lives."""

COMPLAINTS = ("identity", "policy", "assignments")
"""What a record's `conflict` may be about, the worse first."""

FACTS_LIMIT_BYTES = 900_000
"""A broker takes messages of 1 MiB; facts above this are told without their largest families."""


class LastRun(Struct, frozen=True):
    """What an earlier process of this node left: the newest run that had ended."""

    node: str = ""
    last_run: str = ""
    last_state: str = ""
    last_time: Moment | None = None


class NodePresence:
    """
    The three keys of one node.

    Attributes:
        is_duplicate: Another agent of this name lives.
    """

    def __init__(self, bucket: KeyValue, record: NodeRecord, clock: Clock, *, ttl_s: int) -> None:
        """
        Nothing is written yet.

        Args:
            bucket: `CCM_NODES`.
            record: This node's record; its fields are changed by whoever knows better.
            clock: What time it is.
            ttl_s: How long a sign of life lasts.
        """
        self.record = record
        self.is_duplicate = False
        self._bucket = bucket
        self._clock = clock
        self._ttl_s = ttl_s
        self._complaints: dict[str, str] = {}
        self._conflicts = 0
        self._peaceful = 0
        self._revision = 0
        self._beat_at = 0.0
        self._written_record = b""
        self._written_facts = ""
        self._record_at = self._facts_at = clock.monotonic()
        self._are_facts_doubtful = False

    def ended(self, run: str, state: str) -> None:
        """A run has ended, the newest one of this node."""
        record = self.record
        record.last_run, record.last_state, record.last_time = run, state, self._clock.now()

    def recall(self, left: Mapping[str, Any]) -> None:
        """Take the last run from the status that an earlier process left; what is not one of this node's says nothing."""
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

    def complain(self, about: str, sentence: str) -> None:
        """Something is wrong with this node's identity or assignments; "" says that it is not any more."""
        self._complaints[about] = sentence
        self.record.conflict = "; ".join(
            self._complaints[one] for one in COMPLAINTS if self._complaints.get(one)
        )

    async def beat(self, run: str) -> bool:
        """
        Give a sign of life.

        Args:
            run: The run in hand; "" when there is none.

        Returns:
            Whether it became known, or ceased to be so, that another agent of this name lives.

        Raises:
            BusError: The broker is away, or does not let us.
        """
        record = self.record
        now = self._clock.now()
        presence = Presence(
            node=record.node, machine=record.machine, started=record.started, time=now, run=run
        )
        key, body = f"presence.{record.node}", encode_told(presence)
        age_s = self._clock.monotonic() - self._beat_at
        if not self._revision or age_s >= self._ttl_s:
            # nothing to compare with: what stands there may be from before our restart, or has expired
            await self._put(key, body)
            return False
        try:
            self._revision = await self._bucket.update(key, body, self._revision, ttl_s=self._ttl_s)
        except RevisionError:
            if not self._conflicts:
                # somebody removed a node that lives, or a twin wrote its own record: what else stands there is doubtful
                self.reconnected()
            self._conflicts, self._peaceful = self._conflicts + 1, 0
            await self._put(key, body)
        except BusError:
            # it may have been stored all the same, and would then look like somebody else's
            self._revision = 0
            raise
        else:
            self._peaceful += 1
            if self._peaceful >= PEACEFUL or not self.is_duplicate:
                self._conflicts = 0
        self._beat_at = self._clock.monotonic()
        was, self.is_duplicate = self.is_duplicate, self._conflicts >= CONFLICTS
        return was != self.is_duplicate

    def reconnected(self) -> None:
        """The broker may have lost what it held, or be another one: what stands there is doubtful."""
        self._written_record = b""
        self._are_facts_doubtful = bool(self._written_facts)

    async def write_record(self) -> bool:
        """Write the node's record if it changed, or has not been written for an hour; whether it did."""
        body = encode_told(self.record)
        now = self._clock.monotonic()
        if body == self._written_record and now - self._record_at < RECORD_AGE_S:
            return False
        await self._bucket.put(f"node.{self.record.node}", body)
        self._written_record, self._record_at = body, now
        return True

    async def write_facts(self, facts: Mapping[str, Any], *, is_regular: bool = False) -> bool:
        """
        Write all facts if they changed in what matters; whether it did.

        Args:
            facts: All facts.
            is_regular: It is not a moment at which all nodes of a fleet write, so doubtful and day-old facts are written too.
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
        body = encode_told(record)
        while len(body) > FACTS_LIMIT_BYTES and record.facts:
            largest = max(record.facts, key=lambda family: len(encode_told(record.facts[family])))
            log.warning("facts are too large to be told whole", extra={"left_out": largest})
            del record.facts[largest]
            body = encode_told(record)
        return body

    async def goodbye(self) -> None:
        """Take the sign of life back: this node is off, and everybody may know at once."""
        await self._bucket.delete(f"presence.{self.record.node}")

    async def _put(self, key: str, body: bytes) -> None:
        self._revision = 0
        self._revision = await self._bucket.put(key, body, ttl_s=self._ttl_s)
        self._beat_at = self._clock.monotonic()


def facts_digest(facts: Mapping[str, Any]) -> str:
    """A digest that stays the same while only numbers move that never stand still."""
    return hashlib.sha256(encode_told(lasting(facts), order="deterministic")).hexdigest()


class HeartbeatContext(Struct, frozen=True, kw_only=True):
    """
    What a beat needs of the rest of the agent.

    Attributes:
        settings: The configuration as it is now.
        run: The run in hand; "" when there is none.
        facts: All facts, as fresh as the configuration says.
        routed: The facts that requests can be addressed to.
        renew_key: Reads the key that signs events again; new credentials count from a new connection on.
        can_read_own: Whether a node can read documents that are stored for it alone; None when that cannot be said now.
    """

    settings: Callable[[], Settings]
    run: Callable[[], str]
    facts: Callable[[], Awaitable[Mapping[str, Any]]]
    routed: Callable[[], Awaitable[dict[str, Any]]]
    renew_key: Callable[[], Awaitable[None]]
    can_read_own: Callable[[str], Awaitable[bool | None]]


class HeartbeatLoop:
    """The signs of life of one agent."""

    def __init__(
        self,
        heartbeat: NodePresence,
        pulse: HeartbeatContext,
        link: BrokerConnection,
        subscriptions: Subscriptions,
        agent_events: AgentEventPublisher,
        request_log: RequestLog,
    ) -> None:
        """Nothing is written before `run`."""
        self._heartbeat = heartbeat
        self._pulse = pulse
        self._link = link
        self._subscriptions = subscriptions
        self._agent_events = agent_events
        self._request_log = request_log
        self._now = asyncio.Event()
        self._is_reconnected = False
        self._is_own_data_known = False
        # A document stored for this node alone by mistake is an error that is seen; one that every node can read is not.
        heartbeat.record.own_data = heartbeat.record.own_schedules = True

    def soon(self) -> None:
        """There is something to tell that should not wait for the next heartbeat."""
        self._now.set()

    def reconnected(self) -> None:
        """The broker is here again, or is another one."""
        self._heartbeat.reconnected()
        self._is_reconnected = True
        self.soon()

    async def run(self) -> None:
        """Beat, for ever."""
        while True:
            is_regular = await self._wait()
            if not self._link.connected:
                continue
            try:
                await self._beat(is_regular=is_regular)
            except BusError as err:
                log.info("a heartbeat could not be sent", extra={"reason": str(err)})
            if self._request_log.wants_compaction:
                await self._request_log.compact()

    async def _wait(self) -> bool:
        """Wait until it is time, or until there is a reason; whether it is time."""
        try:
            async with asyncio.timeout(random.uniform(0.9, 1.0) * self._pulse.settings().heartbeat_s):
                await self._now.wait()
        except TimeoutError:
            return True
        self._now.clear()
        return False

    async def _beat(self, *, is_regular: bool) -> None:
        if self._is_reconnected:
            self._is_reconnected = False
            self._is_own_data_known = False
            await self._pulse.renew_key()
        if not self._is_own_data_known:
            await self._see_own_data()
        if await self._heartbeat.beat(self._pulse.run()):
            self._duplicated()
        await self._heartbeat.write_record()
        await self._heartbeat.write_facts(await self._pulse.facts(), is_regular=is_regular)
        if await self._pulse.routed() != self._heartbeat.record.facts:
            self._subscriptions.look_again()

    async def _see_own_data(self) -> None:
        """Tell controllers what they may store for this node alone; an answer holds until the connection is another one."""
        can_read = await self._pulse.can_read_own(self._heartbeat.record.node)
        self._is_own_data_known = can_read is not None
        if can_read is not None:
            self._heartbeat.record.own_data = can_read

    def _duplicated(self) -> None:
        is_so = self._heartbeat.is_duplicate
        sentence = DUPLICATE_IDENTITY if is_so else ""
        self._heartbeat.complain("identity", sentence)
        message = sentence or "no other agent uses this identity any more"
        log.error(message) if is_so else log.warning(message)
        self._agent_events.duplicated(is_so, message)
