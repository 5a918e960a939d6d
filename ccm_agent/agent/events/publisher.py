"""
Events from the spool to the stream: one in flight, in order, until each is acknowledged.

A publish that failed is tried again with the same message id, until it succeeds, for the stream is the record. Only what can
never be sent (the broker or the protocol refuses the message itself) is given up after some tries, and counted: it would block
all behind it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from ccm_agent.agent.events.spool import Spool
from ccm_agent.agent.events.spool_segment import Kind, Spooled, new_message_id
from ccm_agent.bus.chain import CHAIN_HEADER
from ccm_agent.bus.signing import SIGNATURE_HEADER
from ccm_agent.model.errors import BusError, BusUnavailableError, ProtocolError
from ccm_agent.model.limited_log import LimitedLog
from ccm_agent.model.ports import BrokerConnection, Events

log = logging.getLogger(__name__)

REFUSED_TRIES = 3
"""How often a message that the protocol refuses is tried, before it is given up."""

LONGEST_PAUSE = 30
"""The pause after a failure doubles up to this many times its first length."""


class EventPublisher:
    """
    Empties one spool.

    Attributes:
        sent: Events acknowledged since the start.
        trouble: Why the last publish failed; "" when it did not.
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
        Nothing is sent yet.

        Args:
            spool: What to send.
            events: Where to.
            link: The connection; nothing is tried while it is away.
            retry_s: First pause after a failure.
            on_lost: Told how many events were given up, when the broker can be told.
            sign: Makes the signature of an event; "" where there is no key. Events that no later event has to vouch for are
                signed when they are sent: the key may be another one by then than when they were spooled.
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
        """Send for ever."""
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
        Have the stream store an event.

        That it has the message id already is what a lost acknowledgement leads to, and is well. It cannot be so when an event
        is sent for the first time: then another sender has used the id, and the event is sent under a new one.
        """
        message_id, headers = event.message_id or event.event_id, self._headers_of(event)
        published = await self._events.publish(event.subject, message_id, event.body, headers)
        if not published.is_duplicate or is_retry or self._spool.is_carried_over(event.seq):
            return
        self._limited.warning(
            "another sender has used a message id; the event is sent again under a new one",
            extra={"subject": event.subject},
        )
        await self._events.publish(event.subject, new_message_id(), event.body, headers)

    def _headers_of(self, event: Spooled) -> dict[str, str]:
        """Its place in the chain, and the signature of summaries and events about the agent: the same in each attempt."""
        if self._headers[0] != event.seq:
            headers = {CHAIN_HEADER: event.chain} if event.chain else {}
            if event.chain and event.kind in (Kind.SUMMARY, Kind.AGENT) and (signature := self._sign(event)):
                headers[SIGNATURE_HEADER] = signature
            self._headers = event.seq, headers
        return self._headers[1]

    def _give_up(self, event: Spooled, err: BusError) -> None:
        log.error(
            "an event cannot be sent and is given up", extra={"subject": event.subject, "reason": str(err)}
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
