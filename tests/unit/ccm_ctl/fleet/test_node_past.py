"""One node's past, from events that the node may make up."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

from ccm_agent.model.outcome import TransactionEvent
from ccm_ctl.fleet.events.messages import AgentMessage
from ccm_ctl.fleet.nodes.node_past import PastSession
from tests.support.controller import NOW, event


class Appended(list[TransactionEvent]):
    """Events that are not looked through: with 20,000 of one session that takes half a minute."""

    def __iter__(self) -> Iterator[TransactionEvent]:
        raise AssertionError("all events were looked through for one of them")


def test_event_is_added_once_without_a_look_through_all_others() -> None:
    session = PastSession(run="run", time=NOW, events=Appended())

    for number in (2, 3, 3, 2, 4):
        heard = SimpleNamespace(said=event("/etc/motd", number))
        session.take(cast(AgentMessage, heard), None)

    assert [session.events[place].number for place in range(len(session.events))] == [2, 3, 4]
