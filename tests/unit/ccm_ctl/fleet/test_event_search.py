"""The search of stored events."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest

from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.errors import UsageError
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.events import event_search
from ccm_ctl.fleet.events.event_filter import EventFilter
from ccm_ctl.fleet.events.event_search import EventQuery, EventSearchResult, search_events
from tests.support.controller import NOW, event, fleet_on

RUN = "2zFXabcdefghijklmnopqrstuvw"


async def a_stream(**ages_s: float) -> MemoryBroker:
    """An event of web1 about the resource `file#NAME` for each name, stored so many seconds ago; oldest first."""
    at = [NOW]
    broker = MemoryBroker(now=lambda: at[0])
    for number, (name, age_s) in enumerate(ages_s.items(), 2):
        at[0] = NOW - timedelta(seconds=age_s)
        said = event(name, number)
        subject = event_subject(said.protocol, "web1", RUN)
        await MemoryBus(broker, "web1").events.publish(subject, new_id(), msgspec.json.encode(said))
    return broker


async def searched(broker: MemoryBroker, query: EventQuery) -> EventSearchResult:
    return await search_events(fleet_on(MemoryBus(broker, "op")), query)


def names(found: EventSearchResult) -> list[str]:
    said = [one.heard.said for one in found.events]
    return [one.name for one in said if isinstance(one, TransactionEvent)]


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


async def test_the_newest_come_first_from_all_periods() -> None:
    broker = await a_stream(month=30 * 86_400, day=86_400, minute=60, now=0)

    found = await searched(broker, EventQuery(since=None))

    assert names(found) == ["now", "minute", "day", "month"]
    assert (found.read, found.is_complete) == (4, True)


async def test_a_period_has_an_exact_begin_and_end() -> None:
    broker = await a_stream(before=101, first=100, last=51, after=50)

    found = await searched(broker, EventQuery(since=ago(100), until=ago(50)))

    assert names(found) == ["last", "first"]
    assert found.is_complete


async def test_a_search_that_has_enough_does_not_read_the_rest() -> None:
    broker = await a_stream(month=30 * 86_400, other=61, minute=30, now=0)

    found = await searched(broker, EventQuery(since=None, most=1))

    assert names(found) == ["now"]
    assert (found.read, found.is_complete) == (2, False)
    assert found.begins == ago(60)


async def test_a_search_that_may_not_read_more_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_search, "EVENTS_READ", 3)
    broker = await a_stream(month=30 * 86_400, four=240, three=180, two=120, now=0)

    found = await searched(broker, EventQuery(since=None))

    assert names(found) == ["now"]
    assert (found.begins, found.is_complete) == (ago(60), False)


async def test_condition_selects_events_and_an_event_it_cannot_judge_is_reported() -> None:
    broker = await a_stream(**{"/etc/motd": 2, "/etc/hosts": 1})

    chosen = await searched(broker, EventQuery(since=None, condition=EventFilter('name endsWith "motd"')))
    broken = await searched(broker, EventQuery(since=None, condition=EventFilter("errors[3] == 1")))

    assert names(chosen) == ["/etc/motd"]
    assert names(broken) == []
    assert "errors" in broken.trouble


async def test_a_condition_that_takes_too_long_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_search, "CONDITION_CPU_S", 0.0)
    broker = await a_stream(motd=1)
    costly = EventFilter("count(1..20000, {# > 0 && changed}) > 0")

    with pytest.raises(UsageError, match="takes too long"):
        await searched(broker, EventQuery(since=None, condition=costly))


@pytest.mark.parametrize("node", ["web2", "web1.>", ">", "*", "a b"])
async def test_another_node_has_none_of_its_events(node: str) -> None:
    broker = await a_stream(motd=1)

    assert names(await searched(broker, EventQuery(since=None, node=node))) == []
