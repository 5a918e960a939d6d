"""
The node's subscriptions, and the queue of its requests.

The node subscribes to the scope `all`, its own scope, and one scope for each routed fact. It subscribes again when those facts
change. Requests wait in a queue and are handled one after the other, in order of arrival.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable

from ccm_agent.agent.cache.facts import BUCKET, AssignedFacts, FactCache
from ccm_agent.agent.events.publisher import AgentEventPublisher
from ccm_agent.agent.requests.missed_schedules import MissedSchedules
from ccm_agent.agent.state.presence import NodePresence
from ccm_agent.agent.state.settings import Settings
from ccm_agent.agent.trust.authentication import Authenticator
from ccm_agent.bus.signatures.timestamp import TIMESTAMP_KEY
from ccm_agent.bus.signatures.trust import SIGNERS_KEY
from ccm_agent.bus.subjects import scopes_of
from ccm_agent.model.errors import BusDeniedError, BusError, ProtocolError
from ccm_agent.model.limited_log import LimitedLog
from ccm_agent.model.ports import BrokerConnection, IncomingRequest, KeyReader, Requests

log = logging.getLogger(__name__)

CLOCK_AGAIN_S = 10.0
"""How often an agent with a slow clock checks whether the clock is correct."""


class NodeScopes:
    """
    Keeps the scopes of one node (`NodePresence.scopes`) and its subscriptions to requests current.

    Args:
        presence: Publishes the facts that determine the scopes.
        facts: The facts.
        requests: Subscribes to scopes.
        queue: Receives the requests.
        events: Publishes refusals.
        settings: Returns the current configuration.
    """

    def __init__(
        self,
        presence: NodePresence,
        facts: FactCache,
        requests: Requests,
        queue: RequestQueue,
        events: AgentEventPublisher,
        settings: Callable[[], Settings],
    ) -> None:
        self._presence = presence
        self._facts = facts
        self._requests = requests
        self._queue = queue
        self._events = events
        self._settings = settings

    async def update(self) -> bool:
        """Subscribe to the scopes that the facts determine. Returns False if they have not changed."""
        record, facts = self._presence.record, await self._facts.routed()
        scopes = scopes_of(record.node, facts)
        if scopes == self._presence.scopes:
            return False
        try:
            await self._requests.subscribe(
                scopes, self._queue.put, lambda subject, err: self._events.refused(subject, str(err))
            )
        except BusDeniedError as err:
            log.error("the broker does not allow this node to subscribe", extra={"reason": str(err)})
        self._presence.scopes, record.facts = scopes, facts
        self._presence.request_heartbeat()
        return True

    def pause_s(self) -> float:
        """Return the time until facts are read again."""
        interval_s = self._settings().read_interval_s
        if self._presence.record.wrong_clock:
            interval_s = min(interval_s, CLOCK_AGAIN_S)
        return random.uniform(0.75, 1.25) * interval_s


class Subscriptions:
    """
    Reads the data for decisions about requests to one agent: the signers list, assigned facts, and the resulting scopes.

    Attributes:
        is_current: Whether the last read of the facts succeeded, so that the scopes are current.
    """

    def __init__(
        self,
        scopes: NodeScopes,
        signers: SignersReader,
        assigned: AssignedReader,
        link: BrokerConnection,
        missed: MissedSchedules,
        read_assignments: Callable[[], None],
    ) -> None:
        """
        Args:
            scopes, signers, assigned: The data that is kept current.
            link: The connection.
            missed: Finds missed scheduled requests to these scopes.
            read_assignments: Starts a read of the assignments of these scopes; it must not block.
        """
        self.is_current = False
        self._scopes = scopes
        self._signers = signers
        self._assigned = assigned
        self._link = link
        self._missed = missed
        self._read_assignments = read_assignments
        self._wake = asyncio.Event()
        self._limited = LimitedLog(log)

    async def open(self) -> None:
        """Subscribe to the scopes of the stored facts; the first read may change them."""
        await self._subscribe()
        await self._assigned.begin(self.look_again)
        await self._signers.begin(self.look_again)
        self._link.on_connect(self.look_again)
        self.look_again()

    def look_again(self) -> None:
        """Read again soon, because assigned or gathered facts may have changed."""
        self._wake.set()

    async def run(self) -> None:
        """Read facts at each notification, after each connection and at regular intervals, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._scopes.pause_s()):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            self.is_current = False
            try:
                await self._read()
                await self._subscribe()
                self.is_current = self._link.connected
            except BusError as err:
                self._limited.info("assigned facts cannot be read now", extra={"reason": str(err)})
                if self._link.connected and self._assigned.forget_notification():
                    # That revision may be from an earlier broker, so read the current one.
                    self._wake.set()
            self._signers.report_limits()
            if self._link.connected:
                # Scopes determine which assignments apply, so assignments are read after them.
                self._read_assignments()
                if self.is_current:
                    self._missed.settled()

    async def _read(self) -> None:
        if not self._link.connected:
            return
        # Read the signers list first, because documents must be signed.
        await self._signers.read()
        await self._assigned.read()

    async def _subscribe(self) -> None:
        if await self._scopes.update():
            self._missed.expect()


class AssignedReader:
    """
    Keeps the assigned facts of one node up to date with the bucket.

    Args:
        assigned: The assigned facts.
        bucket: `CCM_FACTS`.
        on_refused: Called with the key of a refused document, and the reason.
    """

    def __init__(
        self, assigned: AssignedFacts, bucket: KeyReader, on_refused: Callable[[str, str], None]
    ) -> None:
        self._assigned = assigned
        self._bucket = bucket
        self._on_refused = on_refused
        self._at_least = 0
        self._limited = LimitedLog(log)

    async def begin(self, on_change: Callable[[], None]) -> None:
        """Call a function at each change."""

        def changed(_key: str, revision: int) -> None:
            self._at_least = max(self._at_least, revision)
            on_change()

        await self._bucket.watch_changes(self._assigned.node, changed)

    async def read(self) -> None:
        """
        Read the facts. A refused document changes nothing.

        Raises:
            BusError: The broker is unavailable, or does not allow the read.
        """
        assigned = self._assigned
        try:
            if await assigned.read(self._at_least):
                self._limited.info("assigned facts have changed", extra={"revision": assigned.revision})
        except ProtocolError as err:
            self._limited.error("assigned facts are refused", extra={"reason": str(err)})
            self._on_refused(f"{BUCKET}/{assigned.node}", str(err))

    def forget_notification(self) -> bool:
        """Stop waiting for a revision from a notification. Returns False if there was none."""
        was, self._at_least = self._at_least, 0
        return bool(was)


INBOX_LIMIT = 1000
"""The maximum number of waiting requests; the controller sends dropped requests again."""


class RequestQueue:
    """The waiting requests of one agent. If there are too many, the oldest are dropped."""

    def __init__(self) -> None:
        self._waiting: deque[IncomingRequest] = deque(maxlen=INBOX_LIMIT)
        self._has_mail = asyncio.Event()
        self._is_closed = False
        self._limited = LimitedLog(log)

    @property
    def is_empty(self) -> bool:
        """Whether all requests have been handled or are being handled."""
        return not self._waiting

    def put(self, incoming: IncomingRequest) -> None:
        """Add a request."""
        if self._is_closed:
            # The request is sent again in a second, when the next process may be running; a refusal would be final.
            return
        self._waiting.append(incoming)
        self._has_mail.set()

    def close(self) -> None:
        """Stop accepting messages; waiting requests are still handled."""
        self._is_closed = True

    async def run(
        self,
        handle: Callable[[IncomingRequest], Awaitable[None]],
        on_refused: Callable[[str, str], None],
        on_handled: Callable[[IncomingRequest], None],
    ) -> None:
        """
        Handle requests until cancelled.

        Args:
            handle: Handles a request; raises ProtocolError if it violates the protocol.
            on_refused: Called with the subject of a request that violates the protocol, and the reason.
            on_handled: Called with each request afterwards, including refused ones.
        """
        while True:
            await self._has_mail.wait()
            self._has_mail.clear()
            while self._waiting:
                incoming = self._waiting.popleft()
                try:
                    await self._handle(incoming, handle, on_refused, on_handled)
                except Exception:  # noqa: BLE001 - one request must not end the agent
                    self._limited.exception(
                        "a request could not be handled", extra={"subject": incoming.subject}
                    )

    async def _handle(
        self,
        incoming: IncomingRequest,
        handle: Callable[[IncomingRequest], Awaitable[None]],
        on_refused: Callable[[str, str], None],
        on_handled: Callable[[IncomingRequest], None],
    ) -> None:
        try:
            await handle(incoming)
        except ProtocolError as err:
            self._limited.warning(
                "a request is refused", extra={"subject": incoming.subject, "error": str(err)}
            )
            on_refused(incoming.subject, str(err))
        finally:
            on_handled(incoming)


class SignersReader:
    """
    Keeps an authenticator's signers list up to date with the bucket.

    Args:
        authenticator: Contains the list.
        bucket: The bucket of the list.
        presence: Publishes the reason why this node refuses requests and documents.
    """

    def __init__(self, authenticator: Authenticator, bucket: KeyReader, presence: NodePresence) -> None:
        self._authenticator = authenticator
        self._bucket = bucket
        self._presence = presence
        self._at_least = 0
        self._trouble = ""

    async def begin(self, on_change: Callable[[], None]) -> None:
        """Subscribe to changes; a node without a root key has no list to read."""
        if not self._authenticator.root:
            return

        def changed(_key: str, revision: int) -> None:
            self._at_least = max(self._at_least, revision)
            on_change()

        def confirmed(_key: str, _revision: int) -> None:
            # The nodes of a fleet need not read it at the same moment, except those that wait for it.
            self._authenticator.freshness.notified()
            if self._authenticator.staleness:
                on_change()

        try:
            await self._bucket.watch_changes(SIGNERS_KEY, changed)
            await self._bucket.watch_changes(TIMESTAMP_KEY, confirmed)
        except BusError as err:
            log.info(
                "changes of the signers list cannot be watched; the list is read at intervals",
                extra={"reason": str(err)},
            )

    async def read(self) -> None:
        """
        Read the list and its timestamp. If they cannot be read or used, the error is logged once, and both remain unchanged.
        """
        if not self._authenticator.root:
            return
        troubles = []
        for read in (self._read_list, self._authenticator.read_timestamp):
            try:
                await read(self._bucket)
            except BusError as err:
                troubles.append(str(err))
                self._at_least = 0
        trouble = "; ".join(troubles)
        if trouble and trouble != self._trouble:
            log.warning("the signers list cannot be read", extra={"reason": trouble})
        self._trouble = trouble

    async def _read_list(self, bucket: KeyReader) -> bool:
        return await self._authenticator.read_list(bucket, self._at_least)

    def report_limits(self) -> None:
        """Store the reason why this node refuses requests and documents in its record."""
        record = self._presence.record
        was, record.wrong_clock = record.wrong_clock, self._authenticator.wrong_clock
        self._report_change(
            was,
            record.wrong_clock,
            "this node refuses new requests and documents until its clock is correct",
            "this node's clock is correct again",
        )
        was, record.plans_only = record.plans_only, self._authenticator.staleness
        self._report_change(
            was,
            record.plans_only,
            "this node accepts only plans",
            "this node accepts all requests of listed operators again",
        )

    def _report_change(self, was: str, reason: str, begun: str, ended: str) -> None:
        """Log a limit that began, changed or ended (""), and include it in the next heartbeat."""
        if reason == was:
            return
        if reason:
            log.warning(begun, extra={"reason": reason})
        else:
            log.info(ended)
        self._presence.request_heartbeat()
