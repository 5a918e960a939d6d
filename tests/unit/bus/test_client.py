"""What we do in nats-py's stead: as it does, where that matters."""

from __future__ import annotations

import nats.aio.client
import pytest

from ccm_agent.bus.client import BusClient


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
