"""What a server sends, in pieces of any size, with subjects of any bytes."""

from __future__ import annotations

from typing import Any

import nats.errors
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.bus.connection.parser import LINE_LIMIT_BYTES, MESSAGE_LIMIT_BYTES, Parser


class FakeClient:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.given: list[tuple[Any, ...]] = []

    def deliver(self, *message: Any) -> None:
        self.given.append(message)

    async def _process_ping(self) -> None:
        self.given.append(("ping",))

    async def _process_pong(self) -> None:
        self.given.append(("pong",))

    async def _process_info(self, info: Any) -> None:
        self.given.append(("info", info))

    async def _process_err(self, text: str) -> None:
        self.given.append(("error", text))


async def parsed(*pieces: bytes) -> list[tuple[Any, ...]]:
    client = FakeClient()
    parser = Parser(client)  # type: ignore[arg-type]
    for piece in pieces:
        await parser.parse(piece)
    return client.given


STREAM = (
    b'INFO {"version":"2.15.0"} \r\n+OK\r\nMSG a.b 7 2\r\nhi\r\nPING\r\n'
    b"MSG a.b 7 _INBOX.x 0\r\n\r\nHMSG a.b 8 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    b"HMSG a 9 r 14 14\r\nNATS/1.0 404\r\n\r\nPONG\r\n-ERR 'Permissions Violation for Publish to \"A\"'\r\n"
)
GIVEN: list[tuple[Any, ...]] = [
    ("info", {"version": "2.15.0"}),
    (7, b"a.b", b"", b"hi", b""),
    ("ping",),
    (7, b"a.b", b"_INBOX.x", b"", b""),
    (8, b"a.b", b"", b"hi", b"NATS/1.0\r\n\r\n"),
    (9, b"a", b"r", b"", b"NATS/1.0 404\r\n"),
    ("pong",),
    ("error", "'permissions violation for publish to \"a\"'"),
]


async def test_the_servers_messages_reach_the_client() -> None:
    assert await parsed(STREAM) == GIVEN


@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_pieces_may_end_anywhere(size: int) -> None:
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]

    assert await parsed(*pieces) == GIVEN


@pytest.mark.parametrize("char", [b"\x0b", b"\x0c", b"\x00", b"\xff", b"\x85", b"\r"])
async def test_a_subject_may_have_any_byte_that_a_server_lets_through(char: bytes) -> None:
    line = b"MSG a%s5 7 r%s1 2\r\nhi\r\n" % (char, char)

    assert await parsed(line) == [(7, b"a%s5" % char, b"r%s1" % char, b"hi", b"")]


@pytest.mark.parametrize(
    "line",
    [
        b"HTTP/1.1 400 Bad Request\r\n", b"MSG a 7\r\n", b"MSG a x 2\r\n", b"MSG a 7 r s 2\r\n", b"HMSG a 7 2\r\n", b"\r\n",
        b"HMSG a 7 3 2\r\n", b"MSG a 7 \r\n", b"MSG a 7 %d\r\n" % (MESSAGE_LIMIT_BYTES + 1),
        b"INFO {\xff}\r\n", b"INFO []\r\n", b"INFO " + b"[" * 100_000 + b"\r\n", b"MSG a 7 " + b"9" * 5000 + b"\r\n",
    ],
)  # fmt: skip
async def test_a_protocol_violation_ends_the_connection(line: bytes) -> None:
    with pytest.raises(nats.errors.ProtocolError):
        await parsed(line)


async def test_a_line_without_an_end_is_not_kept_forever() -> None:
    with pytest.raises(nats.errors.ProtocolError):
        await parsed(b"x" * LINE_LIMIT_BYTES, b"x")


async def test_a_new_connection_begins_with_a_line() -> None:
    client = FakeClient()
    parser = Parser(client)  # type: ignore[arg-type]
    await parser.parse(b"MSG a 7 100\r\nhalf of it")

    parser.reset()
    await parser.parse(b"PING\r\n")

    assert client.given == [("ping",)]


@given(
    subject=st.binary(min_size=1, max_size=20),
    body=st.binary(max_size=50),
    sizes=st.lists(st.integers(1, 20), max_size=8),
)
async def test_a_message_of_any_bytes_is_read_as_it_was(
    subject: bytes, body: bytes, sizes: list[int]
) -> None:
    subject = subject.translate(None, b" \t\r\n") or b"a"
    stream = b"MSG %s 7 %d\r\n%s\r\n" % (subject, len(body), body)
    pieces, at = [], 0
    for size in sizes:
        pieces.append(stream[at : at + size])
        at += size
    pieces.append(stream[at:])

    assert await parsed(*pieces) == [(7, subject, b"", body, b"")]


async def replied(*frames: bytes) -> tuple[bytes, list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """The reply to a login that arrives in these frames, what was handled before it, and what a later line results in."""
    client, left = FakeClient(), list(frames)
    parser = Parser(client)  # type: ignore[arg-type]

    async def read() -> bytes:
        return left.pop(0) if left else b""

    reply = await parser.read_reply(read)
    before = list(client.given)
    await parser.parse(b"PONG\r\n")
    return reply, before, client.given[len(before) :]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([b'PING\r\nINFO {"a":1}\r\nPONG\r\n'], id="together"),
        pytest.param([b"PING\r\n", b'INFO {"a":1}\r\n', b"PONG\r\n"], id="alone"),
        pytest.param([b'PING\r\nINFO {"a"', b":1}\r", b"\nPONG\r\n"], id="split"),
    ],
)
async def test_the_reply_to_a_login_is_found_in_frames_of_several_lines(frames: list[bytes]) -> None:
    assert await replied(*frames) == (b"PONG\r\n", [("ping",), ("info", {"a": 1})], [("pong",)])


async def test_a_login_without_a_reply_ends_with_the_connection() -> None:
    assert (await replied(b"PING\r\nINFO {"))[0] == b""


async def test_a_line_without_end_before_the_reply_to_a_login_is_refused() -> None:
    with pytest.raises(nats.errors.ProtocolError):
        await replied(b"INFO ", *[b"x" * LINE_LIMIT_BYTES] * 3)
