"""What agents say: who it is from stands in the subject, and what breaks the protocol is refused."""

from __future__ import annotations

import pytest

from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.outcome import SessionSummary
from ccm_agent.model.ports import StoredEvent
from ccm_agent.model.wire import AgentEvent, Answer
from ccm_ctl.fleet.events.messages import decode_agent_message

RUN = "2zFXzzzzzzzzzzzzzzzzzzzzzzz"
P = "io.choria.ccm.v1"


def said(subject: str, body: bytes) -> StoredEvent:
    return StoredEvent(subject=f"{P}.{subject}", body=body)


def test_node_and_run_come_from_the_subject_and_not_the_body() -> None:
    body = (
        b'{"protocol":"%s.session.answer","node":"other","run":"other","state":"refused","new":1}'
        % P.encode()
    )

    heard = decode_agent_message(said(f"session.answer.{RUN}.web1.example.net", body))

    assert (heard.node, heard.run, heard.protocol) == ("web1.example.net", RUN, f"{P}.session.answer")
    assert isinstance(heard.said, Answer)
    assert heard.said.state == "refused"


def test_events_of_agents_belong_to_no_run() -> None:
    body = (
        b'{"protocol":"%s.agent.startup","event_id":"x","timestamp":"2026-11-21T12:00:00Z","node":"web1"}'
        % P.encode()
    )

    heard = decode_agent_message(said("agent.startup.web1", body))

    assert (heard.node, heard.run) == ("web1", "")
    assert isinstance(heard.said, AgentEvent)


def test_an_older_summary_without_our_fields_is_read() -> None:
    body = b'{"protocol":"%s.session.summary","event_id":"x","timestamp":"2026-11-21T12:00:00Z"}' % P.encode()

    heard = decode_agent_message(said(f"session.summary.{RUN}.web1", body))

    assert isinstance(heard.said, SessionSummary)
    assert (heard.said.number, heard.said.state) == (0, "")


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        pytest.param(f"session.answer.{RUN}.web1", b"{", id="no JSON"),
        pytest.param(f"session.answer.{RUN}.web1", b"[]", id="no message"),
        pytest.param(f"session.answer.{RUN}.web1", b'{"protocol":"x"}', id="another protocol"),
        pytest.param(f"session.answer.{RUN}.web1", b'{"protocol":"%s.session.answer","state":1}' % P.encode(), id="type"),
        pytest.param(f"session.future.{RUN}.web1", b"{}", id="a kind that is not known"),
        pytest.param("session.answer.short.web1", b"{}", id="no run"),
        pytest.param(f"session.answer.{RUN}.Web1", b"{}", id="no node"),
        pytest.param("node.ping.request.all", b"{}", id="a request"),
    ],
)  # fmt: skip
def test_a_protocol_error_is_refused(subject: str, body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_agent_message(said(subject, body))
