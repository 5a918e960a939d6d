"""
Reading a stream by a consumer: for who may not read it by direct get, because others write in it.

The answer of a direct get goes wherever its asker says, under the subject that he says. What a consumer delivers keeps the
subject that it was stored on, wherever it is sent: nobody takes it for something else (ADR 60). It costs the broker a consumer
for each reading, which is gone after some seconds, so this is for the few who need it (ADR 11).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.bus.broker_errors import place_of
from ccm_agent.bus.headers import was_stored
from ccm_agent.bus.messages import Message
from ccm_agent.bus.streams import PAGE_BYTES, Stored, decode_answer
from ccm_agent.model.errors import BusUnavailableError, ProtocolError
from ccm_agent.model.untrusted_json import decode_foreign

if TYPE_CHECKING:
    from ccm_agent.bus.connection import Connection

log = logging.getLogger(__name__)

BATCH = 1000
IDLE_S = 5.0
"""After so long without a question the broker forgets a consumer."""

LARGEST = 100_000
"""More messages than this are no answer to anything that is asked here."""

LARGEST_BYTES = 256 << 20
"""Nor are more bytes than the stream of registrations has room for."""

PAUSE_S = 1.0
"""The broker does not say that a page is full where the last message fits to the byte: silence after messages means that."""

_NO_MORE = ("404", "408")
_FULL = "409"
"""The next message does not fit into what was asked for."""

_NANOSECONDS = 1_000_000_000


async def read_newest_by_consumer(connection: Connection, stream: str, pattern: str) -> list[Stored]:
    """
    The newest message on each subject that fits a pattern, in the order in which they were stored; as `streams.read_newest`.

    Raises:
        BusDeniedError: The broker allows us no consumer.
        BusUnavailableError: No answer, or it broke off.
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
                    f"{stream}: more than {LARGEST_BYTES} bytes fit {pattern}, which is too many"
                )
            left = left - len(page.messages) if page.has_more else 0
            # one that is larger than a page comes by itself
            wish = {"batch": BATCH, "max_bytes": PAGE_BYTES} if page.messages else {"batch": 1}
        return sorted(found.values(), key=lambda one: one.sequence)
    finally:
        await connection.unsubscribe(made)


async def _make(connection: Connection, stream: str, name: str, pattern: str) -> int:
    """Make a consumer that holds the newest messages; how many there are."""
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
        raise ProtocolError(f"{stream}: {pending} messages fit {pattern}, more than can be read at once")
    return pending


class _Page(Struct):
    """What one question brought, and whether another one may bring more."""

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
        if message.status in _NO_MORE:  # what was announced has been removed in between
            page.has_more = False
            return page
        if message.status == _FULL and "max_bytes" in wish:
            return page
        if message.status:
            raise BusUnavailableError(f"{place_of(question)}: the broker answers {message.status}")
        page.messages.append(stored_of(message))
    return page


def stored_of(message: Message) -> Stored:
    """
    What a consumer delivered, as the message that is stored.

    Raises:
        ProtocolError: No consumer delivered it.
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
