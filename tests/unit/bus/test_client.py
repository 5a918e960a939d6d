"""What we do in nats-py's stead: as it does, where that matters."""

from __future__ import annotations

import binascii
import errno
import socket

import nats.aio.client
import nats.errors
import pytest

from ccm_agent.bus.client import BusClient
from ccm_agent.bus.settings import BusSettings


@pytest.mark.parametrize(
    ("raw", "headers"),
    [
        pytest.param(b"", {}, id="none"),
        pytest.param(b"A: 1\r\nNats-Msg-Id:2\r\n\r\n", {"A": "1", "Nats-Msg-Id": "2"}, id="with and without a space"),
        pytest.param(b" A\t:\t1 \r\n", {"A": "1"}, id="spaces around"),
        pytest.param(b"A: b:c\r\nB:\r\n", {"A": "b:c", "B": ""}, id="a colon in a value, and no value"),
        pytest.param(b"A B: 1\r\nno colon\r\nC: 2\r\n", {"C": "2"}, id="no name"),
        pytest.param("Ä: 1\r\nB: ä\r\n".encode(), {"B": "ä"}, id="text beyond ASCII"),
        pytest.param(b"A: \xff\r\n", {"A": "\ufffd"}, id="no text at all"),
        pytest.param(b"A: 1\r\nA: 2\r\n", {"A": "2"}, id="the last of two"),
        pytest.param(b"A: 1\n2\r\n", {"A": "1\n2"}, id="a bare newline ends no line"),
    ],
)  # fmt: skip
def test_headers_are_read_as_nats_py_reads_them(raw: bytes, headers: dict[str, str]) -> None:
    assert BusClient._parse_header_lines(raw) == headers
    assert nats.aio.client.Client._parse_header_lines(raw) == headers


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
def test_why_no_broker_answers_is_what_was_in_the_way(met: OSError | None, why: str) -> None:
    client = BusClient(BusSettings(servers=(URL,), identity="op", connect_s=5))
    client._met = met

    told = client._explained(URL, nats.errors.NoServersError())

    assert str(told) == f"{URL}: no broker answers: {why}; is it running there?"


@pytest.mark.parametrize("err", [TypeError(), binascii.Error("padding")])
def test_a_file_that_holds_no_credentials_is_named(err: Exception) -> None:
    client = BusClient(BusSettings(servers=(URL,), identity="op", creds="/x.creds"))

    told = client._explained(URL, err)

    assert str(told) == "/x.creds: holds no credentials; `ccmctl node add` and `operator add` make them"


async def test_messages_for_several_subscriptions_are_told_in_the_order_in_which_they_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def send(subscription: object) -> None:
        pass

    client, told = BusClient(BusSettings(servers=(URL,), identity="op")), list[str]()
    monkeypatch.setattr(client, "_send_subscribe", send)
    for subject in ("a", "b"):
        await client.listen(subject, lambda message: told.append(message.subject))

    for number, subject in ((1, b"a"), (2, b"b"), (1, b"a"), (2, b"b")):
        await client._process_msg(number, subject, b"", b"", b"")

    assert told == ["a", "b", "a", "b"]
