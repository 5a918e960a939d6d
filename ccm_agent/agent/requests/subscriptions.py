"""
What this node listens to: `all`, itself, and one scope for each routed fact, subscribed anew when those facts change.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

from ccm_agent.agent.node.assigned_facts import AssignedFacts
from ccm_agent.agent.requests.authentication import SignersReader
from ccm_agent.bus.subjects import scopes_of
from ccm_agent.model.errors import BusDeniedError, BusError, ProtocolError
from ccm_agent.model.limited_log import LimitedLog
from ccm_agent.model.ports import BrokerConnection, IncomingRequest, KeyValue, Requests

log = logging.getLogger(__name__)


class Subscriptions:
    """
    The scopes of one agent, kept right.

    Attributes:
        scopes: What is subscribed.
        is_right: The last reading of the facts succeeded, so the scopes are those of now.
    """

    def __init__(
        self,
        node: str,
        requests: Requests,
        bucket: KeyValue,
        assigned: AssignedFacts,
        link: BrokerConnection,
        *,
        routed: Callable[[], Awaitable[dict[str, Any]]],
        on_request: Callable[[IncomingRequest], None],
        on_refused: Callable[[str, str], None],
        on_change: Callable[[dict[str, Any]], None],
        on_read: Callable[[], None] = lambda: None,
        trust: SignersReader | None = None,
    ) -> None:
        """
        Nothing is subscribed yet.

        Args:
            node: Who listens.
            requests: Where.
            bucket: `CCM_FACTS`, for its pokes.
            assigned: Assigned facts.
            link: The connection.
            routed: The routed facts as they are now.
            on_request: Told of each request; it only queues.
            on_refused: Told of a request or document that is refused: what, and why.
            on_change: Told the routed facts when they are others than before.
            on_read: Called whenever the scopes are what the broker says: at each connection, at a poke, and now and then.
            trust: Reads the signers list, before anything that must be signed.
        """
        self.scopes: list[str] = []
        self.is_right = False
        self._node = node
        self._requests = requests
        self._bucket = bucket
        self._assigned = assigned
        self._link = link
        self._routed = routed
        self._on_request = on_request
        self._on_refused = on_refused
        self._on_change = on_change
        self._on_read = on_read
        self._trust = trust
        self._poked = 0
        self._wake = asyncio.Event()
        self._limited = LimitedLog(log)

    async def begin(self) -> None:
        """Listen on the scopes that follow from what was known before; more comes with the first reading."""
        await self._subscribe()
        await self._bucket.pokes(self._node, self._on_poke)
        if self._trust is not None:
            await self._trust.begin(self.look_again)
        self._link.on_connect(self.look_again)
        self.look_again()

    def look_again(self) -> None:
        """Assigned or gathered facts may be others now."""
        self._wake.set()

    async def run(self, interval_s: Callable[[], float]) -> None:
        """Keep the scopes right, for ever: at a poke, at each connection, and now and then."""
        while True:
            try:
                async with asyncio.timeout(random.uniform(0.75, 1.25) * interval_s()):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            self.is_right = False
            try:
                await self._read()
                await self._subscribe()
                self.is_right = self._link.connected
            except BusError as err:
                self._limited.info("assigned facts cannot be read now", extra={"reason": str(err)})
                if self._poked and self._link.connected:
                    # whoever told of that revision may be a broker that is no more: what this one shows is to be read
                    self._poked = 0
                    self._wake.set()
            if self._link.connected:
                self._on_read()

    async def _read(self) -> None:
        if not self._link.connected:
            return
        if self._trust is not None:
            await self._trust.read()
        try:
            if await self._assigned.read(self._poked):
                self._limited.info("assigned facts have changed", extra={"revision": self._assigned.revision})
        except ProtocolError as err:
            self._limited.error("assigned facts are refused", extra={"reason": str(err)})
            self._on_refused(f"CCM_FACTS/{self._node}", str(err))

    async def _subscribe(self) -> None:
        facts = await self._routed()
        scopes = scopes_of(self._node, facts)
        if scopes == self.scopes:
            return
        try:
            await self._requests.subscribe(
                scopes, self._on_request, lambda subject, err: self._on_refused(subject, str(err))
            )
        except BusDeniedError as err:
            log.error("the broker does not let us listen", extra={"reason": str(err)})
        self.scopes = scopes
        self._on_change(facts)

    def _on_poke(self, key: str, revision: int) -> None:
        self._poked = max(self._poked, revision)
        self._wake.set()
