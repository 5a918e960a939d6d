"""
Parse the server's protocol: lines, and messages with their bytes.

nats-py's parser splits a line at any white space in the sense of regular expressions, such as a vertical tab. A server splits
only at space and tab. So with nats-py's parser, a subject with a vertical tab ends the connection of each subscriber.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client

LINE_LIMIT_BYTES = 1 << 20
"""A longer line is refused. The longest valid line is the server's INFO with the members of its cluster."""

MESSAGE_LIMIT_BYTES = 1 << 27
"""A larger message is refused before it is read. It is twice the largest `max_payload`, because a server adds headers."""

DIGITS = 19
"""The maximum digits of a size or subscription ID, which are 64-bit numbers."""

_END = b"\r\n"
_DELIVERIES = (b"MSG", b"HMSG")


class _Delivery(Struct, gc=False):
    """A message whose control line has been read."""

    subject: bytes
    sid: int
    reply: bytes
    headers_size: int
    size: int


class Parser:
    """Replaces nats-py's parser, and calls the client's methods."""

    def __init__(self, client: Client) -> None:
        self._client: Any = client
        self.reset()

    def reset(self) -> None:
        """Discard the buffered data, for a new connection."""
        self._buffer = bytearray()
        self._delivery: _Delivery | None = None

    async def parse(self, data: bytes = b"") -> None:
        """
        Handle the next bytes, which may begin and end anywhere.

        Raises:
            nats.errors.ProtocolError: The other end is not a NATS server.
        """
        self._buffer += data
        while (line := self._next()) is not None:
            await self._take(line)

    async def read_reply(self, read: Callable[[], Awaitable[bytes]]) -> bytes:
        """
        Return the server's reply to a login. Handle pings and INFO that arrive before it.

        A frame of a websocket may contain several lines, and end in a line.

        Raises:
            nats.errors.ProtocolError: The other end is not a NATS server.
        """
        data = await read()
        while data.startswith((b"PING", b"INFO")):
            line, end, data = data.partition(_END)
            if end:
                await self.parse(line + end)
                data = data or await read()
                continue
            more = await read()
            if len(line) > LINE_LIMIT_BYTES:
                raise _protocol_error()
            data = line + more if more else b""
        return data

    def _next(self) -> bytes | None:
        """Deliver messages up to the next line of another kind, and return that line. None means that more bytes are needed."""
        waiting = self._delivery
        if waiting is not None and len(self._buffer) < waiting.size + len(_END):
            return None
        data, at = bytes(self._buffer), 0
        try:
            while at < len(data):
                if (delivery := self._delivery) is not None:
                    body_at, end = at + delivery.headers_size, at + delivery.size
                    if len(data) < end + len(_END):
                        break
                    self._delivery = None
                    block, body, at = data[at:body_at], data[body_at:end], end + len(_END)
                    self._client.deliver(delivery.sid, delivery.subject, delivery.reply, body, block)
                    continue
                end = data.find(_END, at)
                if end < 0:
                    if len(data) - at > LINE_LIMIT_BYTES:
                        raise _protocol_error()
                    break
                line, at = data[at:end], end + len(_END)
                word, _, rest = line.partition(b" ")
                if word not in _DELIVERIES:
                    return line
                self._delivery = _delivery(rest.split(b" "), has_headers=word == b"HMSG")
        finally:
            del self._buffer[:at]
        return None

    async def _take(self, line: bytes) -> None:
        word, _, rest = line.partition(b" ")
        if word == b"PING":
            await self._client._process_ping()
        elif word == b"PONG":
            await self._client._process_pong()
        elif word == b"INFO":
            await self._client._process_info(_info(rest))
        elif word == b"-ERR":
            await self._client._process_err(rest.strip().decode("utf-8", "replace").lower())
        elif word != b"+OK":
            raise _protocol_error()


def _info(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise _protocol_error() from None
    if not isinstance(found, dict):
        raise _protocol_error()
    return found


def _delivery(fields: list[bytes], *, has_headers: bool) -> _Delivery:
    """Parse `subject sid [reply] [size of the headers] size`; the header size is present only with headers."""
    first_size = len(fields) - (2 if has_headers else 1)
    numbers = (fields[1], *fields[first_size:]) if first_size in (2, 3) else ()
    # One check for all numbers, because every message has two or three.
    if not (all(numbers) and b"".join(numbers).isdigit() and max(map(len, numbers)) <= DIGITS):
        raise _protocol_error()
    headers_size, size = int(fields[first_size]) if has_headers else 0, int(fields[-1])
    if headers_size > size or size > MESSAGE_LIMIT_BYTES:
        raise _protocol_error()
    return _Delivery(
        subject=fields[0],
        sid=int(fields[1]),
        reply=fields[2] if first_size == 3 else b"",
        headers_size=headers_size,
        size=size,
    )


def _protocol_error() -> Exception:
    import nats.errors

    return nats.errors.ProtocolError()
