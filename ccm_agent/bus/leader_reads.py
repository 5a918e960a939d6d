"""
Read a stream that does not allow direct gets, by requests to its leader.

The project's own streams allow direct gets. Buckets and streams of other programs may not allow them, such as the stream that
Choria CCM's `registration init` creates. Old buckets may not allow them either. Each request returns one message, so this is
slower than a direct get.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.bus.connection.broker_errors import NoRespondersError, is_not_direct, is_ours
from ccm_agent.bus.connection.headers import MalformedHeadersError, parse_headers, was_stored
from ccm_agent.model.errors import BusDeniedError, ProtocolError
from ccm_agent.model.formats.untrusted_json import decode_foreign

if TYPE_CHECKING:
    from ccm_agent.bus.connection.connection import Connection

PAGE_MESSAGES = 256
PAGE_BYTES = 4 << 20
_NO_MESSAGE = 10037
_OLDEST = datetime.min.replace(tzinfo=UTC)


class LeaderMessage(Struct, frozen=True, gc=False):
    """
    A stored message as the leader returns it.

    Attributes:
        subject, seq, time: The message's subject, sequence and time; times are truncated to microseconds.
        data: The body.
        hdrs: The header block, as its publisher wrote it.
    """

    subject: str
    seq: int
    time: datetime
    data: bytes = b""
    hdrs: bytes = b""

    def fields(self) -> dict[str, Any]:
        """
        Return the fields of a `streams.Stored`. `copied` is true if a direct get redirected the message to its subject (ADR 12).
        """
        found = {"subject": self.subject, "body": self.data, "sequence": self.seq, "time": self.time}
        if not self.hdrs:
            return found
        try:
            headers = parse_headers(self.hdrs)
        except MalformedHeadersError:
            return {**found, "copied": True}
        return {**found, "headers": headers, "copied": was_stored(headers)}


class LeaderPage(Struct, frozen=True):
    """Some messages, and whether the stream has more of them."""

    messages: list[LeaderMessage]
    has_more: bool = False


class _Fault(Struct, frozen=True):
    code: int = 0
    err_code: int = 0


class _Answer(Struct, frozen=True):
    error: _Fault | None = None
    message: LeaderMessage | None = None


async def read_from_leader(
    connection: Connection, stream: str, question: Mapping[str, Any], cause: NoRespondersError
) -> LeaderPage:
    """
    Read messages from the stream's leader, after a direct get for them got no reply.

    Args:
        connection: The connection to the broker.
        stream: Name of the stream.
        question: The body of the direct get: `last_by_subj`, `multi_last` or `next_by_subj`.
        cause: The error of the direct get. It is raised again if the stream does not exist or has no leader.

    Raises:
        NoRespondersError: The stream cannot be read in this way either; the message gives the reason.
        BusUnavailableError: The leader stopped answering.
    """
    patterns = [question["last_by_subj"]] if "last_by_subj" in question else question.get("multi_last")
    if patterns is None:
        return await _read_on(connection, stream, question, cause)
    # The newest message of each subject. For a subject without wildcards, that is one request.
    newest: dict[str, LeaderMessage] = {}
    for pattern in patterns:
        if "*" not in pattern and ">" not in pattern:
            found = await _get(connection, stream, {"last_by_subj": pattern}, cause)
            newest |= {found.subject: found} if found is not None else {}
            continue
        more, wish = True, {"next_by_subj": pattern, "seq": 1}
        while more:
            page = await _read_on(connection, stream, wish, cause)
            newest |= {one.subject: one for one in page.messages}
            more = page.has_more
            wish["seq"] = page.messages[-1].seq + 1 if page.messages else 0
    first = question.get("seq", 0)
    return LeaderPage(sorted((one for one in newest.values() if one.seq >= first), key=lambda one: one.seq))


async def _read_on(
    connection: Connection, stream: str, question: Mapping[str, Any], cause: NoRespondersError
) -> LeaderPage:
    """Return the next messages that match a pattern, starting at a sequence or a time."""
    since = question.get("start_time", _OLDEST)
    sequence, size, messages = question.get("seq", 1), 0, list[LeaderMessage]()
    limit = min(PAGE_MESSAGES, question.get("batch", PAGE_MESSAGES))
    while True:
        wish = {"next_by_subj": question["next_by_subj"], "seq": sequence}
        found = await _get(connection, stream, wish, cause)
        if found is None:
            return LeaderPage(messages)
        if len(messages) >= limit or size >= PAGE_BYTES:
            return LeaderPage(messages, has_more=True)
        sequence = found.seq + 1
        if found.time >= since:
            messages.append(found)
            size += len(found.data)


async def _get(
    connection: Connection, stream: str, question: Mapping[str, Any], cause: NoRespondersError
) -> LeaderMessage | None:
    subject = f"$JS.API.STREAM.MSG.GET.{stream}"
    try:
        reply = await connection.request(subject, msgspec.json.encode(question))
    except BusDeniedError as err:
        if is_ours(subject):  # our streams allow direct gets, so this one does not exist or has no leader
            raise cause from None
        raise is_not_direct(subject) from err
    except NoRespondersError:
        raise cause from None
    try:
        answer = decode_foreign(reply.body, _Answer)
    except msgspec.MsgspecError as err:
        raise ProtocolError(f"{stream}: unexpected reply: not a stored message: {err}") from err
    if answer.error is None:
        return answer.message
    if answer.error.err_code == _NO_MESSAGE:
        return None
    raise cause
