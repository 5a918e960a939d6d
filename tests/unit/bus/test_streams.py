"""JetStream's words as ours."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ccm_agent.bus.connection.messages import Message
from ccm_agent.bus.streams import (
    NoPeersError,
    NoStreamError,
    api_error,
    decode_answer,
    parse_sequence,
    parse_time,
)
from ccm_agent.model.errors import (
    BusError,
    BusSetupError,
    BusUnavailableError,
    NotFoundError,
    ProtocolError,
    RevisionError,
)


@pytest.mark.parametrize(
    ("err_code", "code", "kind"),
    [
        pytest.param(10071, 400, RevisionError, id="another revision"),
        pytest.param(10164, 400, RevisionError, id="another revision, of a constant"),
        pytest.param(10076, 503, BusSetupError, id="JetStream is off"),
        pytest.param(10047, 500, BusSetupError, id="no storage"),
        pytest.param(10059, 404, NoStreamError, id="no such stream"),
        pytest.param(10060, 400, NoStreamError, id="another stream"),
        pytest.param(10074, 500, NoPeersError, id="too few servers"),
        pytest.param(10054, 400, ProtocolError, id="too large"),
        pytest.param(10165, 400, ProtocolError, id="no lifetime"),
        pytest.param(10037, 404, NotFoundError, id="no such message"),
        pytest.param(10008, 503, BusUnavailableError, id="for a moment"),
        pytest.param(10077, 503, BusUnavailableError, id="not stored"),
        pytest.param(10999, 400, BusError, id="anything else"),
    ],
)
def test_an_api_error_has_the_kind_that_names_the_remedy(err_code, code, kind) -> None:
    raised = api_error("$KV.B.key", err_code, code, "its own words")

    assert type(raised) is kind
    assert "bucket B, key key" in str(raised)
    assert "its own words" in str(raised)


def test_an_acknowledgement_with_an_error_in_it_raises_the_error() -> None:
    body = (
        b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},"stream":"X","seq":0}'
    )

    with pytest.raises(RevisionError):
        decode_answer("$KV.B.key", Message(subject="inbox", body=body))


@pytest.mark.parametrize("body", [b"", b"\xff", b"[]", b'{"stream":"\xff"}', b'{"x":' + b"[" * 100_000])
def test_an_answer_that_is_not_an_acknowledgement_is_an_error(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a JetStream acknowledgement"):
        decode_answer("$KV.B.key", Message(subject="inbox", body=body))


@pytest.mark.parametrize("text", ["", "-1", "+1", "1_0", "١", "9" * 5000])
def test_a_sequence_is_a_number_of_64_bits(text: str) -> None:
    with pytest.raises(ValueError, match="not a valid sequence number"):
        parse_sequence(text)


@pytest.mark.parametrize("text", ["", "soon", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"])
def test_an_invalid_time_of_the_broker_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        pytest.param(
            "2026-11-21T12:00:00.123456789Z",
            datetime(2026, 11, 21, 12, 0, 0, 123456, UTC),
            id="nanoseconds are cut",
        ),
        pytest.param("2026-11-21T12:00:00Z", datetime(2026, 11, 21, 12, 0, 0, 0, UTC), id="no fraction"),
        pytest.param(
            "2026-11-21T12:00:00.5Z", datetime(2026, 11, 21, 12, 0, 0, 500000, UTC), id="a short fraction"
        ),
        pytest.param(
            "2026-11-21T14:00:00.1+02:00",
            datetime(2026, 11, 21, 12, 0, 0, 100000, UTC),
            id="another zone",
        ),
    ],
)
def test_times_of_the_broker_are_read(text, time) -> None:
    assert parse_time(text) == time
