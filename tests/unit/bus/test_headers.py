"""Header blocks: what is whole is read, what is not is refused, and nothing raises anything else."""

from __future__ import annotations

import nats.aio.client
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccm_agent.bus.connection.headers import (
    BLOCK_LIMIT_BYTES,
    MalformedHeadersError,
    broker_headers,
    format_headers,
    parse_headers,
    was_stored,
)
from ccm_agent.bus.connection.messages import COPIED
from tests.support.header_blocks import MALFORMED

APPENDED = (
    b"Nats-Stream: KV_CCM_RUNS\r\nNats-Subject: $KV.CCM_RUNS.a\r\nNats-Sequence: 7\r\n"
    b"Nats-Time-Stamp: 2026-11-22T06:19:58.038298866Z\r\n\r\n"
)
"""What nats-server 2.15.0 appends to a stored block that it sends to a reader; before that it cuts the last two bytes."""


@pytest.mark.parametrize(
    ("block", "headers"),
    [
        pytest.param(b"NATS/1.0\r\n\r\n", {}, id="none"),
        pytest.param(b"NATS/1.0\r\nA: 1\r\nNats-Msg-Id:2\r\n\r\n", {"A": "1", "Nats-Msg-Id": "2"}, id="with and without a space"),
        pytest.param(b"NATS/1.0\r\nA:\t 1 \t\r\n\r\n", {"A": "1"}, id="spaces around a value"),
        pytest.param(b"NATS/1.0\r\nA: b:c\r\nB:\r\n\r\n", {"A": "b:c", "B": ""}, id="a colon in a value, and no value"),
        pytest.param("NATS/1.0\r\nB: ä\u2028\r\n\r\n".encode(), {"B": "ä\u2028"}, id="text beyond ASCII"),
        pytest.param(b"NATS/1.0\r\nA: 1\r\na: 2\r\nA: 3\r\n\r\n", {"A": "3", "a": "2"}, id="the last of several"),
        pytest.param(b"NATS/1.0 404\r\n\r\n", {"Status": "404"}, id="a status"),
        pytest.param(
            b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: 1\r\n\r\n",
            {"Status": "409", "Description": "Message Size Exceeds MaxBytes", "Nats-Pending-Messages": "1"},
            id="a status, its description and headers",
        ),
    ],
)  # fmt: skip
def test_a_whole_block_is_read(block: bytes, headers: dict[str, str]) -> None:
    assert parse_headers(block) == headers


@pytest.mark.parametrize("block", MALFORMED)
def test_a_block_that_is_not_whole_is_refused(block: bytes) -> None:
    with pytest.raises(MalformedHeadersError):
        parse_headers(block)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"Status: 204\r\n", id="a status that the broker did not say"),
        pytest.param(b"description: none\r\n", id="a description that the broker did not say"),
        pytest.param(b"Nats-Msg-Id: 1\r\nnats-msg-id: 2\r\n", id="two ids of a message"),
        pytest.param(b"Ccm-Sent: 1\r\nCcm-Sent: 1\r\n", id="two of ours"),
        pytest.param(b"Nats-Scheduler: a\r\nNats-Scheduler: b\r\n", id="two schedules"),
        pytest.param(b"A: " + b"x" * BLOCK_LIMIT_BYTES + b"\r\n", id="too long"),
    ],
)
def test_a_block_with_two_meanings_is_refused(line: bytes) -> None:
    with pytest.raises(MalformedHeadersError):
        parse_headers(b"NATS/1.0\r\n" + line + b"\r\n")


@pytest.mark.parametrize("name", ["Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"])
def test_a_second_line_of_the_brokers_marks_a_copy(name: str) -> None:
    block = b"NATS/1.0\r\n%s: theirs\r\n" % name.lower().encode() + APPENDED

    assert parse_headers(block)["Nats-Stream"] == COPIED


def test_a_copy_is_marked_when_the_brokers_first_line_is_hidden_in_a_value() -> None:
    hidden = b"NATS/1.0\r\nCcm-Sent: 1\r\nX: ab" + APPENDED[:-2]
    copied_again = hidden + APPENDED.removeprefix(b"Nats-Stream: KV_CCM_RUNS\r\n")

    once, twice = parse_headers(hidden + b"\r\n"), parse_headers(copied_again)

    assert "Nats-Stream" not in once
    assert was_stored(once)
    assert twice["Nats-Stream"] == COPIED


def test_the_lines_of_the_broker_are_read_behind_a_malformed_block() -> None:
    block = b"NATS/1.0\r\nNats-Sequence: 1\r\n\xff: x" + APPENDED

    assert broker_headers(block) == {
        "Nats-Stream": COPIED,
        "Nats-Subject": "$KV.CCM_RUNS.a",
        "Nats-Sequence": "7",
        "Nats-Time-Stamp": "2026-11-22T06:19:58.038298866Z",
    }


PIECES = st.sampled_from(
    [b"NATS/1.0", b"\r\n", b": ", b" ", b"404", b"Nats-Sequence", b"Status", b"\xff", b"\x00", b"\r", b"\n", b"X", b"1"]
)  # fmt: skip
BLOCKS = st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=30).map(b"".join))


@given(block=BLOCKS)
@example(block=b"NATS/1.0")
def test_any_bytes_are_read_or_refused(block: bytes) -> None:
    try:
        headers = parse_headers(block)
    except MalformedHeadersError:
        headers = broker_headers(block)
    assert all(type(name) is str and type(value) is str for name, value in headers.items())


NAMES = st.from_regex(r"X[!-9;-~]{0,20}", fullmatch=True)
VALUES = st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=20).map(
    lambda text: text.strip(" ")
)


@given(headers=st.dictionaries(NAMES, VALUES, max_size=5))
def test_headers_of_a_client_are_read_unchanged(headers: dict[str, str]) -> None:
    assert parse_headers(format_headers(headers)) == headers


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X", "a\r\nNats-Msg-Id: b"),
        ("X", "a\nb"),
        ("X", "a\rb"),
        ("X", "a\0b"),
        ("X", "a\r\n\r\n"),
        ("X\r\nY", "a"),
        ("X: a\r\nY", "b"),
        ("X Y", "a"),
        ("X:", "a"),
        ("", "a"),
    ],
)
def test_no_value_and_no_name_adds_a_header(name: str, value: str) -> None:
    assert format_headers({"X": "a"}) == b"NATS/1.0\r\nX: a\r\n\r\n"
    with pytest.raises(MalformedHeadersError):
        format_headers({"First": "1", name: value, "Last": "2"})


async def test_nats_py_would_read_the_same_of_a_whole_block() -> None:
    block = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-UpTo-Sequence: 15\r\n\r\n"
    theirs = await nats.aio.client.Client()._process_headers(block)

    assert parse_headers(block) == theirs
