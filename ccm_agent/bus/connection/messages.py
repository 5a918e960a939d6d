"""Messages of a connection, and pending replies."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from ccm_agent.bus.connection.broker_errors import (
    NoRespondersError,
    jetstream_is_off,
    no_responders,
    place_of,
    stream_of,
)
from ccm_agent.model.errors import BusError, BusUnavailableError

COPIED = "copied"
"""The value given to `Nats-Stream` if a message has that header twice: it was stored and then copied by direct get."""

SENT = "Ccm-Sent"
"""
A header that our programs set on every message they send.

A requester can redirect the broker's replies to any subject, and some replies have no headers: "not found", an acknowledgement,
a stored message requested with `no_hdr` (ADR 12). So a message without a sender's header was not sent by a program.
"""

_NO_RESPONDERS = "503"


class Message(Struct, frozen=True, kw_only=True, gc=False):
    """
    A message as delivered.

    Attributes:
        subject: The subject on which it was published.
        body: The bytes of the body.
        headers: The headers, with names as sent.
        reply: The reply subject; for a message from a consumer, it encodes the position in the stream.
    """

    subject: str
    body: bytes
    headers: Mapping[str, str] = {}
    reply: str = ""

    @property
    def status(self) -> str:
        """The broker's status in a reply, such as "404"; "" for messages of programs."""
        return self.headers.get("Status", "")


class ServerInfo(Struct, frozen=True, kw_only=True):
    """
    The server at the other end.

    Attributes:
        url: Its address.
        name: Its name.
        id: The ID of its process, which changes at each start.
        version: Major, minor and patch.
        cluster: Name of its cluster; "" for a single server. One with leaf nodes reports its own name, which is left out.
        domain: Its JetStream domain; "" for none.
        max_payload_bytes: The largest message, including headers.
        has_jetstream: Whether JetStream is available.
        asks_credentials: Whether it refuses clients without credentials.
        is_loopback: Whether it runs on this host.
        is_encrypted: Whether the connection uses TLS with a verified certificate.
        certificate_ends: When that certificate expires; None without TLS.
    """

    url: str
    name: str = ""
    id: str = ""
    version: tuple[int, int, int] = (0, 0, 0)
    cluster: str = ""
    domain: str = ""
    max_payload_bytes: int = 1 << 20
    has_jetstream: bool = False
    asks_credentials: bool = False
    is_loopback: bool = False
    is_encrypted: bool = False
    certificate_ends: datetime | None = None


class PendingReply:
    """A caller that waits for replies on its own inbox."""

    def __init__(self, subject: str, inbox: str, no_jetstream_at: str = "") -> None:
        """
        Create an empty queue of replies.

        Args:
            subject: The subject of the request.
            inbox: The subject on which replies arrive.
            no_jetstream_at: Address of the server, if JetStream is off there; only another member of its cluster can answer then.
        """
        self.subject = subject
        self.inbox = inbox
        self._no_jetstream_at = no_jetstream_at
        self._arrived: deque[Message | BusError] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def receive(self, answer: Message | BusError) -> None:
        """Add a reply, or the reason why there will be none."""
        self._arrived.append(answer)
        self._wake()

    async def next(self, limit_s: float) -> Message:
        """
        Return the next reply.

        Raises:
            BusUnavailableError: No reply arrived in time, or the connection was lost.
            BusDeniedError: The request was refused.
        """
        if not self._arrived:
            await self._wait(limit_s)
        if not self._arrived:
            raise BusUnavailableError(f"{place_of(self.subject)}: no answer from the broker in {limit_s:g} s")
        answer = self._arrived.popleft()
        if isinstance(answer, BusError):
            raise answer
        if answer.status == _NO_RESPONDERS:
            raise self._no_responders()
        return answer

    async def _wait(self, limit_s: float) -> None:
        """Return when a reply has arrived or the time is over. This takes half the CPU time of a queue and `asyncio.timeout`."""
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(limit_s, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _no_responders(self) -> BusUnavailableError:
        if self._no_jetstream_at and self.subject.startswith(("$JS.", "$KV.", "$O.")):
            return BusUnavailableError(jetstream_is_off(self._no_jetstream_at))
        return NoRespondersError(no_responders(self.subject), stream_of(self.subject))
