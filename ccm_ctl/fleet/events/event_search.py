"""
Search the stored events of a period, newest first, with limits.

The broker delivers a stream oldest first. Therefore a search reads the last minute first, then a longer period before it, and so
on. It stops when it has found enough events or reaches a limit.
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
"""Each period is longer by this factor than the following (later) one."""

EVENTS_READ = 100_000
SEARCH_S = 20.0
CONDITION_CPU_S = 5.0
"""The limit on the total CPU time of all evaluations of a search."""

AT_ONCE = 500
"""The number of events that are decoded and compared in one step, in a thread."""


class EventQuery(Struct, frozen=True, kw_only=True):
    """
    The events to search for.

    Attributes:
        since, until: The period in which they were stored. None: from the beginning of the stream, or to its end.
        node: Only events of this node. "": all nodes.
        condition: A condition that must be true. None: no condition.
        fits: A cheaper test, which is done first, before verdicts are known.
        most: The maximum number of events to return.
    """

    since: datetime | None
    until: datetime | None = None
    node: str = ""
    condition: EventFilter | None = None
    fits: Callable[[LiveEvent], bool] = lambda _: True
    most: int = 500


class EventSearchResult(Struct, kw_only=True):
    """
    The result of a search.

    Attributes:
        events: The events, newest first.
        read: The number of stored events that were examined.
        begins: All events stored after this time were examined. None: no period was examined completely.
        is_complete: Whether the whole period was examined. False: enough events were found, or a limit was reached.
        trouble: The reason why the condition could not be evaluated for some events, which are left out.
    """

    events: list[LiveEvent] = []
    read: int = 0
    begins: datetime | None = None
    is_complete: bool = False
    trouble: str = ""


async def search_events(fleet: Fleet, query: EventQuery) -> EventSearchResult:
    """
    Return the newest stored events that match.

    Raises:
        UsageError: The condition takes too long.
        BusError: The broker cannot be reached.
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
                    break  # the newest events of this period were not examined
                for message, heard in reversed(chosen):
                    verdict = authors.judge(heard.node, message) if authors is not None else None
                    found.events.append(LiveEvent(sequence=message.sequence, heard=heard, verdict=verdict))
                found.begins = end = begin
                is_open = False
                length *= PERIOD_GROWTH
    except TimeoutError:
        pass  # the events found so far are shown, marked as incomplete
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
    """Return the matching events of a period, oldest first. If there are too many, only the newest of them."""
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
    Return the matching events, and why the condition could not be evaluated for one of them.

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
    """Return the kind of an event, as operators name it: `resource`, `start`, `summary`, `answer`, `progress` or `agent`."""
    family, word = heard.protocol.split(".")[-2:]
    return {"transaction": "resource", "agent": "agent"}.get(family, word)


def stored_subjects(run: str = "", node: str = "") -> list[str]:
    """Return the subjects of the stream, or only those of one run or one node."""
    if run:
        return [run_pattern(run, node or ">")]
    kinds = (SESSION_START, TRANSACTION_EVENT, SESSION_SUMMARY)
    node = node or ">"
    return [*(f"{kind}.*.{node}" for kind in kinds), f"{PROTOCOL}.agent.*.{node}"]


async def merged(sources: list[AsyncIterator[StoredEvent]]) -> AsyncIterator[StoredEvent]:
    """
    Merge the events of several readers, each of which delivers them in stream order. Only one event per reader is in memory.
    """
    heads = [(head, source) for source in sources if (head := await anext(source, None)) is not None]
    while heads:
        place = min(range(len(heads)), key=lambda one: heads[one][0].sequence)
        head, source = heads[place]
        yield head
        following = await anext(source, None)
        heads[place : place + 1] = [(following, source)] if following is not None else []
