"""
One node's past, from the stream of events: its sessions in order of time, and what each resource was.

The stream has an event for each resource that changed, failed, was skipped or refreshed; a stable resource is only counted. So
a resource is what its newest event says, and of one without an event it is only known that it has not changed since the stream
begins. Events that are not the node's own do not count.
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
"""The most events of a node that are kept, the newest ones."""


class PastSession(Struct, kw_only=True):
    """
    One session of a node.

    Attributes:
        run: The id of its run.
        time: When its first known event was stored, by the broker's clock.
        start, summary: The two ends; None: not known.
        events: What happened to its resources, in order.
        verdict: The worst that can be said of its events; None: these credentials cannot tell.
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
        """How it ended: a word of the wire's `NodeState`; "running" when no end is known."""
        if self.summary is None:
            return "running"
        return self.summary.state or ("failed" if self.summary.failed_resources else "stable")

    @property
    def is_quiet(self) -> bool:
        """Nothing changed, and nothing is wrong."""
        return self.state == "stable" and not self.events and self.verdict not in BAD

    @property
    def is_empty(self) -> bool:
        """Nothing of it is the node's own."""
        return self.start is None and self.summary is None and not self.events

    @property
    def applies(self) -> bool:
        """It may have changed something: it is not a plan, and more than health checks."""
        ends = (self.start, self.summary)
        return not any(end is not None and (end.noop or end.health_check_only) for end in ends)

    @property
    def manifest(self) -> str:
        """The name of the manifest."""
        return next((end.manifest for end in (self.start, self.summary) if end and end.manifest), "")

    def take(self, heard: AgentMessage, verdict: Verdict | None) -> None:
        """Add an event; what is forged is only flagged. Looks through no others: a node may make up many."""
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
    """What the agent said of itself, when it was stored, and the verdict on it."""

    time: datetime
    event: AgentEvent
    verdict: Verdict | None = None


class NodePast(Struct, kw_only=True):
    """
    The past of a node, oldest first.

    Attributes:
        entries: Its sessions, and what its agent said of itself.
        begins: When the oldest event of all nodes was stored that the stream still holds; None: it holds none.
        left_out: How many older events were read and not kept, because there are too many.
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
    What a resource was.

    Attributes:
        event: Its newest event.
        session: Of which session.
        changed: The session that changed it last; None: none since the stream begins.
    """

    event: TransactionEvent
    session: PastSession
    changed: PastSession | None = None


class PastManifest(Struct, kw_only=True):
    """
    What a node last did with one manifest.

    Attributes:
        session: The newest session that applied it.
        resources: Its resources that have an event, by `type#name`; a nested one after its parents.
    """

    session: PastSession
    resources: dict[str, PastResource] = {}

    @property
    def silent(self) -> int:
        """How many resources have no event, so nothing but their number is known."""
        total = self.session.summary.total_resources if self.session.summary else 0
        return max(total - len(self.resources), 0)


async def read_past(
    fleet: Fleet, node: str, since: datetime | None = None, until: datetime | None = None
) -> NodePast:
    """
    The past of a node, as the stream has it.

    Args:
        fleet: The bus.
        node: Its name.
        since, until: Older and newer events are left out; None: none are.
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
    One session of a node; None: the stream has none of its events.

    Raises:
        UsageError: Not the name of a node.
        ProtocolError: Not the id of a run.
    """
    stored = await fleet.events.read(run_pattern(run, check_node(node)))
    times = [event.time for event in stored if event.time is not None]
    if not times:
        return None
    # other events of the node in this time are read as well: all of them are places of one chain
    past = await read_past(fleet, node, min(times), max(times))
    return next((one for one in past.sessions if one.run == run and not one.is_empty), None)


def find_states(past: NodePast) -> dict[str, PastManifest]:
    """What each resource was at the end of a past, by manifest. Plans and health checks change nothing."""
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
    """`type#name`, after the parents of a nested resource."""
    name = f"{event.type}#{event.name}"
    return f"{event.parent} > {name}" if event.parent else name


async def _judge(fleet: Fleet, node: str, kept: deque[StoredEvent]) -> dict[int, Verdict]:
    authors = await read_authors(fleet)
    if authors is None:
        return {}
    await learn_records(fleet, authors, [node])
    return judge_events(node, authors, kept)
