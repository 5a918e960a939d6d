"""
Nodes whose connection to the broker has ended, and whose agents do not answer. They are found before their heartbeats are late.

The end of a connection proves nothing: the agent may reconnect, and the node may have another connection. Therefore the agent is
queried, and only silence counts, until the next heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING

from ccm_agent.bus.subjects import node_scope
from ccm_agent.model.errors import BusError
from ccm_agent.model.wire import NODE_PING
from ccm_ctl.fleet.nodes.node_condition import AgentAnswer, last_heartbeat
from ccm_ctl.fleet.nodes.nodes import TargetSet
from ccm_ctl.fleet.runs.gather import gather

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ccm_agent.bus.disconnects import ConnectionEnd
    from ccm_ctl.fleet.nodes.nodes import Node
    from ccm_ctl.fleet.ports import Fleet

log = logging.getLogger(__name__)

SETTLE_S = 1.0
"""Seconds between a notice and the query. Most agents have reconnected by then."""

QUERIED_AT_ONCE = 250
"""The number of nodes that are queried at the same time. A query of silent nodes takes 4 seconds."""

KEPT = 5_000
"""
The maximum number of nodes that wait for their query, and of silent nodes. Others are found when their heartbeat is late, as
without notices.
"""

CLOCK_TOLERANCE = timedelta(minutes=5)
"""A notice from later than this is dropped: no heartbeat would be newer."""


class SilentNodes:
    """
    Finds silent nodes while `run` is running.

    Args:
        fleet: The fleet. Without `disconnects`, no node is found.
        on_change: Called when nodes were found.
    """

    def __init__(self, fleet: Fleet, on_change: Callable[[], None]) -> None:
        self._fleet = fleet
        self._on_change = on_change
        self._waiting: dict[str, datetime] = {}
        self._silent: dict[str, datetime] = {}
        self._woken = asyncio.Event()

    def answer_of(self, node: Node) -> AgentAnswer | None:
        """Return the evidence that a node's agent is silent. None: there is none, or the node has sent a heartbeat since."""
        ended = self._silent.get(node.name)
        if ended is None:
            return None
        heard = last_heartbeat(node)
        if heard is None or heard > ended:
            del self._silent[node.name]
            return None
        # The clocks of the servers may differ, so the time of the notice is compared only once.
        self._silent[node.name] = heard
        return AgentAnswer(is_silent=True)

    async def run(self) -> None:
        """Find silent nodes until cancelled."""
        if self._fleet.disconnects is None:
            return
        remove_hook = self._fleet.link.on_connect(self._forget)
        stop = await self._fleet.disconnects(self._take)
        try:
            while True:
                await self._woken.wait()
                await asyncio.sleep(SETTLE_S)
                await self._query()
                if not self._waiting:
                    self._woken.clear()
        finally:
            remove_hook()
            await stop()

    def _take(self, ended: ConnectionEnd) -> None:
        has_room = ended.node in self._waiting or len(self._waiting) < KEPT
        if has_room and ended.time <= self._fleet.clock.now() + CLOCK_TOLERANCE:
            self._waiting[ended.node] = ended.time
            self._woken.set()

    def _forget(self) -> None:
        """Drop all, because nodes may have lost the broker together with this program, and need time to return."""
        self._waiting.clear()
        self._silent.clear()

    async def _query(self) -> None:
        names = list(islice(self._waiting, QUERIED_AT_ONCE))
        ended = {name: self._waiting.pop(name) for name in names}
        meant = TargetSet(nodes=names, offline=[], scopes=[node_scope(name) for name in names], targets=[])
        link, since = self._fleet.link, self._fleet.link.since
        try:
            _, silent = await gather(self._fleet, NODE_PING, meant)
        except BusError as err:
            log.info("nodes cannot be queried", extra={"reason": str(err)})
            return
        if not link.connected or link.since != since:
            return  # answers may have been lost
        for name in silent:
            self._silent[name] = ended[name]
        for name in list(islice(self._silent, max(len(self._silent) - KEPT, 0))):
            del self._silent[name]
        if silent:
            self._on_change()
