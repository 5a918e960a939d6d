"""
Reading what a server sends: lines, and messages with their bytes.

nats-py's own parser divides a line at what a regular expression takes for white space, a vertical tab among it. A server divides
at space and tab only, so a subject or a reply subject with a vertical tab ended the connection of each client that heard it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from nats.aio.client import Client

LINE_LIMIT_BYTES = 1 << 20
"""The longest line is what a server says about its cluster when a client connects; no line is as long as this."""

DIGITS = 19
"""No size and no subscription has more: they are numbers of 64 bits."""

_END = b"\r\n"


class _Delivery(Struct):
    """A message of which the line has been read."""

    subject: bytes
    sid: int
    reply: bytes
    headers_size: int
    size: int


class Parser:
    """In the place of nats-py's parser: what the server sends goes to the client's methods."""

    def __init__(self, client: Client) -> None:
        self._client: Any = client
        self.reset()

    def reset(self) -> None:
        """Forget what came so far; a new connection begins."""
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
