"""
Publishes events from the spool to the stream, and creates the events about the agent itself, such as starts, refusals and lost
events.

Events are published one at a time, in order, and each waits for its acknowledgement. A failed publish is repeated with the same
message id until it succeeds, because the stream is the authoritative record. Only an event that can never be sent (the broker
or the protocol refuses the message itself) is discarded after some attempts, and counted, because it would block all later
events.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ccm_agent.bus.chain import CHAIN_HEADER
from ccm_agent.bus.signatures.node_key import NodeKey
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.errors import BusError, BusUnavailableError, ProtocolError
from ccm_agent.model.formats.json_text import encode_message
from ccm_agent.model.ids import new_id
from ccm_agent.model.limited_log import LimitedLog
from ccm_agent.model.ports import BrokerConnection, Clock, Events
from ccm_agent.model.records.maintenance import ResourceLock
from ccm_agent.model.wire import (
    AGENT_CONVERGE,
    AGENT_DECISION,
    AGENT_DISABLED,
    AGENT_DRIFT,
    AGENT_DUPLICATE,
    AGENT_ENABLED,
    AGENT_KEY,
    AGENT_LOCKED,
    AGENT_LOST_EVENTS,
    AGENT_REFUSED,
    AGENT_SHUTDOWN,
    AGENT_STARTUP,
    AGENT_UNLOCKED,
    SESSION_PROGRESS,
    AgentEvent,
    Disabled,
    NodeRecord,
    Progress,
)
from ccm_agent.storage.spool import Spool
from ccm_agent.storage.spool_segment import Kind, Spooled, new_message_id

log = logging.getLogger(__name__)

REFUSED_TRIES = 3
"""The number of attempts for a message that the protocol refuses, before it is discarded."""

LONGEST_PAUSE = 30
"""The pause after a failure doubles up to this many times its initial length."""


class EventPublisher:
    """
    Publishes the events of one spool.

    Attributes:
        sent: Events acknowledged since the start.
        trouble: Why the last publish failed; "" if it succeeded.
    """

    def __init__(
        self,
        spool: Spool,
        events: Events,
        link: BrokerConnection,
        *,
        retry_s: float,
        on_lost: Callable[[int], None],
        sign: Callable[[Spooled], str] = lambda _: "",
    ) -> None:
        """
        Args:
            spool: The events to send.
            events: Publishes to the stream.
            link: The connection; nothing is sent while it is down.
            retry_s: First pause after a failure.
            on_lost: Called with the number of discarded events once the broker is connected, so that it can be published.
            sign: Returns the signature of an event; "" without a key. Summaries and events about the agent are signed when they
                are sent, because the key may have changed since they were spooled.
        """
        self.sent = 0
        self.trouble = ""
        self._spool = spool
        self._events = events
        self._link = link
        self._retry_s = retry_s
        self._on_lost = on_lost
        self._sign = sign
        self._headers: tuple[int, dict[str, str]] = (0, {})
        self._limited = LimitedLog(log)

    async def run(self) -> None:
        """Send events until cancelled."""
        failures = 0
        while True:
            event = await self._spool.first()
            if not self._link.connected:
                await self._link.wait_connected()
            try:
                await self._publish(event, is_retry=failures > 0)
            except BusError as err:
                failures += 1
                if isinstance(err, ProtocolError) and failures >= REFUSED_TRIES:
                    self._give_up(event, err)
                    failures = 0
                    continue
                await self._pause(err, failures)
                continue
            failures = 0
            self.trouble = ""
            self.sent += 1
            self._spool.acknowledge(event.seq)
            if self._spool.lost and event.kind is not Kind.AGENT:
                self._on_lost(self._spool.lost)
            if self._spool.wants_tidying:
                await self._spool.tidy()

    async def _publish(self, event: Spooled, *, is_retry: bool) -> None:
        """
        Publish an event, and wait until the stream has stored it.

        If the stream already has the message id after a retry, an acknowledgement was lost, and the event is stored. At the
        first attempt, another sender must have used the id, so the event is sent under a new one.
        """
        message_id, headers = event.message_id or event.event_id, self._build_headers(event)
        published = await self._events.publish(event.subject, message_id, event.body, headers)
        if not published.is_duplicate or is_retry or self._spool.is_carried_over(event.seq):
            return
        self._limited.warning(
            "another sender has used a message id; the event is sent again under a new one",
            extra={"subject": event.subject},
        )
        await self._events.publish(event.subject, new_message_id(), event.body, headers)

    def _build_headers(self, event: Spooled) -> dict[str, str]:
        """
        Return the position in the chain, and the signature of summaries and events about the agent: the same in each attempt.
        """
        if self._headers[0] != event.seq:
            headers = {CHAIN_HEADER: event.chain} if event.chain else {}
            if event.chain and event.kind in (Kind.SUMMARY, Kind.AGENT) and (signature := self._sign(event)):
                headers[SIGNATURE_HEADER] = signature
            self._headers = event.seq, headers
        return self._headers[1]

    def _give_up(self, event: Spooled, err: BusError) -> None:
        log.error(
            "an event cannot be sent and is dropped", extra={"subject": event.subject, "reason": str(err)}
        )
        self._spool.give_up(event.seq)
        self._on_lost(self._spool.lost)

    async def _pause(self, err: BusError, failures: int) -> None:
        if str(err) != self.trouble:
            self.trouble = str(err)
            log.warning(
                "events wait for the broker", extra={"reason": str(err), "waiting": self._spool.backlog}
            )
        if isinstance(err, BusUnavailableError) and not self._link.connected:
            return
        longest = self._retry_s * min(2 ** (failures - 1), LONGEST_PAUSE)
        await asyncio.sleep(random.uniform(0.5, 1.0) * longest)


REFUSALS_A_MINUTE = 10
"""The maximum number of published refusals per minute. A client that causes only refusals must not fill the spool."""

MESSAGE_LIMIT = 2000
"""The maximum characters of a message. The text of a refused request comes from outside."""


class AgentEventPublisher:
    """The events of one agent about itself, sent through its spool."""

    def __init__(self, node: str, version: str, machine: str, spool: Spool, clock: Clock) -> None:
        self._node = node
        self._version = version
        self._machine = machine
        self._spool = spool
        self._clock = clock
        self._started = clock.now()
        self._refusals: deque[float] = deque(maxlen=REFUSALS_A_MINUTE)

    def started(self, key: NodeKey) -> None:
        """
        Publish that the agent has started. The certificate is included, so that readers of old events find it after the key
        changes.
        """
        details = {"version": self._version, "machine": self._machine, **_key_details(key)}
        self._append(AGENT_STARTUP, f"agent {self._version} started", details)

    def stopped(self) -> None:
        """Publish that the agent stops."""
        self._append(AGENT_SHUTDOWN, f"agent {self._version} stopped", {"version": self._version})

    def refused(self, what: str, why: str, run: str = "") -> None:
        """
        Publish that a request or a document is refused. For a scheduled request, `run` is the run that the node does not join.
        """
        now = self._clock.monotonic()
        if len(self._refusals) == REFUSALS_A_MINUTE and now - self._refusals[0] < 60:
            return
        self._refusals.append(now)
        self._append(
            AGENT_REFUSED,
            why[:MESSAGE_LIMIT],
            {"refused": what[:MESSAGE_LIMIT]} | ({"run": run} if run else {}),
        )

    def decided(self, message: str, details: dict[str, Any]) -> str:
        """Publish the decision about a request, and return the link of this event in the node's chain."""
        self._append(AGENT_DECISION, message, details)
        return self._spool.last_link

    def lost(self, count: int) -> None:
        """Publish that events were discarded; the spool resets its count."""
        details = {"events": count, "places": self._spool.lost_places}
        self._spool.reported(count)
        self._append(AGENT_LOST_EVENTS, f"{count} events were dropped: the spool was full", details)

    def key_changed(self, key: NodeKey) -> None:
        """Publish that the node now signs with another key, or has another certificate."""
        if key.public_key:
            self._append(AGENT_KEY, f"events are signed with {key.public_key}", _key_details(key))

    def drifted(self, source: str, run: str, count: int, resources: Sequence[str]) -> None:
        """Publish that a run corrected drift: the number of resources, and the names of the first ones."""
        details = {"run": run, "manifest": source, "count": count, "resources": list(resources)}
        self._append(AGENT_DRIFT, f"{source}: corrected drift of {count} resources", details)

    def duplicated(self, is_so: bool, message: str) -> None:
        """Publish that another agent uses our name, or has stopped using it."""
        details = {"machine": self._machine, "started": self._started, "duplicate": is_so}
        self._append(AGENT_DUPLICATE, message, details)

    def maintenance(self, disabled: Disabled | None, by: str, why: str) -> None:
        """
        Publish that an operator disabled or enabled the node.

        Args:
            disabled: Until when and why the node is disabled; None if it is enabled again.
            by, why: The operator who enabled it, and the reason; "" if it was enabled on the host, or automatically when its
                time ended.
        """
        if disabled is not None:
            self._append(AGENT_DISABLED, disabled.sentence, msgspec.to_builtins(disabled))
            return
        message = f"enabled by {by}" if by else "enabled again"
        details = {"by": by, "why": why} if by else {}
        self._append(AGENT_ENABLED, f"{message}: {why}" if why else message, details)

    def locked(self, locks: Sequence[ResourceLock]) -> None:
        """Publish that an operator locked resources, all until the same time and for the same reason."""
        names = [one.resource for one in locks]
        self._append(
            AGENT_LOCKED,
            f"{_named(names)} {locks[0].sentence}",
            {"resources": names, "until": locks[0].until, "why": locks[0].why, "by": locks[0].by},
        )

    def unlocked(self, resources: Sequence[str], by: str, why: str) -> None:
        """Publish that an operator unlocked resources."""
        words = f"{_named(resources)} unlocked by {by}"
        details = {"resources": list(resources), "by": by, "why": why}
        self._append(AGENT_UNLOCKED, f"{words}: {why}" if why else words, details)

    def converges(self, by: str, why: str) -> None:
        """Publish that an operator requested the node to converge now."""
        words = f"converges now, requested by {by}"
        self._append(AGENT_CONVERGE, f"{words}: {why}" if why else words, {"by": by, "why": why})

    def _append(self, protocol: str, message: str, details: dict[str, Any]) -> None:
        event = AgentEvent(
            protocol=protocol,
            event_id=new_id(),
            timestamp=self._clock.now(),
            node=self._node,
            message=message,
            details=details,
        )
        self._spool.append(
            subject=event_subject(protocol, self._node),
            event_id=event.event_id,
            body=encode_message(event),
        )


def _key_details(key: NodeKey) -> dict[str, str]:
    details = {"key": key.public_key, "certificate": key.certificate}
    return {name: value for name, value in details.items() if value}


class ProgressSender:
    """
    Publishes the progress of a run, for the controllers that follow it. The stream does not store it.

    Attributes:
        node: The node's identity.
    """

    def __init__(self, node: str, events: Events) -> None:
        self.node = node
        self._events = events

    async def announce(self, progress: Progress) -> None:
        """Publish the progress once; without a connection it is lost."""
        subject = event_subject(SESSION_PROGRESS, self.node, progress.run)
        try:
            await self._events.announce(subject, encode_message(progress))
        except BusError as err:
            log.debug("progress could not be published", extra={"reason": str(err)})


class Author:
    """Signs with the key of one agent."""

    def __init__(
        self, key: NodeKey, record: NodeRecord, agent_events: AgentEventPublisher, clock: Clock
    ) -> None:
        """Read the key, and set it in the node's record. Blocking."""
        self._key = key
        self._record = record
        self._agent_events = agent_events
        self._clock = clock
        key.read(record.node)
        self._name()

    def sign(self, event: Spooled) -> str:
        """Return the signature of an event that is sent now; "" without a key."""
        issued_ms = int(self._clock.now().timestamp() * 1000)
        return self._key.sign(event.subject, event.body, event.chain, issued_ms)

    def sign_answer(self, subject: str, body: bytes) -> str:
        """
        Return the signature of an answer; "" without a key. Answers have no position in the chain, because they are not in a
        stream.
        """
        return self._key.sign(subject, body, "", int(self._clock.now().timestamp() * 1000))

    def report_start(self) -> None:
        """Publish that the agent has started, with its signing key."""
        self._agent_events.started(self._key)

    async def renew(self) -> None:
        """Read the key again. If it has changed, update the record and publish an event."""
        if await asyncio.to_thread(self._key.read, self._record.node):
            self._name()
            self._agent_events.key_changed(self._key)
            log.info("events are signed with another key", extra={"key": self._key.public_key})

    def _name(self) -> None:
        self._record.key, self._record.certificate = self._key.public_key, self._key.certificate


def _named(resources: Sequence[str]) -> str:
    """Return the first resource, and the number of further ones."""
    more = f" and {len(resources) - 1} more" if len(resources) > 1 else ""
    return f"{resources[0]}{more}"
