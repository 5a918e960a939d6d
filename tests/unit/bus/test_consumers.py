"""What a consumer delivers, as the message that is stored."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ccm_agent.bus.connection.messages import Message
from ccm_agent.bus.consumers import convert_delivered
from ccm_agent.bus.streams import Stored
from ccm_agent.model.errors import ProtocolError

TIME = "1795262400000000000"


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(f"$JS.ACK.REGISTRATION.read-1.1.42.7.{TIME}.0", id="as it was"),
        pytest.param(f"$JS.ACK._.hash.REGISTRATION.read-1.1.42.7.{TIME}.0.x", id="with domain and account"),
    ],
)
def test_the_acknowledgements_subject_contains_the_position(reply: str) -> None:
    assert convert_delivered(Message(subject="a.b", body=b"x", headers={"Name": "v"}, reply=reply)) == Stored(
        subject="a.b",
        body=b"x",
        sequence=42,
        time=datetime.fromtimestamp(int(TIME) / 1e9, UTC),
        headers={"Name": "v"},
    )


def test_a_copy_made_before_storing_is_marked() -> None:
    reply = f"$JS.ACK.REGISTRATION.read-1.1.42.7.{TIME}.0"
    message = Message(subject="a.b", body=b"x", headers={"Nats-Stream": "KV_CCM_DATA"}, reply=reply)

    assert convert_delivered(message).copied


@pytest.mark.parametrize("reply", ["", "_INBOX.x", "$JS.ACK.a.b.c.d.e.f.g"])
def test_a_message_not_delivered_by_a_consumer_is_refused(reply: str) -> None:
    with pytest.raises(ProtocolError):
        convert_delivered(Message(subject="a.b", body=b"x", reply=reply))
