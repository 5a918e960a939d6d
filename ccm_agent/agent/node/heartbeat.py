"""The loop that writes this node's keys: its presence, its record and its facts."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from ccm_agent.agent.node.status import find_disk_trouble
from ccm_agent.model.errors import BusError
from ccm_agent.model.wire import DUPLICATE_IDENTITY

if TYPE_CHECKING:
    from ccm_agent.agent.process.context import AgentContext
    from ccm_agent.agent.requests.subscriptions import Subscriptions

log = logging.getLogger(__name__)


class HeartbeatLoop:
    """Writes this node's keys on each heartbeat, and whenever one is requested."""

    def __init__(self, context: AgentContext, subscriptions: Subscriptions) -> None:
        self._context = context
        self._presence = context.presence
        self._subscriptions = subscriptions
        self._is_reconnected = False
        self._is_own_data_known = False
        # A document stored for this node alone by mistake is an error that is seen; one that every node can read is not.
        context.record.own_data = context.record.own_schedules = context.record.partial_runs = True
        context.record.selector_patterns = True
        context.record.staged_assignments = True

    def reconnected(self) -> None:
        """The broker is here again, or is another one."""
        self._presence.reconnected()
        self._is_reconnected = True
        self._presence.request_heartbeat()

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            is_regular = await self._wait()
            if not self._context.link.connected:
                continue
            try:
                await self._beat(is_regular=is_regular)
            except BusError as err:
                log.info("a heartbeat could not be sent", extra={"reason": str(err)})
            if self._context.request_log.wants_compaction:
                await self._context.request_log.compact()

    async def _wait(self) -> bool:
        """Wait for the next heartbeat, or until one is requested; whether it is a regular one."""
        try:
            async with asyncio.timeout(random.uniform(0.9, 1.0) * self._context.settings.heartbeat_s):
                await self._presence.is_requested.wait()
        except TimeoutError:
            return True
        self._presence.is_requested.clear()
        return False

    async def _beat(self, *, is_regular: bool) -> None:
        if self._is_reconnected:
            self._is_reconnected = False
            self._is_own_data_known = False
            await self._context.author.renew()
        if not self._is_own_data_known:
            await self._check_own_data()
        context, current = self._context, self._context.run_queue.current
        if await self._presence.beat(current.run if current else ""):
            self._report_duplicate()
        context.record.disk = await find_disk_trouble(context)
        await self._presence.write_record()
        facts = await context.facts.current(context.settings.facts_interval_s)
        await self._presence.write_facts(facts, is_regular=is_regular)
        if await context.facts.routed(context.settings.routed_facts) != context.record.facts:
            self._subscriptions.look_again()

    async def _check_own_data(self) -> None:
        """Publish whether documents may be stored for this node alone; the answer holds for one connection."""
        can_read = await self._context.ports.can_read_own(self._context.node)
        self._is_own_data_known = can_read is not None
        if can_read is not None:
            self._context.record.own_data = can_read

    def _report_duplicate(self) -> None:
        is_so = self._presence.is_duplicate
        sentence = DUPLICATE_IDENTITY if is_so else ""
        self._presence.set_warning("identity", sentence)
        message = sentence or "this identity is no longer used by another agent"
        log.error(message) if is_so else log.warning(message)
        self._context.events.duplicated(is_so, message)
