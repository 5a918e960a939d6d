"""A client that sends bytes as they are: what no client library lets a test send."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import nkeys
from msgspec import Struct

from ccm_agent.testing.nats_server import NatsServer

_HELLO: dict[str, Any] = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
_ANSWER_S = 30.0
_AT_ONCE = 200
"""So many messages are sent before the server is asked whether it is still there."""

_JWT = re.compile(r"BEGIN NATS USER JWT-+\s*(\S+)")
_SEED = re.compile(r"BEGIN USER NKEY SEED-+\s*(\S+)")


class RawMessage(Struct, frozen=True):
    """A message, its header block as it is sent."""

    subject: bytes
    body: bytes = b""
    headers: bytes = b""
    reply: bytes = b""

    def encode(self) -> bytes:
        """What goes over the wire."""
        to = self.subject + (b" " + self.reply if self.reply else b"")
        if self.headers:
            line = b"HPUB %s %d %d\r\n" % (to, len(self.headers), len(self.headers) + len(self.body))
        else:
            line = b"PUB %s %d\r\n" % (to, len(self.body))
        return line + self.headers + self.body + b"\r\n"


class RawClient:
    """
    Publishes without looking at what.

    Attributes:
        refused: What the server said against it.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.refused: list[str] = []
        self._reader = reader
        self._writer = writer

    async def publish(self, subject: bytes, body: bytes, headers: bytes = b"", reply: bytes = b"") -> None:
        """Send one message, and return when the server has taken it."""
        await self.publish_all([RawMessage(subject, body, headers, reply)])
        assert not self.refused, self.refused

    async def publish_all(self, messages: Sequence[RawMessage]) -> None:
        """Send messages, and return when the server has taken, or refused, all of them."""
        for first in range(0, max(1, len(messages)), _AT_ONCE):
            self._writer.write(b"".join(one.encode() for one in messages[first : first + _AT_ONCE]))
            self._writer.write(b"PING\r\n")
            async with asyncio.timeout(_ANSWER_S):
                while (answer := await self._reader.readline()) != b"PONG\r\n":
                    assert answer, f"the server ended the connection: {self.refused[-1:]}"
                    if answer.startswith(b"-ERR"):
                        self.refused.append(answer.decode().strip())

    async def store(self, subject: bytes, body: bytes, headers: bytes = b"") -> None:
        """Send one message to a stream, and return when it is stored: `publish` returns before that."""
        inbox = b"_INBOX.%s" % uuid4().hex.encode()
        message = RawMessage(subject, body, headers, inbox).encode()
        self._writer.write(b"SUB %s 0\r\nUNSUB 0 1\r\n%s" % (inbox, message))
        async with asyncio.timeout(_ANSWER_S):
            while not (line := await self._reader.readline()).startswith(b"MSG "):
                assert line, "the server ended the connection"
            answer = json.loads(await self._reader.readexactly(int(line.split()[-1])))
        await self._reader.readexactly(2)
        assert "error" not in answer, answer

    async def subscribe(self, patterns: Sequence[str]) -> None:
        """Listen on some subjects, and return when the server has taken them all."""
        lines = "".join(f"SUB {pattern} {number}\r\n" for number, pattern in enumerate(patterns))
        self._writer.write(lines.encode())
        await self.publish_all([])
        assert not self.refused, self.refused

    async def heard(self) -> AsyncIterator[str]:
        """The subject of each message as it arrives, however it is made."""
        while line := await self._reader.readline():
            verb, *words = line.split()
            if verb in (b"MSG", b"HMSG"):
                yield words[0].decode("utf-8", "replace")
                await self._reader.readexactly(int(words[-1]) + 2)
            elif verb == b"PING":
                self._writer.write(b"PONG\r\n")


@contextlib.asynccontextmanager
async def raw_client(
    server: NatsServer, user: str = "", claims: Mapping[str, str] | None = None
) -> AsyncIterator[RawClient]:
    """
    A connection of such a client: of a user by the credentials in the server's directory, or else by name.

    `claims` are fields of CONNECT.
    """
    address = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        info = json.loads((await reader.readline()).removeprefix(b"INFO "))
        hello = _HELLO | _proof(server, user, info) | dict(claims or {})
        writer.write(b"CONNECT " + json.dumps(hello).encode() + b"\r\n")
        yield RawClient(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _proof(server: NatsServer, user: str, info: dict[str, Any]) -> dict[str, str]:
    """Who one is, as a server wants to see it."""
    creds = server.settings.directory / f"{user}.creds"
    if not user or not creds.exists():
        return {"user": user, "pass": user} if user else {}
    text = creds.read_text()
    jwt, seed = _JWT.search(text), _SEED.search(text)
    assert jwt is not None
    assert seed is not None
    signed = nkeys.from_seed(bytearray(seed[1].encode())).sign(info["nonce"].encode())
    return {"jwt": jwt[1], "sig": base64.urlsafe_b64encode(signed).decode().rstrip("=")}
