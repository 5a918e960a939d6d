"""Refusals of the broker say what was not allowed, and who may."""

from __future__ import annotations

import pytest

from ccm_agent.bus.access.denials import PUBLISH, denied, no_inbox
from ccm_agent.bus.access.permissions import operator_flag_for
from ccm_agent.bus.connection.settings import BusSettings

OPERATOR = BusSettings(
    servers=("nats://b:4222",), identity="ann", program="ccmctl", operator_flag=operator_flag_for
)


@pytest.mark.parametrize(
    ("word", "subject", "message"),
    [
        (
            PUBLISH,
            "$JS.API.STREAM.CREATE.CCM_EVENTS",
            "stream CCM_EVENTS: the broker does not allow ann to create or change it; "
            "grant it with `ccmctl operator add --admin`",
        ),
        (
            PUBLISH,
            "$JS.API.DIRECT.GET.KV_CCM_NODES",
            "bucket CCM_NODES: the broker does not allow ann to read it; see its permissions on the broker",
        ),
        (
            PUBLISH,
            "$KV.CCM_DATA.a",
            "bucket CCM_DATA, key a: the broker does not allow ann to publish there; grant it with `ccmctl operator add --data`",
        ),
        (
            "subscribe to it",
            "io.choria.ccm.v1.>",
            "io.choria.ccm.v1.>: the broker does not allow ann to subscribe to it; see its permissions on the broker",
        ),
    ],
)
def test_a_refusal_names_the_operation_and_the_allowed_role(word: str, subject: str, message: str) -> None:
    assert str(denied(OPERATOR, word, subject)) == message


def test_credentials_that_receive_no_answers_are_explained_to_an_operator_and_to_a_node() -> None:
    node = BusSettings(servers=("nats://b:4222",), identity="web1")

    assert [str(no_inbox(one)) for one in (OPERATOR, node)] == [
        "nats://b:4222: the broker does not deliver answers for `ann` to these credentials; use that operator's credentials, "
        "or set --operator (CCM_OPERATOR) to the name in these credentials",
        "nats://b:4222: the broker does not deliver answers for `web1` to these credentials; use the credentials that were "
        "issued for this node",
    ]
