"""
Write to streams with an acknowledgement, and read them without consumers: by direct get, or from the leader.

A consumer costs the broker state and messages for each reader, and times out when its leader is lost. A direct get is one
request and its replies, from any replica. A replica may lag behind a write by milliseconds, so a reader that expects a sequence
repeats the request until the replica has it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from ccm_agent.bus.connection.broker_errors import NoRespondersError, place_of, read_only
from ccm_agent.bus.connection.messages import COPIED
from ccm_agent.bus.leader_reads import read_from_leader
from ccm_agent.bus.retry_window import LAG_S, RetryWindow
from ccm_agent.model.errors import (
    BusError,
    BusSetupError,
    BusUnavailableError,
    NotFoundError,
    ProtocolError,
    RevisionError,
    RevisionGoneError,
)
from ccm_agent.model.formats.untrusted_json import decode_foreign

if TYPE_CHECKING:
    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.connection.messages import Message

PAGE_MESSAGES = 1000
PAGE_BYTES = 4 << 20
"""Bytes of one page. The broker sends a page without flow control, so a page must fit into the reader's buffer."""

EXPECTED_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
"""Header: the broker stores the message only if the newest message on its subject has this sequence (0: there is none)."""

_OF_LEADER = 1 << 63  # a leader has all messages
_SEQUENCE_DIGITS = 20
_FOUND_NONE = "404"
_END_OF_PAGE = "204"
_TOO_MANY = "413"
_FRACTION = re.compile(r"\.(\d+)")
_WILD = re.compile(r"[*>]")
T = TypeVar("T")


class Stored(Struct, frozen=True, kw_only=True, gc=False):
    """
    A message as a stream stores it.

    Attributes:
        subject: The subject on which it was published.
        body: The bytes of the body.
        sequence: Its sequence number in the stream, from 1.
        time: When it was stored, by the broker's clock.
        headers: The headers, including the broker's own.
        copied: Whether it is a copy of a stored message that a direct get redirected here. If so, its sender did not write it
            here.
    """

    subject: str
    body: bytes
    sequence: int
    time: datetime
    headers: Mapping[str, str] = {}
    copied: bool = False


class Ack(Struct, frozen=True):
    """
    The acknowledgement of a stored message.

    Attributes:
        sequence: Its sequence number.
        stream: The name of the stream.
        duplicate: Whether the stream already had a message with the same `Nats-Msg-Id`.
    """

    sequence: int
    stream: str = ""
    duplicate: bool = False


class _Fault(Struct, frozen=True):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Answer(Struct, frozen=True):
    error: _Fault | None = None
    seq: int = 0
    stream: str = ""
    duplicate: bool = False


class NoStreamError(BusSetupError):
    """The stream does not exist, or another stream has its subjects."""


class NoRollupError(ProtocolError):
    """The stream does not allow rollups."""


class NoPeersError(BusSetupError):
    """The cluster has fewer servers than the requested replicas."""


async def store(
    connection: Connection,
    subject: str,
    body: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    within_s: float = 0,
) -> Ack:
    """
    Publish a message and return when its stream has stored it, within the time that `Connection.request` allows.

    Raises:
        BusUnavailableError: There was no acknowledgement, but the message may have been stored. The caller should retry soon.
        BusDeniedError, BusSetupError: An operator must change something first.
        RevisionError: An expected revision was not the newest one.
        ProtocolError: The message can never be stored: it is too large, or its headers are not valid.
    """
    answered = await connection.request(subject, body, headers, within_s=within_s)
    answer = decode_answer(subject, answered)
    return Ack(sequence=answer.seq, stream=answer.stream, duplicate=answer.duplicate)


def decode_answer(subject: str, message: Message) -> _Answer:
    """Decode an acknowledgement, or raise the error in it."""
    try:
        answer = decode_foreign(message.body, _Answer)
    except msgspec.MsgspecError as err:
        raise ProtocolError(
            f"{place_of(subject)}: unexpected reply: not a JetStream acknowledgement: {err}"
        ) from err
    if answer.error is not None:
        raise api_error(subject, answer.error.err_code, answer.error.code, answer.error.description)
    return answer


def api_error(what: str, err_code: int, code: int, description: str) -> BusError:
    """Convert an error of JetStream. The codes are in server/errors.json of nats-server."""
    text = f"{place_of(what)}: the broker reported: {description} ({err_code or code})"
    if err_code in (10071, 10164):
        return RevisionError(
            f"{place_of(what)}: it has changed since it was read ({description}); read it again"
        )
    if err_code in (10039, 10076):
        return BusSetupError(f"{text}; enable JetStream for the server and for this account")
    if err_code in (10047, 10023, 10028, 10002):
        return BusSetupError(f"{text}; add storage to the broker, or request less: `ccmctl init --help`")
    if err_code in (10005, 10074):
        return NoPeersError(f"{text}; request fewer replicas, or start more servers")
    if err_code == 10111:
        return NoRollupError(text)
    if err_code in (10059, 10060):
        return NoStreamError(f"{text}; create the streams with `ccmctl init`")
    if err_code in (10054, 10053, 10108, 10165, 10166, 10189, 10190, 10212):
        return ProtocolError(text)
    if err_code == 10014 or code == 404:
        return NotFoundError(text)
    if code in (503, 500, 408):
        return BusUnavailableError(text)
    return BusError(text)


async def call(connection: Connection, subject: str, question: object = None) -> dict[str, Any]:
    """Call JetStream's API and return its reply. Only operators have the permission."""
    body = msgspec.json.encode(question) if question is not None else b""
    message = await connection.request(f"$JS.API.{subject}", body)
    decode_answer(subject, message)
    return decode_foreign(message.body, dict[str, Any])


async def explain_no_responders(connection: Connection, err: NoRespondersError) -> BusError:
    """
    Return a more precise error for a stream that did not answer, or the same error.

    Requests get no reply if JetStream is off for the account, and writes to a mirror get none. Only operators may use this.
    """
    try:
        info = await call(connection, f"STREAM.INFO.{err.stream or 'KV_CCM_NODES'}")
    except NoStreamError:
        return err
    except BusSetupError as found:
        return found
    except BusError:
        return err
    return read_only(err.stream) if info["config"].get("mirror") else err


async def read_last(connection: Connection, stream: str, subject: str, at_least: int = 0) -> Stored | None:
    """
    Return the newest message on one subject, or None.

    Args:
        connection, stream: The connection to the broker, and the name of the stream.
        subject: A subject without wildcards; it is part of the request's subject, so the broker can check the permission.
        at_least: A sequence that is known to be stored; for LAG_S, the request is repeated while a replica lags.

    Raises:
        BusUnavailableError: There was no reply, or no replica had the sequence.
    """
    return await _last(connection, f"$JS.API.DIRECT.GET.{stream}.{subject}", b"", stream, subject, at_least)


async def _last(
    connection: Connection, question: str, body: bytes, stream: str, subject: str, at_least: int
) -> Stored | None:
    patience = RetryWindow()
    while True:
        found = await _ask_last(connection, question, body, stream, subject)
        if at_least == 0 or (found is not None and found.sequence >= at_least):
            return found
        if not await patience.pause():
            break
    if found is None:
        return None  # stored once, but removed since: expired, purged or discarded
    raise _lagging(subject, at_least)


async def _ask_last(
    connection: Connection, question: str, body: bytes, stream: str, subject: str
) -> Stored | None:
    try:
        answer = await connection.request(question, body)
    except NoRespondersError as err:
        page = await read_from_leader(connection, stream, {"last_by_subj": subject}, err)
        return Stored(**page.messages[0].fields()) if page.messages else None
    return None if answer.status == _FOUND_NONE else _stored(question, answer)


async def read_all(
    connection: Connection, stream: str, pattern: str, from_sequence: int = 1, since: datetime | None = None
) -> AsyncIterator[Stored]:
    """
    Yield the messages that match a pattern, oldest first, page by page, starting at a sequence or a time.

    Each page may come from a different replica. If a replica has fewer messages than announced, it lags, and the request is
    repeated for LAG_S. After that, the announced messages are considered removed.
    """
    sequence, announced, patience = max(1, from_sequence), 0, None
    while True:
        question: dict[str, Any] = {
            "next_by_subj": pattern,
            "batch": PAGE_MESSAGES,
            "max_bytes": PAGE_BYTES,
        }
        question |= {"start_time": since} if since is not None else {"seq": sequence}
        page = await _page(connection, stream, question)
        for each in page.messages:
            yield each
        announced -= len(page.messages)
        if page.messages:
            sequence, since, patience = page.messages[-1].sequence + 1, None, None
        if page.pending < announced:
            patience = patience or RetryWindow()
            if await patience.pause():
                continue
        announced = page.pending
        if not announced:
            return


async def read_first(connection: Connection, stream: str, pattern: str, **begin: Any) -> Stored | None:
    """Return the oldest stored message that matches a pattern, perhaps since a `start_time`, according to one replica."""
    page = await _page(connection, stream, {"next_by_subj": pattern, "batch": 1, **(begin or {"seq": 1})})
    return page.messages[0] if page.messages else None


async def read_newest(
    connection: Connection, stream: str, patterns: Sequence[str], at_least: int = 0
) -> list[Stored]:
    """Return the newest message on each subject that matches one of the patterns, in storage order. See `read_newest_as`."""
    found = await read_newest_as(connection, stream, patterns, lambda each: each, at_least)
    return sorted(found, key=lambda each: each.sequence)


async def read_newest_as(
    connection: Connection,
    stream: str,
    patterns: Sequence[str],
    build: Callable[[Stored], T],
    at_least: int = 0,
) -> list[T]:
    """
    Return the newest message on each subject that matches one of the patterns, in any order.

    The broker refuses more than about a thousand subjects; then all matching messages are read, and older ones dropped. The
    patterns are in the request's body, so the broker cannot check permissions for them.

    Args:
        connection: The connection to the broker.
        stream: Name of the stream.
        patterns: Subjects, with or without wildcards.
        build: Converts each message when it arrives, because its headers need more memory than most results. It also gets
            messages that are not the newest.
        at_least: See `read_last`; the sequence may be on any matching subject.

    Raises:
        BusUnavailableError: There was no reply, or no replica had the sequence.
    """
    if not patterns:  # the broker rejects an empty list
        return []
    if len(patterns) == 1 and not _WILD.search(patterns[0]):
        body = msgspec.json.encode({"last_by_subj": patterns[0]})
        last = await _last(connection, f"$JS.API.DIRECT.GET.{stream}", body, stream, patterns[0], at_least)
        return [build(last)] if last is not None else []
    patience = RetryWindow()
    while True:
        found, up_to = await _newest(connection, stream, patterns, build)
        if up_to >= at_least or not await patience.pause():
            break
    if found and up_to < at_least:
        raise _lagging(stream, at_least)
    return list(found.values())


async def read_as_of(
    connection: Connection, stream: str, subject: str, sequence: int, is_foreign: Callable[[Stored], bool]
) -> Stored | None:
    """
    Return the message that was the newest on a subject at a sequence of the stream; None if there was none.

    Each reply comes from one replica, which may lag, so it is used only if it shows that the replica had that sequence.

    Args:
        connection: The connection to the broker.
        stream: Name of the stream.
        subject: A subject without wildcards.
        sequence: The sequence of a message that is known to be stored, on any subject.
        is_foreign: Returns whether a message was not written by a client; such messages are skipped.

    Raises:
        RevisionGoneError: The stream keeps only newer messages.
        BusUnavailableError: There was no reply, or no replica had the sequence.
    """
    patience = RetryWindow()
    while True:
        found, up_to = await _newest(connection, stream, [subject], lambda each: each)
        newest = found.get(subject)
        if newest is not None and (newest.sequence > sequence or is_foreign(newest)):
            kept = [each async for each in read_all(connection, stream, subject)]
            if kept and kept[-1].sequence >= newest.sequence and up_to >= sequence:
                return _last_before([each for each in kept if not is_foreign(each)], subject, sequence)
        elif newest is not None and up_to >= sequence:
            return newest
        if not await patience.pause():
            break
    if newest is None:
        return None
    raise _lagging(subject, sequence)


def _last_before(kept: Sequence[Stored], subject: str, sequence: int) -> Stored:
    older = [each for each in kept if each.sequence <= sequence]
    if not older:
        oldest = f" (the oldest is {kept[0].sequence})" if kept else ""
        raise RevisionGoneError(
            f"{subject}: no revision up to {sequence} is stored{oldest}; assign again with the current data"
        )
    return older[-1]


def _lagging(what: str, sequence: int) -> BusUnavailableError:
    return BusUnavailableError(
        f"{what}: revision {sequence} is stored, and after {LAG_S:g} s no replica shows it; check the cluster"
    )


async def _newest(
    connection: Connection, stream: str, patterns: Sequence[str], build: Callable[[Stored], T]
) -> tuple[dict[str, T], int]:
    """Return the newest message by subject, and the last sequence of the replica that answered."""
    found: dict[str, T] = {}
    up_to = 0
    question: dict[str, Any] = {
        "multi_last": list(patterns),
        "batch": PAGE_MESSAGES,
        "max_bytes": PAGE_BYTES,
    }
    try:
        while True:
            page = await _page(connection, stream, question)
            up_to = page.up_to
            found.update((each.subject, build(each)) for each in page.messages)
            if not page.pending or not page.messages:
                break
            question |= {"seq": page.messages[-1].sequence + 1, "up_to_seq": page.up_to}
    except _TooManyError:
        found.clear()
        for pattern in patterns:
            async for each in read_all(connection, stream, pattern):
                found[each.subject] = build(each)
                up_to = max(up_to, each.sequence)
    return found, up_to


class _TooManyError(BusError):
    """More subjects match than the broker supports in one request."""


class _Page(Struct):
    """Some messages, the number of remaining ones, and the sequence of the snapshot (multi_last)."""

    messages: list[Stored] = []
    pending: int = 0
    up_to: int = 0


async def _page(connection: Connection, stream: str, question: Mapping[str, Any]) -> _Page:
    try:
        return await _direct_page(connection, stream, question)
    except NoRespondersError as err:
        page = await read_from_leader(connection, stream, question, err)
    return _Page([Stored(**one.fields()) for one in page.messages], int(page.has_more), _OF_LEADER)


async def _direct_page(connection: Connection, stream: str, question: Mapping[str, Any]) -> _Page:
    subject = f"$JS.API.DIRECT.GET.{stream}"
    page = _Page()
    with connection.asking(subject) as waiting:
        await connection.publish(subject, msgspec.json.encode(question), reply=waiting.inbox)
        while True:
            answer = await waiting.next(connection.settings.answer_s)
            if answer.status == _FOUND_NONE:
                return page
            if answer.status == _TOO_MANY:
                raise _TooManyError(f"{stream}: too many subjects at once")
            if answer.status == _END_OF_PAGE:
                page.pending, page.up_to = _end_of_page(subject, answer)
                return page
            page.messages.append(_stored(subject, answer))


def _end_of_page(question: str, answer: Message) -> tuple[int, int]:
    pending, up_to = (answer.headers.get(name, "0") for name in ("Nats-Num-Pending", "Nats-UpTo-Sequence"))
    try:
        return parse_sequence(pending), parse_sequence(up_to)
    except ValueError as err:
        raise ProtocolError(f"{place_of(question)}: unexpected reply: {err}") from err


def _stored(question: str, answer: Message) -> Stored:
    if answer.status:
        raise BusError(f"{place_of(question)}: the broker answered with status {answer.status}")
    headers = answer.headers
    try:
        return Stored(
            subject=headers["Nats-Subject"],
            body=answer.body,
            sequence=parse_sequence(headers["Nats-Sequence"]),
            time=parse_time(headers["Nats-Time-Stamp"]),
            headers=headers,
            copied=headers.get("Nats-Stream") == COPIED,
        )
    except (KeyError, ValueError) as err:
        raise ProtocolError(f"{place_of(question)}: unexpected reply: not a stored message: {err}") from err


def parse_sequence(text: str) -> int:
    """
    Parse a sequence number in a header.

    Raises:
        ValueError: The text is not a 64-bit number.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= _SEQUENCE_DIGITS):
        raise ValueError(f"{text[:30]!r} is not a valid sequence number")
    return int(text)


def parse_time(text: str) -> datetime:
    """
    Parse the broker's nanosecond times, truncated to Python's microseconds.

    Raises:
        ValueError: The text is not a time, or the time is outside of Python's calendar.
    """
    cut = _FRACTION.sub(lambda found: "." + found[1][:6].ljust(6, "0"), text)
    try:
        return datetime.fromisoformat(cut).astimezone(UTC)
    except OverflowError as err:
        raise ValueError(f"{text}: the time is out of range") from err
