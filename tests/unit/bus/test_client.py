"""What we do in nats-py's stead: as it does, where that matters."""

from __future__ import annotations

import asyncio
import binascii
import errno
import socket
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import nats.errors
import pytest
from nats.aio.client import Client

from ccm_agent.bus.connection.client import BusClient
from ccm_agent.bus.connection.settings import BusSettings
from ccm_agent.model.errors import BusDeniedError, BusUnavailableError
from ccm_agent.model.secret import Secret
from tests.support.header_blocks import MALFORMED

URL = "nats://broker:4222"


@pytest.mark.parametrize(
    ("met", "why"),
    [
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"),
            "connection refused",
        ),
        (
            socket.gaierror(-2, "Name or service not known"),
            "its name has no address (Name or service not known)",
        ),
        (OSError(errno.ENETUNREACH, "Connect call failed ('10.0.0.1', 1)"), "Network is unreachable"),
        (OSError("Multiple exceptions: one, two"), "Multiple exceptions: one, two"),
        (TimeoutError(), "no answer in 5 s"),
        (None, "no servers available for connection"),
    ],
)
def test_a_missing_answer_is_explained_by_its_cause(met: OSError | None, why: str) -> None:
    client = BusClient(BusSettings(servers=(URL,), identity="op", connect_s=5))
    client._met = met

    told = client._explained(URL, nats.errors.NoServersError())

    assert str(told) == f"{URL}: cannot connect to the broker: {why}; check that it is running"


def test_a_broker_that_was_too_slow_for_a_login_has_not_refused_it() -> None:
    client = BusClient(BusSettings(servers=(URL,), identity="op", user="op"))

    slow = client._explained(URL, nats.errors.Error("nats: 'Authentication Timeout'"))
    refused = client._explained(URL, nats.errors.Error("nats: 'Authorization Violation'"))

    assert isinstance(slow, BusUnavailableError)
    assert str(slow) == (
        f"{URL}: cannot connect to the broker: it did not check our credentials in time; it may be overloaded"
    )
    assert isinstance(refused, BusDeniedError)


@pytest.mark.parametrize("err", [TypeError(), binascii.Error("padding")])
def test_a_file_that_holds_no_credentials_is_named(err: Exception) -> None:
    client = BusClient(BusSettings(servers=(URL,), identity="op", creds="/x.creds"))

    told = client._explained(URL, err)

    assert (
        str(told)
        == "/x.creds: contains no credentials; create some with `ccmctl node add` or `ccmctl operator add`"
    )


SEED = b"-----BEGIN USER NKEY SEED-----\nSUAEED\n------END USER NKEY SEED------\n"


@pytest.mark.parametrize(
    "before", [b"", b"-----BEGIN NATS USER JWT-----\neyJ0\n------END NATS USER JWT------\n\n"]
)
def test_the_seed_is_the_one_that_nats_py_finds(tmp_path: Path, before: bytes) -> None:
    path = tmp_path / "node.creds"
    path.write_bytes(before + SEED + b"-----BEGIN CCM TRUST-----\n")
    client = BusClient(BusSettings(servers=(URL,), creds=str(path)))

    found = client._read_creds_user_nkey(str(path))

    assert found == b"SUAEED" == Client()._read_creds_user_nkey(str(path))


@pytest.mark.parametrize("text", [b"", b"SUAEED\nx", b"x\n" + SEED[:30], SEED[:31], SEED[:37]])
def test_credentials_without_a_whole_seed_are_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "node.creds"
    path.write_bytes(text)
    client = BusClient(BusSettings(servers=(URL,), creds=str(path)))

    with pytest.raises(ValueError, match="not found"):
        client._read_creds_user_nkey(str(path))


INBOX = b"_INBOX_op.7"


async def given(client: BusClient, subject: bytes, reply: bytes, headers: bytes) -> list[object]:
    """What a subscription is told of one message."""
    told = list[object]()
    await client.listen(">", told.append)
    client.deliver(1, subject, reply, b"body", headers)
    return told


@pytest.fixture
def dropped() -> list[str]:
    """The subjects of the messages that the client dropped."""
    return []


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, dropped: list[str]) -> BusClient:
    """A client that tells no server of its subscriptions."""

    async def send(subscription: object) -> None:
        pass

    made = BusClient(
        BusSettings(servers=(URL,), identity="op"), lambda subject, reason: dropped.append(subject)
    )
    monkeypatch.setattr(made, "_send_subscribe", send)
    return made


@pytest.mark.parametrize("block", MALFORMED)
async def test_a_message_with_malformed_headers_is_dropped(
    client: BusClient, dropped: list[str], block: bytes
) -> None:
    assert await given(client, b"a.b", b"", block) == []
    assert dropped == ["a.b"]


@pytest.mark.parametrize("block", MALFORMED)
async def test_an_answer_with_malformed_headers_is_given_as_a_copy(client: BusClient, block: bytes) -> None:
    [message] = await given(client, INBOX, b"", block[:-2] + b"Nats-Stream: S\r\nNats-Sequence: 7\r\n\r\n")

    assert message.headers["Nats-Sequence"] == "7"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("subject", "reply"),
    [
        pytest.param(b"a.\xff", b"", id="subject that is not UTF-8"),
        pytest.param(b"a", b"\xff", id="reply subject that is not UTF-8"),
        pytest.param(b"a.\x0b", b"", id="subject with a control character"),
        pytest.param(b"a", b"b\x0b1", id="reply subject with a control character"),
    ],
)
async def test_a_message_with_a_malformed_subject_is_dropped(
    client: BusClient, dropped: list[str], subject: bytes, reply: bytes
) -> None:
    assert await given(client, subject, reply, b"") == []
    assert len(dropped) == 1


async def test_messages_for_several_subscriptions_are_reported_in_the_order_in_which_they_came(
    client: BusClient,
) -> None:
    told = list[str]()
    for subject in ("a", "b"):
        await client.listen(subject, lambda message: told.append(message.subject))

    for number, subject in ((1, b"a"), (2, b"b"), (1, b"a"), (2, b"b")):
        client.deliver(number, subject, b"", b"", b"")

    assert told == ["a", "b", "a", "b"]


class Stream:
    """What asyncio tells of a connection: the address at its other end, and whether TLS has begun."""

    def __init__(self, peer: str, *, is_encrypted: bool) -> None:
        self._known = {"peername": (peer, 4222), "ssl_object": object() if is_encrypted else None}

    def get_extra_info(self, name: str) -> object:
        return self._known[name]


class Transport:
    """A transport of nats-py: a TCP connection, or a websocket."""

    def __init__(self, stream: Stream, field: str = "_io_writer") -> None:
        setattr(self, field, stream)


CREDENTIALS = {"creds": "/x.creds"}
ELSEWHERE = "192.0.2.7"
IMPOSTOR = "requires no credentials, but you supplied some"
OPEN = "anyone who can reach it can command its nodes"
NO_TLS = "does not offer TLS"


@pytest.mark.parametrize("field", ["_io_writer", "_ws"])
@pytest.mark.parametrize(
    ("peer", "asks", "is_encrypted", "settings", "why"),
    [
        pytest.param("127.0.0.1", False, False, {}, "", id="loopback, open, without credentials"),
        pytest.param("127.0.0.1", True, False, CREDENTIALS, "", id="loopback, asks, with credentials"),
        pytest.param("::1", True, False, CREDENTIALS, "", id="loopback of IPv6"),
        pytest.param("::ffff:127.0.0.1", True, False, CREDENTIALS, "", id="loopback of IPv4 in IPv6"),
        pytest.param("127.0.0.1", False, False, CREDENTIALS, IMPOSTOR, id="loopback, open, with credentials"),
        pytest.param("127.0.0.1", False, False, {"user": "web1"}, IMPOSTOR, id="with a password"),
        pytest.param("127.0.0.1", False, False, {"token": Secret("t0ken")}, IMPOSTOR, id="with a token"),
        pytest.param("127.0.0.1", False, False, {"nkey": "/x.nk"}, IMPOSTOR, id="with an nkey"),
        pytest.param(ELSEWHERE, False, True, CREDENTIALS, IMPOSTOR, id="elsewhere, open, with credentials"),
        pytest.param(ELSEWHERE, False, True, {}, OPEN, id="elsewhere, open, without credentials"),
        pytest.param(ELSEWHERE, True, False, CREDENTIALS, NO_TLS, id="elsewhere without TLS"),
        pytest.param(ELSEWHERE, True, True, CREDENTIALS, "", id="elsewhere with TLS"),
        pytest.param("::ffff:192.0.2.7", True, False, CREDENTIALS, NO_TLS, id="elsewhere, IPv4 in IPv6"),
        pytest.param("fe80::1%eth0", True, False, CREDENTIALS, NO_TLS, id="elsewhere on the link"),
        pytest.param("", True, False, CREDENTIALS, NO_TLS, id="no address at all"),
        pytest.param(ELSEWHERE, False, False, {"insecure": True}, "", id="accepted, open"),
        pytest.param(ELSEWHERE, True, False, CREDENTIALS | {"insecure": True}, "", id="accepted without TLS"),
        pytest.param("127.0.0.1", False, False, CREDENTIALS | {"insecure": True}, "", id="accepted on loopback"),
        pytest.param(ELSEWHERE, True, False, {"insecure": True, "ca": "/ca.pem"}, "offers no TLS", id="TLS is demanded"),
    ],
)  # fmt: skip
def test_a_broker_is_obeyed_only_when_it_is_the_one_that_was_configured(
    peer: str, asks: bool, is_encrypted: bool, settings: dict[str, Any], why: str, field: str
) -> None:
    client = BusClient(BusSettings(servers=(URL,), identity="web1", **settings))
    client._transport = Transport(Stream(peer, is_encrypted=is_encrypted), field)
    client._server_info = {"auth_required": asks}

    refused = client._why_refused()

    assert why in str(refused) if why else refused is None
    if refused is not None and "offers no TLS" not in why:
        assert "`insecure: true`" in str(refused)
        assert "`--insecure`" in str(refused)


def test_a_connection_that_does_not_exist_yet_is_not_loopback() -> None:
    client = BusClient(BusSettings(servers=(URL,), identity="web1"))
    client._server_info = {"auth_required": True}

    assert "does not offer TLS" in str(client._why_refused())


@pytest.mark.parametrize(
    "before", [b"", b"PING\r\n", b'INFO {"max_payload":1048576}\r\n', b"PING\r\nPING\r\n"]
)
async def test_a_login_is_complete_when_a_busy_broker_sends_other_lines_before_its_pong(
    before: bytes,
) -> None:
    heard = bytearray()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload":1048576}\r\n')
        await reader.readuntil(b"PING\r\n")
        writer.write(before + b"PONG\r\n")
        heard.extend(await reader.readuntil(b"last\r\n"))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, asyncio.timeout(10):
        url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = BusClient(BusSettings(servers=(url,), identity="op"))
        await client.open(url, AsyncMock())
        await client.send("a", "", b"", b"last")
        await client.ended.wait()

    assert bytes(heard) == b"PONG\r\n" * before.count(b"PING") + b"PUB a  4\r\nlast\r\n"


async def test_a_login_that_is_not_confirmed_is_an_error() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload":1048576}\r\n')
        await reader.readuntil(b"PING\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, asyncio.timeout(10):
        url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = BusClient(BusSettings(servers=(url,), identity="op"))
        with pytest.raises(BusUnavailableError, match="connection closed"):
            await client.open(url, AsyncMock())

    assert client._ping_interval_task is None or client._ping_interval_task.done()
