"""
Search the stored events of a period, newest first, within bounds.

The broker gives a stream oldest first. So a search reads the last minute first, then a longer period before it, and so on, until
it has found enough or has read as much as it may.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from ccm_agent.bus.subjects import is_node, run_pattern
from ccm_agent.model.errors import ExpressionError, ExpressionLimitError, ProtocolError, UsageError
from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY, TRANSACTION_EVENT
from ccm_agent.model.ports import StoredEvent
from ccm_agent.model.wire import PROTOCOL
from ccm_agent.templates.allowance import Allowance
from ccm_ctl.fleet.events.event_filter import EventFilter
from ccm_ctl.fleet.events.live_events import LiveEvent
from ccm_ctl.fleet.events.messages import AgentMessage, decode_agent_message
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.trust.authors import read_authors

FIRST_PERIOD = timedelta(minutes=1)
PERIOD_GROWTH = 3
"""Each period is this many times as long as the one after it."""

EVENTS_READ = 100_000
SEARCH_S = 20.0
CONDITION_CPU_S = 5.0
"""CPU time of all evaluations of a search."""

AT_ONCE = 500
"""Events that are decoded and compared in one step, in a thread."""


class EventQuery(Struct, frozen=True, kw_only=True):
    """
    Which events are looked for.

    Attributes:
        since, until: Between which times they were stored; None: from the beginning of the stream, to its end.
        node: Only of this node; "" for all.
        condition: Must be true; None: no condition.
        fits: A cheaper test, which comes first; verdicts are not known yet.
        most: So many of the newest are enough.
    """

    since: datetime | None
    until: datetime | None = None
    node: str = ""
    condition: EventFilter | None = None
    fits: Callable[[LiveEvent], bool] = lambda _: True
    most: int = 500


class EventSearchResult(Struct, kw_only=True):
    """
    What a search has found.

    Attributes:
        events: Newest first.
        read: How many stored events were looked at.
        begins: Everything stored after this time was looked at; None: nothing yet.
        is_complete: The whole period was looked at; False: enough was found, or the bounds were reached.
        trouble: Why the condition could not be evaluated for some events, which are left out.
    """

    events: list[LiveEvent] = []
    read: int = 0
    begins: datetime | None = None
    is_complete: bool = False
    trouble: str = ""


async def search_events(fleet: Fleet, query: EventQuery) -> EventSearchResult:
    """
    The newest stored events that fit.

    Raises:
        UsageError: The condition takes too long.
        BusError: The broker cannot be asked.
    """
    found = EventSearchResult(events=[])
    authors = await read_authors(fleet)
    allowance = Allowance(cpu_s=CONDITION_CPU_S)
    oldest = await fleet.events.oldest()
    if oldest is None or (query.node and not is_node(query.node)):
        found.is_complete = True
        return found
    floor = max(query.since, oldest) if query.since else oldest
    end, length, is_open = query.until or fleet.clock.now(), FIRST_PERIOD, query.until is None
    try:
        async with asyncio.timeout(SEARCH_S):
            while len(found.events) < query.most and end > floor and found.read < EVENTS_READ:
                begin = max(floor, _earlier(end, length))
                period = (begin, None if is_open else end)  # the broker's clock may be ahead
                chosen = await _search_period(fleet, query, period, found, allowance)
                if found.read >= EVENTS_READ:
                    break  # the newest of this period were not looked at
                for message, heard in reversed(chosen):
                    verdict = authors.judge(heard.node, message) if authors is not None else None
                    found.events.append(LiveEvent(sequence=message.sequence, heard=heard, verdict=verdict))
                found.begins = end = begin
                is_open = False
                length *= PERIOD_GROWTH
    except TimeoutError:
        pass  # what was found is shown, and that it is not all
    found.is_complete = end <= floor and len(found.events) <= query.most
    found.events = found.events[: query.most]
    return found


async def _search_period(
    fleet: Fleet,
    query: EventQuery,
    period: tuple[datetime, datetime | None],
    found: EventSearchResult,
    allowance: Allowance,
) -> list[tuple[StoredEvent, AgentMessage]]:
    """The events of a period that fit, oldest first; only the newest of them when there are more than are wanted."""
    begin, end = period
    chosen: list[tuple[StoredEvent, AgentMessage]] = []
    waiting: list[StoredEvent] = []

    async def look() -> None:
        fitting, trouble = await asyncio.to_thread(_choose, waiting, query, allowance)
        found.trouble = found.trouble or trouble
        found.read += len(waiting)
        waiting.clear()
        chosen.extend(fitting)
        del chosen[: -query.most]

    async for message in merged([fleet.events.scan(one, begin) for one in stored_subjects(node=query.node)]):
        if end is not None and message.time is not None and message.time >= end:
            break
        waiting.append(message)
        if len(waiting) >= AT_ONCE:
            await look()
        if found.read + len(waiting) >= EVENTS_READ:
            break
    await look()
    return chosen


def _choose(
    messages: list[StoredEvent], query: EventQuery, allowance: Allowance
) -> tuple[list[tuple[StoredEvent, AgentMessage]], str]:
    """
    Those that fit, and why the condition could not be evaluated for one of them.

    Raises:
        UsageError: The condition takes too long.
    """
    chosen, trouble = [], ""
    allowance.rest()
    for message in messages:
        try:
            heard = decode_agent_message(message)
            if not query.fits(LiveEvent(sequence=message.sequence, heard=heard)):
                continue
            if query.condition is not None and not query.condition.fits(heard, kind_of(heard), allowance):
                continue
        except ProtocolError:
            continue  # a message that breaks the protocol has no valid sender
        except ExpressionLimitError as err:
            raise UsageError(f"the condition takes too long; choose a shorter period: {err.message}") from err
        except ExpressionError as err:
            trouble = trouble or err.message
            continue
        chosen.append((message, heard))
    return chosen, trouble


def _earlier(end: datetime, length: timedelta) -> datetime:
    try:
        return end - length
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def kind_of(heard: AgentMessage) -> str:
    """The kind of an event as operators name it: `resource`, `start`, `summary`, `answer`, `progress` or `agent`."""
    family, word = heard.protocol.split(".")[-2:]
    return {"transaction": "resource", "agent": "agent"}.get(family, word)


def stored_subjects(run: str = "", node: str = "") -> list[str]:
    """The subjects of the stream, of one run or one node if they are named."""
    if run:
        return [run_pattern(run, node or ">")]
    kinds = (SESSION_START, TRANSACTION_EVENT, SESSION_SUMMARY)
    node = node or ">"
    return [*(f"{kind}.*.{node}" for kind in kinds), f"{PROTOCOL}.agent.*.{node}"]


async def merged(sources: list[AsyncIterator[StoredEvent]]) -> AsyncIterator[StoredEvent]:
    """Events of several readers, each in order, in the order of the stream; only one of each is in memory."""
    heads = [(head, source) for source in sources if (head := await anext(source, None)) is not None]
    while heads:
        place = min(range(len(heads)), key=lambda one: heads[one][0].sequence)
        head, source = heads[place]
        yield head
        following = await anext(source, None)
        heads[place : place + 1] = [(following, source)] if following is not None else []
