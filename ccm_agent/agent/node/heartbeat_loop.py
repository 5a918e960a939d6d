"""
When this node's keys in `CCM_NODES` are written: every heartbeat, and whenever there is a reason.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from ccm_agent.agent.events.agent_events import AgentEventPublisher
from ccm_agent.agent.node.node_presence import NodePresence
from ccm_agent.agent.process.config import Settings
from ccm_agent.agent.requests.request_log import RequestLog
from ccm_agent.agent.requests.subscriptions import Subscriptions
from ccm_agent.model.errors import BusError
from ccm_agent.model.ports import BrokerConnection
from ccm_agent.model.wire import DUPLICATE_IDENTITY

log = logging.getLogger(__name__)


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
        heartbeat.record.own_data = True

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
