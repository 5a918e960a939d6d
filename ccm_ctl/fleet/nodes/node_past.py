"""
The history of one node from the stream of events: its sessions in order of time, and the state of each resource.

The stream has an event for each resource that changed, failed, was skipped or refreshed. Stable resources are only counted. The
state of a resource is therefore that of its newest event. A resource without an event has not changed since the beginning of the
stream. Events that are not from the node are ignored.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime

from msgspec import Struct

from ccm_agent.bus.subjects import check_node, run_pattern
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.outcome import SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.ports import StoredEvent
from ccm_agent.model.records.verdicts import BAD, Verdict
from ccm_agent.model.wire import AgentEvent
from ccm_ctl.fleet.events.messages import AgentMessage, decode_agent_message
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.trust.authors import learn_records, read_authors
from ccm_ctl.fleet.trust.verification import judge_events, read_events

EVENTS_LIMIT = 20_000
"""The maximum number of a node's events that are kept. The newest are kept."""


class PastSession(Struct, kw_only=True):
    """
    One session of a node.

    Attributes:
        run: The ID of its run.
        time: When its first known event was stored, by the broker's clock.
        start, summary: Its first and last event. None: unknown.
        events: The events of its resources, in order.
        verdict: The worst verdict on its events. None: these credentials cannot verify them.
        numbers: The numbers of its events.
    """

    run: str
    time: datetime
    start: SessionStart | None = None
    summary: SessionSummary | None = None
    events: list[TransactionEvent] = []
    verdict: Verdict | None = None
    numbers: set[int] = set()

    @property
    def state(self) -> str:
        """The end state: a value of the wire's `NodeState`, or "running" if the end is unknown."""
        if self.summary is None:
            return "running"
        return self.summary.state or ("failed" if self.summary.failed_resources else "stable")

    @property
    def is_quiet(self) -> bool:
        """Whether nothing changed and nothing is wrong."""
        return self.state == "stable" and not self.events and self.verdict not in BAD

    @property
    def is_empty(self) -> bool:
        """Whether none of its events are from the node itself."""
        return self.start is None and self.summary is None and not self.events

    @property
    def applies(self) -> bool:
        """Whether it may have changed something, because it is neither a plan nor only health checks."""
        ends = (self.start, self.summary)
        return not any(end is not None and (end.noop or end.health_check_only) for end in ends)

    @property
    def manifest(self) -> str:
        """The name of the manifest."""
        return next((end.manifest for end in (self.start, self.summary) if end and end.manifest), "")

    def take(self, heard: AgentMessage, verdict: Verdict | None) -> None:
        """Add an event, or only flag it if it is forged. Other events are not searched, because a node may send many."""
        said = heard.said
        if verdict in BAD or self.verdict is None:
            self.verdict = verdict
        if verdict is Verdict.FORGED:
            return
        if isinstance(said, SessionStart):
            self.start = self.start or said
        elif isinstance(said, SessionSummary):
            self.summary = said
        elif isinstance(said, TransactionEvent) and said.number not in self.numbers:
            self.numbers.add(said.number)
            self.events.append(said)


class PastAgentEvent(Struct, frozen=True, kw_only=True):
    """An event of the agent about itself, the time at which it was stored, and the verdict on it."""

    time: datetime
    event: AgentEvent
    verdict: Verdict | None = None


class NodePast(Struct, kw_only=True):
    """
    The history of a node, oldest first.

    Attributes:
        entries: Its sessions, and the events of its agent about itself.
        begins: When the oldest event of any node in the stream was stored. None: the stream is empty.
        left_out: The number of older events that were read but not kept, because there are too many.
    """

    entries: list[PastSession | PastAgentEvent] = []
    begins: datetime | None = None
    left_out: int = 0

    @property
    def sessions(self) -> list[PastSession]:
        """The sessions."""
        return [entry for entry in self.entries if isinstance(entry, PastSession)]


class PastResource(Struct, frozen=True, kw_only=True):
    """
    The last state of a resource.

    Attributes:
        event: Its newest event.
        session: The session of this event.
        changed: The session that last changed it. None: it has not changed since the beginning of the stream.
    """

    event: TransactionEvent
    session: PastSession
    changed: PastSession | None = None


class PastManifest(Struct, kw_only=True):
    """
    The last session of a node with one manifest.

    Attributes:
        session: The newest session that applied the manifest.
        resources: Its resources with events, by `type#name`. The name of a nested resource follows those of its parents.
    """

    session: PastSession
    resources: dict[str, PastResource] = {}

    @property
    def silent(self) -> int:
        """The number of resources without events. Nothing else is known about them."""
        total = self.session.summary.total_resources if self.session.summary else 0
        return max(total - len(self.resources), 0)


async def read_past(
    fleet: Fleet, node: str, since: datetime | None = None, until: datetime | None = None
) -> NodePast:
    """
    Return the history of a node, from the stream.

    Args:
        fleet: The bus.
        node: Its name.
        since, until: Limits of the time range. None: no limit.
    """
    kept: deque[StoredEvent] = deque(maxlen=EVENTS_LIMIT)
    count = 0
    async for event in read_events(fleet, node, since):
        if until is not None and event.time is not None and event.time > until:
            break
        count += 1
        kept.append(event)
    verdicts = await _judge(fleet, node, kept)
    sessions: dict[str, PastSession] = {}
    found: list[PastSession | PastAgentEvent] = []
    for event in kept:
        try:
            heard = decode_agent_message(event)
        except ProtocolError:
            continue
        verdict = verdicts.get(event.sequence)
        time = event.time or fleet.clock.now()
        if isinstance(heard.said, AgentEvent):
            found.append(PastAgentEvent(time=time, event=heard.said, verdict=verdict))
            continue
        if heard.run not in sessions:
            sessions[heard.run] = PastSession(run=heard.run, time=time, events=[])
            found.append(sessions[heard.run])
        sessions[heard.run].take(heard, verdict)
    return NodePast(entries=found, begins=await fleet.events.oldest(), left_out=count - len(kept))


async def read_session(fleet: Fleet, node: str, run: str) -> PastSession | None:
    """
    Return one session of a node, or None if the stream has no events of the session.

    Raises:
        UsageError: This is not a valid node name.
        ProtocolError: This is not a valid run ID.
    """
    stored = await fleet.events.read(run_pattern(run, check_node(node)))
    times = [event.time for event in stored if event.time is not None]
    if not times:
        return None
    # other events of the node in this period are also read, because all of its events are in the same chain
    past = await read_past(fleet, node, min(times), max(times))
    return next((one for one in past.sessions if one.run == run and not one.is_empty), None)


def find_states(past: NodePast) -> dict[str, PastManifest]:
    """Return the newest state of each resource, by manifest. Sessions that only plan or check health are ignored."""
    manifests: dict[str, PastManifest] = {}
    for session in past.sessions:
        if not session.applies or session.is_empty:
            continue
        known = manifests.setdefault(session.manifest, PastManifest(session=session, resources={}))
        known.session = session
        for event in session.events:
            name = name_resource(event)
            was = known.resources.get(name)
            changed = session if event.changed and not event.failed else was.changed if was else None
            known.resources[name] = PastResource(event=event, session=session, changed=changed)
    return manifests


def name_resource(event: TransactionEvent) -> str:
    """Return `type#name`, preceded by the parents of a nested resource."""
    name = f"{event.type}#{event.name}"
    return f"{event.parent} > {name}" if event.parent else name


async def _judge(fleet: Fleet, node: str, kept: deque[StoredEvent]) -> dict[int, Verdict]:
    authors = await read_authors(fleet)
    if authors is None:
        return {}
    await learn_records(fleet, authors, [node])
    return judge_events(node, authors, kept)
