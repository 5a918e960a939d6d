"""The loop that writes this node's keys: its presence, record and facts."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping

from ccm_agent.agent.cache.facts import FactCache
from ccm_agent.agent.events.publisher import AgentEventPublisher, Author
from ccm_agent.agent.node.status import DeliveryStatus
from ccm_agent.agent.runs.run_queue import RunQueue
from ccm_agent.agent.state.presence import NodePresence
from ccm_agent.agent.state.request_log import RequestLog
from ccm_agent.agent.state.settings import Settings
from ccm_agent.model.errors import BusError
from ccm_agent.model.ports import BrokerConnection
from ccm_agent.model.wire import DUPLICATE_IDENTITY

log = logging.getLogger(__name__)


class NodeKeys:
    """
    The entries that this node writes into the inventory.

    Attributes:
        presence: The node's three keys.
    """

    def __init__(
        self,
        presence: NodePresence,
        facts: FactCache,
        run_queue: RunQueue,
        delivery: DeliveryStatus,
        author: Author,
        can_read_own: Callable[[str], Awaitable[bool | None]],
    ) -> None:
        """
        Args:
            presence: The keys.
            facts: The facts that are published.
            run_queue: Contains the current run.
            delivery: Reports whether events can be written to disk.
            author: Signs events; its key is renewed after each connection.
            can_read_own: Returns whether a node can read the documents that only it may read; None if that is currently
                unknown.
        """
        self.presence = presence
        self._facts = facts
        self._run_queue = run_queue
        self._delivery = delivery
        self._author = author
        self._can_read_own = can_read_own
        self._is_own_data_known = False
        record = presence.record
        # True until checked. A document that only this node may read causes a visible error if the node cannot read it. If it
        # were stored where every node can read it, this would go unnoticed.
        record.own_data = record.own_schedules = record.partial_runs = True
        record.selector_patterns = True
        record.staged_assignments = True

    async def renew(self) -> None:
        """Handle a new connection: the key and the documents that the node can read may have changed."""
        self._is_own_data_known = False
        await self._author.renew()

    async def beat(self) -> bool:
        """Send a heartbeat. Returns whether another agent has started or stopped using this name."""
        if not self._is_own_data_known:
            await self._check_own_data()
        current = self._run_queue.current
        return await self.presence.beat(current.run if current else "")

    async def write(self, *, is_regular: bool) -> None:
        """Write the record and the facts if they have changed; see `NodePresence.write_facts`."""
        self.presence.record.disk = await self._delivery.find_disk_trouble()
        await self.presence.write_record()
        await self.presence.write_facts(await self._facts.current(), is_regular=is_regular)

    async def routed_facts(self) -> Mapping[str, str | int | bool]:
        """Return the current facts that requests can be addressed to."""
        return await self._facts.routed()

    async def _check_own_data(self) -> None:
        """Publish whether documents may be stored that only this node may read. The result is valid for one connection."""
        can_read = await self._can_read_own(self.presence.record.node)
        self._is_own_data_known = can_read is not None
        if can_read is not None:
            self.presence.record.own_data = can_read


class HeartbeatLoop:
    """Writes this node's keys on each heartbeat, and whenever one is requested."""

    def __init__(
        self,
        keys: NodeKeys,
        link: BrokerConnection,
        events: AgentEventPublisher,
        request_log: RequestLog,
        settings: Callable[[], Settings],
        look_again: Callable[[], None],
    ) -> None:
        """
        Args:
            keys: Writes the entries.
            link: The connection.
            events: Publishes that another agent uses this node's name.
            request_log: Compacted after a heartbeat, if due.
            settings: Returns the current configuration.
            look_again: Called when changed facts result in other scopes; it must not block.
        """
        self._keys = keys
        self._presence = keys.presence
        self._link = link
        self._events = events
        self._request_log = request_log
        self._settings = settings
        self._look_again = look_again
        self._is_reconnected = False

    def reconnected(self) -> None:
        """Handle a reconnection, perhaps to another broker."""
        self._presence.reconnected()
        self._is_reconnected = True
        self._presence.request_heartbeat()

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
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
        """Wait for the next heartbeat, or until one is requested. Returns whether the heartbeat is a regular one."""
        try:
            async with asyncio.timeout(self._interval_s()):
                await self._presence.is_requested.wait()
        except TimeoutError:
            return True
        self._presence.is_requested.clear()
        return False

    def _interval_s(self) -> float:
        return random.uniform(0.9, 1.0) * self._settings().heartbeat_s * self._presence.stretch

    async def _beat(self, *, is_regular: bool) -> None:
        if self._is_reconnected:
            self._is_reconnected = False
            await self._keys.renew()
        if await self._keys.beat():
            self._report_duplicate()
        await self._keys.write(is_regular=is_regular)
        if await self._keys.routed_facts() != self._presence.record.facts:
            self._look_again()

    def _report_duplicate(self) -> None:
        is_so = self._presence.is_duplicate
        sentence = DUPLICATE_IDENTITY if is_so else ""
        self._presence.set_warning("identity", sentence)
        message = sentence or "this identity is no longer used by another agent"
        log.error(message) if is_so else log.warning(message)
        self._events.duplicated(is_so, message)
