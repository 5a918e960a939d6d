"""
Read runs that no operator started from the stream of events: those of schedules, assignments and the nodes' own configuration.

The broker sends the requests of schedules, and nodes converge on their own, so no operator has a record of these runs. Each
node's session contains its cause. The stream keeps sessions for a limited time, and the number of events read is limited. The
result contains the time since which it is complete.

A single node could report a false cause, so a run has the cause that most of its nodes report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

from msgspec import Struct

from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.ids import id_time
from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY, SessionStart, SessionSummary
from ccm_agent.model.ports import StoredEvent
from ccm_agent.model.wire import CARRIED_OUT, NodeState
from ccm_ctl.fleet.events.messages import decode_agent_message
from ccm_ctl.fleet.ports import Fleet

READ_LIMIT = 10_000
"""The maximum number of events that one list reads, two per session. Reading them takes about a second."""

READ_LONG_LIMIT = 200_000
"""The same limit if the operator specifies how far back to read."""

NODE_SHARE = 1_000
"""The maximum number of sessions taken from one node per window, because a node can invent any number of runs."""

SURPLUS = 5
"""The total of events read is at most this many times the limit, including events beyond the share of their node."""

FIRST_WINDOW_S = 600.0
"""The stream is read backward in windows, each twice as long as the one before. A window that exceeds the limit is not used."""

RUN_LIMIT = 20_000
"""The maximum number of sessions that are read for one run."""

SCHEDULE, ASSIGNMENT, NODE = "schedule", "assignment", "node"
"""The causes of a run other than an operator. NODE: the manifest is in the node's own configuration."""

REQUEST = "request"
"""The cause of a run that an operator started."""

CAUSES = (REQUEST, SCHEDULE, ASSIGNMENT, NODE)

T = TypeVar("T", SessionStart, SessionSummary)


class NodeSession(Struct, kw_only=True):
    """
    One node's part in a run: the first and the last event of its session.

    Attributes:
        start: Its first event.
        summary: Its summary. None: the end is not known.
    """

    start: SessionStart
    summary: SessionSummary | None = None

    @property
    def state(self) -> NodeState:
        """The state of the session."""
        if self.summary is None:
            return NodeState.RUNNING
        word = self.summary.state
        return NodeState(word) if word in CARRIED_OUT else NodeState.FAILED


class StreamRun(Struct, kw_only=True):
    """
    One run, from the stream.

    Attributes:
        run: Its ID.
        sessions: The sessions, by node.
    """

    run: str
    sessions: dict[str, NodeSession] = {}

    @property
    def time(self) -> datetime:
        """When the run was due or began: the time in its ID."""
        return id_time(self.run)

    @property
    def _told(self) -> SessionStart:
        """A session start with the values that most nodes report."""
        starts = [session.start for session in self.sessions.values()]
        most, _ = Counter(_describe(start) for start in starts).most_common(1)[0]
        return next(start for start in starts if _describe(start) == most)

    @property
    def cause(self) -> str:
        """A value of CAUSES."""
        return find_cause(self._told)

    @property
    def origin(self) -> str:
        """The name of the schedule or assignment, or "" for other runs and older agents."""
        return self._told.origin

    @property
    def name(self) -> str:
        """The name of the manifest."""
        return self._told.manifest

    @property
    def requester(self) -> str:
        """The operator who started the run, if any."""
        return self._told.requester

    @property
    def message(self) -> str:
        """The reason that the operator gave. "": there is none, or the agent is older."""
        return self._told.message

    @property
    def action(self) -> str:
        """`apply`, `plan` or `check`."""
        told = self._told
        return "plan" if told.noop else "check" if told.health_check_only else "apply"


class RecentRuns(Struct, frozen=True, kw_only=True):
    """
    Runs that were found in the stream.

    Attributes:
        runs: The runs, newest first.
        since: The time since which the list is complete.
        is_cut: Whether older sessions in the stream were not read, because there are too many.
        crowding: Nodes that reported more sessions than their share. Some of their sessions were left out.
    """

    runs: list[StreamRun]
    since: datetime
    is_cut: bool = False
    crowding: frozenset[str] = frozenset()


def find_cause(start: SessionStart) -> str:
    """Return the cause of a session, as a value of CAUSES."""
    if start.cause == SCHEDULE:
        return SCHEDULE
    if start.cause == REQUEST:
        return REQUEST
    return ASSIGNMENT if start.origin else NODE


async def read_recent(
    fleet: Fleet, since: datetime, is_enough: Callable[[list[StreamRun]], bool], most: int = READ_LIMIT
) -> RecentRuns:
    """
    Return the runs in the stream, read backward from now.

    Args:
        fleet: The bus.
        since: Sessions before this time are not read.
        is_enough: Called with the runs found so far, newest first. Returns whether to stop.
        most: The maximum number of events to read.
    """
    now = fleet.clock.now()
    reader = _Reader(fleet, most)
    window_s, complete_since = FIRST_WINDOW_S, now
    while True:
        start = max(now - timedelta(seconds=window_s), since)
        if not await reader.read_from(start):
            return RecentRuns(
                runs=reader.runs(), since=complete_since, is_cut=True, crowding=frozenset(reader.crowding)
            )
        complete_since = start
        runs = reader.runs()
        if start <= since or is_enough(runs):
            return RecentRuns(runs=runs, since=complete_since, crowding=frozenset(reader.crowding))
        window_s *= 2


async def read_run(fleet: Fleet, run: str) -> StreamRun | None:
    """Return one run, without the ends of its nodes, or None if the stream has no session of the run."""
    found = StreamRun(run=run, sessions={})
    count = 0
    async for event in fleet.events.scan(f"{SESSION_START}.{run}.>"):
        count += 1
        if count > RUN_LIMIT:
            break
        if (start := _decode(event, SessionStart)) is not None:
            node = start[1]
            found.sessions.setdefault(node, NodeSession(start=start[2]))
    return found if found.sessions else None


async def find_runs(fleet: Fleet, prefix: str) -> list[str]:
    """Return the IDs of runs in the stream with this prefix. An ID begins with its time, so older sessions are not read."""
    try:
        earliest, latest = (id_time(prefix.ljust(27, fill)) for fill in "0z")
    except (ValueError, OverflowError, OSError):
        return []
    found: dict[str, None] = {}
    count = 0
    async for event in fleet.events.scan(f"{SESSION_START}.>", since=earliest - timedelta(minutes=10)):
        count += 1
        is_past = event.time is not None and event.time > latest + timedelta(days=1)
        if count > READ_LONG_LIMIT or (is_past and found):
            break
        run = event.subject.removeprefix(f"{SESSION_START}.").partition(".")[0]
        if run.startswith(prefix):
            found[run] = None
    return list(found)


class _Reader:
    """
    Reads sessions window by window, the newest window first.

    Attributes:
        crowding: Nodes with sessions that were left out.
    """

    def __init__(self, fleet: Fleet, most: int) -> None:
        self._events = fleet.events
        self._now = fleet.clock.now()
        self._left = most
        self._left_at_all = most * SURPLUS
        self.crowding: set[str] = set()
        self._starts: dict[tuple[str, str], SessionStart] = {}
        self._summaries: dict[tuple[str, str], SessionSummary] = {}
        self._read_to: dict[str, int] = {}

    async def read_from(self, start: datetime) -> bool:
        """Read the unread events since a time. Returns False, without storing any, if there are too many."""
        starts = await self._window(SESSION_START, start, SessionStart)
        summaries = await self._window(SESSION_SUMMARY, start, SessionSummary) if starts is not None else None
        if starts is None or summaries is None:
            return False
        self._starts = {**starts, **self._starts}
        self._summaries = {**summaries, **self._summaries}
        return True

    def runs(self) -> list[StreamRun]:
        """Return the runs found so far, newest first."""
        found: dict[str, StreamRun] = {}
        for (run, node), start in self._starts.items():
            session = NodeSession(start=start, summary=self._summaries.get((run, node)))
            found.setdefault(run, StreamRun(run=run, sessions={})).sessions[node] = session
        # the time in an ID is not trusted, so a time in the future is treated as the current time
        return sorted(found.values(), key=lambda one: (min(one.time, self._now), one.run), reverse=True)

    async def _window(self, kind: str, start: datetime, what: type[T]) -> dict[tuple[str, str], T] | None:
        found: dict[tuple[str, str], T] = {}
        counts: Counter[str] = Counter()
        first = 0
        before = self._read_to.get(kind)
        async for event in self._events.scan(f"{kind}.>", since=start):
            if before is not None and event.sequence >= before:
                break
            first = first or event.sequence
            self._left_at_all -= 1
            node = event.subject.removeprefix(f"{kind}.").partition(".")[2]
            counts[node] += 1
            if counts[node] <= NODE_SHARE:
                self._left -= 1
            if self._left < 0 or self._left_at_all < 0:
                return None
            if counts[node] > NODE_SHARE:
                self.crowding.add(node)
                continue
            if (decoded := _decode(event, what)) is not None:
                run, node, said = decoded
                found.setdefault((run, node), said)
        if first:
            self._read_to[kind] = first
        return found


def _describe(start: SessionStart) -> tuple[str, ...]:
    return find_cause(start), start.origin, start.manifest, start.requester, str(start.noop)


def _decode(event: StoredEvent, what: type[T]) -> tuple[str, str, T] | None:
    """Return run, node and content of an event, or None if it is of another kind."""
    try:
        heard = decode_agent_message(event)
        id_time(heard.run)
    except (ProtocolError, ValueError, OverflowError):
        return None
    return (heard.run, heard.node, heard.said) if isinstance(heard.said, what) else None
