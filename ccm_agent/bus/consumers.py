"""
Read a stream through a consumer, for users who may not use direct get because other users write to the stream.

The requester of a direct get chooses the subject of the reply. A message that a consumer delivers keeps the subject that it was
stored on, so it cannot be mistaken for another message (ADR 60). Each read costs the broker a short-lived consumer, so only the
few users that need it read this way (ADR 11).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.bus.connection.broker_errors import place_of
from ccm_agent.bus.connection.headers import was_stored
from ccm_agent.bus.connection.messages import Message
from ccm_agent.bus.streams import PAGE_BYTES, Stored, decode_answer
from ccm_agent.model.errors import BusUnavailableError, ProtocolError
from ccm_agent.model.formats.untrusted_json import decode_foreign

if TYPE_CHECKING:
    from ccm_agent.bus.connection.connection import Connection

log = logging.getLogger(__name__)

BATCH = 1000
IDLE_S = 5.0
"""Seconds without a request after which the broker removes a consumer."""

LARGEST = 100_000
"""The maximum number of messages in one read."""

LARGEST_BYTES = 256 << 20
"""The maximum bytes of one read: the size limit of the stream of registrations."""

PAUSE_S = 1.0
"""Seconds of silence that end a page: the broker does not report a full page if the last message fits exactly."""

_NO_MORE = ("404", "408")
_FULL = "409"
"""The status if the next message does not fit into the requested size."""

_NANOSECONDS = 1_000_000_000


async def read_newest_by_consumer(connection: Connection, stream: str, pattern: str) -> list[Stored]:
    """
    Return the newest message on each subject that matches a pattern, in storage order, as `streams.read_newest` does.

    Raises:
        BusDeniedError: The broker does not allow us to create a consumer.
        BusUnavailableError: There was no answer, or it was interrupted.
    """
    name = f"read-{secrets.token_hex(8)}"
    arrived: asyncio.Queue[Message] = asyncio.Queue()
    inbox = f"{connection.settings.inbox_prefix}.{name}"
    made = await connection.subscribe([inbox], arrived.put_nowait)
    try:
        left = await _make(connection, stream, name, pattern)
        found: dict[str, Stored] = {}
        size = 0
        question = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
        wish: dict[str, Any] = {"batch": BATCH, "max_bytes": PAGE_BYTES}
        while left > 0:
            wish["batch"] = min(left, wish["batch"])
            body = msgspec.json.encode({**wish, "no_wait": True})
            await connection.publish(question, body, reply=inbox, confirm=True)
            page = await _page(connection, arrived, question, wish)
            found |= {stored.subject: stored for stored in page.messages}
            size += sum(len(stored.body) for stored in page.messages)
            if size > LARGEST_BYTES:
                raise ProtocolError(
                    f"{stream}: more than {LARGEST_BYTES} bytes match {pattern}, which is too much"
                )
            left = left - len(page.messages) if page.has_more else 0
            # a message larger than a page is sent alone
            wish = {"batch": BATCH, "max_bytes": PAGE_BYTES} if page.messages else {"batch": 1}
        return sorted(found.values(), key=lambda one: one.sequence)
    finally:
        await connection.unsubscribe(made)


async def _make(connection: Connection, stream: str, name: str, pattern: str) -> int:
    """Create a consumer of the newest messages; returns their number."""
    config = {
        "name": name,
        "deliver_policy": "last_per_subject",
        "ack_policy": "none",
        "replay_policy": "instant",
        "filter_subject": pattern,
        "inactive_threshold": int(IDLE_S * _NANOSECONDS),
        "mem_storage": True,
        "num_replicas": 1,
    }
    subject = f"$JS.API.CONSUMER.CREATE.{stream}.{name}.{pattern}"
    question = msgspec.json.encode({"stream_name": stream, "config": config, "action": "create"})
    answer = await connection.request(subject, question)
    decode_answer(subject, answer)
    pending = decode_foreign(answer.body, dict[str, Any]).get("num_pending", 0)
    if not isinstance(pending, int) or not 0 <= pending <= LARGEST:
        raise ProtocolError(f"{stream}: {pending} messages match {pattern}, more than can be read at once")
    return pending


class _Page(Struct):
    """The messages of one request, and whether there may be more."""

    messages: list[Stored]
    has_more: bool = True


async def _page(
    connection: Connection, arrived: asyncio.Queue[Message], question: str, wish: dict[str, Any]
) -> _Page:
    page = _Page([])
    while len(page.messages) < wish["batch"]:
        try:
            async with asyncio.timeout(PAUSE_S if page.messages else connection.settings.answer_s):
                message = await arrived.get()
        except TimeoutError:
            if page.messages:
                return page
            raise BusUnavailableError(
                f"{place_of(question)}: no answer from the broker in {connection.settings.answer_s:g} s"
            ) from None
        if message.status in _NO_MORE:  # the announced message has been removed since
            page.has_more = False
            return page
        if message.status == _FULL and "max_bytes" in wish:
            return page
        if message.status:
            raise BusUnavailableError(
                f"{place_of(question)}: the broker answered with status {message.status}"
            )
        page.messages.append(convert_delivered(message))
    return page


def convert_delivered(message: Message) -> Stored:
    """
    Convert a delivered message into the stored one.

    Raises:
        ProtocolError: The message was not delivered by a consumer.
    """
    # $JS.ACK.<stream>.<consumer>.<tries>.<sequence>.<place>.<time>.<pending>, or with domain and account before the stream
    tokens = message.reply.split(".")
    tokens = tokens[4:] if len(tokens) >= 11 else tokens[2:]
    try:
        sequence, nanoseconds = int(tokens[3]), int(tokens[5])
    except (IndexError, ValueError) as err:
        raise ProtocolError(f"{message.subject}: not delivered by a consumer") from err
    return Stored(
        subject=message.subject,
        body=message.body,
        sequence=sequence,
        time=datetime.fromtimestamp(nanoseconds / _NANOSECONDS, UTC),
        headers=message.headers,
        copied=was_stored(message.headers),
    )
