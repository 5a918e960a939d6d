"""What is taken as an event on core delivery."""

from __future__ import annotations

import pytest

from ccm_agent.bus.events import check_delivered
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_START

SUBJECT = event_subject(SESSION_START, "web1", new_id())


def test_a_published_event_is_accepted() -> None:
    check_delivered(SUBJECT, {"Nats-Msg-Id": "x", "Nats-Expected-Stream": "CCM_EVENTS"})


@pytest.mark.parametrize("header", ["Nats-Stream", "nats-stream", "Status"])
def test_a_reply_of_the_broker_is_dropped(header) -> None:
    with pytest.raises(ProtocolError):
        check_delivered(SUBJECT, {header: "CCM_EVENTS"})


def test_a_message_on_another_subject_is_dropped() -> None:
    with pytest.raises(ProtocolError):
        check_delivered("io.choria.ccm.v1.manifest.apply.request.all", {})
