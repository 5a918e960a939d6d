"""
Parse the server's protocol: lines, and messages with their bytes.

nats-py's parser splits a line at any white space of regular expressions, such as a vertical tab. A server splits only at space
and tab, so a subject or reply subject with a vertical tab ended the connection of each subscriber.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from nats.aio.client import Client

LINE_LIMIT_BYTES = 1 << 20
"""A longer line is refused. The longest valid line is the server's INFO with the members of its cluster."""

DIGITS = 19
"""The most digits of a size or subscription ID, which are 64-bit numbers."""

_END = b"\r\n"


class _Delivery(Struct):
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
        while self._buffer:
            if self._delivery is not None:
                if len(self._buffer) < self._delivery.size + len(_END):
                    return
                await self._deliver(self._delivery)
                continue
            end = self._buffer.find(_END)
            if end < 0:
                if len(self._buffer) > LINE_LIMIT_BYTES:
                    raise _protocol_error()
                return
            line = bytes(self._buffer[:end])
            del self._buffer[: end + len(_END)]
            await self._take(line)

    async def _deliver(self, delivery: _Delivery) -> None:
        content = bytes(self._buffer[: delivery.size])
        del self._buffer[: delivery.size + len(_END)]
        self._delivery = None
        headers, body = content[: delivery.headers_size], content[delivery.headers_size :]
        await self._client._process_msg(delivery.sid, delivery.subject, delivery.reply, body, headers or None)

    async def _take(self, line: bytes) -> None:
        word, _, rest = line.partition(b" ")
        if word in (b"MSG", b"HMSG"):
            self._delivery = _delivery(rest.split(b" "), has_headers=word == b"HMSG")
        elif word == b"PING":
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
    """`subject sid [reply] [size of the headers] size`; the third is there with headers alone."""
    sizes = 2 if has_headers else 1
    numbers = [*fields[1:2], *fields[-sizes:]]
    if len(fields) - sizes not in (2, 3) or not all(map(_is_number, numbers)):
        raise _protocol_error()
    return _Delivery(
        subject=fields[0],
        sid=int(fields[1]),
        reply=fields[2] if len(fields) - sizes == 3 else b"",
        headers_size=int(fields[-2]) if has_headers else 0,
        size=int(fields[-1]),
    )


def _is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) <= DIGITS


def _protocol_error() -> Exception:
    import nats.errors

    return nats.errors.ProtocolError()
