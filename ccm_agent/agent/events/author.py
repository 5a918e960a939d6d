"""
Whose events these are: the node's key, as it signs them, as its record names it, and as it changes.
"""

from __future__ import annotations

import asyncio
import logging

from ccm_agent.agent.events.agent_events import AgentEventPublisher
from ccm_agent.agent.events.spool_segment import Spooled
from ccm_agent.bus.node_key import NodeKey
from ccm_agent.model.ports import Clock
from ccm_agent.model.wire import NodeRecord

log = logging.getLogger(__name__)


class Author:
    """The key of one agent."""

    def __init__(
        self, key: NodeKey, record: NodeRecord, agent_events: AgentEventPublisher, clock: Clock
    ) -> None:
        """Read the key, and name it in the node's record. Blocking."""
        self._key = key
        self._record = record
        self._agent_events = agent_events
        self._clock = clock
        key.read(record.node)
        self._name()

    def sign(self, event: Spooled) -> str:
        """The signature of an event that is sent now; "" without a key."""
        issued_ms = int(self._clock.now().timestamp() * 1000)
        return self._key.sign(event.subject, event.body, event.chain, issued_ms)

    def sign_answer(self, subject: str, body: bytes) -> str:
        """The signature of an answer, which has no place in the chain: it is in no stream. "" without a key."""
        return self._key.sign(subject, body, "", int(self._clock.now().timestamp() * 1000))

    def begin(self) -> None:
        """Say that the agent started, and with which key it signs."""
        self._agent_events.started(self._key)

    async def renew(self) -> None:
        """Read the key again; when it is another one, the record names it and an event says so."""
        if await asyncio.to_thread(self._key.read, self._record.node):
            self._name()
            self._agent_events.key_changed(self._key)
            log.info("events are signed with another key", extra={"key": self._key.public_key})

    def _name(self) -> None:
        self._record.key, self._record.certificate = self._key.public_key, self._key.certificate
