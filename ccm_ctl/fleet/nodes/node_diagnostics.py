"""
Collect the available information about one node: its record, last events, answer and assignments.

This needs a few direct gets and one request, and does not read data of other nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ccm_agent.bus.subjects import check_node, event_subject, node_scope
from ccm_agent.model.errors import BusDeniedError, ProtocolError, RunError
from ccm_agent.model.formats.untrusted_json import Moment, decode_foreign
from ccm_agent.model.ids import is_id
from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY, SessionStart, SessionSummary
from ccm_agent.model.ports import KeyValueEntry, StoredEvent
from ccm_agent.model.records.rollout_records import RolloutState
from ccm_agent.model.records.run_records import RunRecord
from ccm_agent.model.wire import NODE_STATUS, PROTOCOL, AgentEvent, NodeRecord, Presence, Progress
from ccm_ctl.fleet.assignments.assignments import Assignments, Standing, read_assignments
from ccm_ctl.fleet.assignments.convergence import NodeStanding, judge, read_away
from ccm_ctl.fleet.assignments.followed_data import FollowedData, followed_keys
from ccm_ctl.fleet.data.documents import decode_document
from ccm_ctl.fleet.events.messages import decode_agent_message
from ccm_ctl.fleet.nodes.inventory import read_inventory, read_twins
from ccm_ctl.fleet.nodes.node_clock import clock_off_s
from ccm_ctl.fleet.nodes.node_condition import AgentAnswer, NodeCondition, decide_condition
from ccm_ctl.fleet.nodes.nodes import ASSIGNED, DuplicateIdentity, Inventory, Node, TargetSet
from ccm_ctl.fleet.nodes.sites import SiteSource
from ccm_ctl.fleet.nodes.slot_holders import NodeSlot, read_slots_of
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.gather import gather
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.trust.node_state import mark_unverified

T = TypeVar("T")

KIND = f"{PROTOCOL}.agent."
RUNS_READ = 20
"""The maximum number of assignments whose last runs are read."""

ROLLOUTS_READ = 20
"""The maximum number of open rollouts whose nodes are read."""

REFUSED_LATELY_S = 600.0
"""
A silent agent is assumed to have refused the query if it refused another request within this time, or at a future time by its
clock.
"""

ANSWERED, SILENT, NOT_ASKED, DENIED = "answered", "silent", "not asked", "denied"


class WaitingRun(Struct, frozen=True):
    """A run that waits in the node's queue."""

    run: str = ""
    name: str = ""


class Backlog(Struct, frozen=True):
    """Events that the node has not been able to send yet, and the reason why it cannot write them to disk ("" if it can)."""

    events: int = 0
    bytes: int = 0
    trouble: str = ""


class LocalManifest(Struct, frozen=True):
    """A manifest in the node's configuration, with its last result, the problem of its source, and its next run."""

    name: str = ""
    digest: str = ""
    trouble: str = ""
    next: datetime | None = None


class PolicyState(Struct, frozen=True):
    """The policy of the node: the file's digest and the number of rules, or the reason why it is not usable."""

    digest: str = ""
    rules: int = 0
    trouble: str = ""


class Status(Struct, frozen=True, kw_only=True):
    """
    The fields of an agent's status answer that are used here.

    Attributes:
        run, name: The current run, or "".
        stopping: The operator who stopped that run, which ends after its current resource. "": the run was not
            stopped, or the agent is older.
        progress: Its progress.
        waits_for: Locks that the run waits for, each with its holder.
        waiting: Queued runs.
        spool, trouble: The number of unsent events, and the reason why they are not sent.
        refused_facts: The reason why it refuses its assigned facts.
        manifests: The manifests in its own configuration.
        policy: The node's policy, or None.
        last_run, last_state, last_time: Its newest finished run.
    """

    run: str = ""
    name: str = ""
    stopping: str = ""
    progress: Progress | None = None
    waits_for: dict[str, str] = {}
    waiting: list[WaitingRun] = []
    spool: Backlog = Backlog()
    trouble: str = ""
    refused_facts: str = ""
    manifests: list[LocalManifest] = []
    policy: PolicyState | None = None
    last_run: str = ""
    last_state: str = ""
    last_time: Moment | None = None


class NodeRollout(Struct, frozen=True, kw_only=True):
    """
    An open rollout that a node is part of.

    Attributes:
        record: Its run.
        state: Its state.
        is_planned: Whether the request has not been sent to the node yet.
    """

    record: RunRecord
    state: RolloutState
    is_planned: bool


class Evidence(Struct, frozen=True, kw_only=True):
    """
    The available information about a node.

    Attributes:
        node: Record, presence and assigned facts.
        told: The agent's newest event of each kind: `startup`, `shutdown` and `refused`.
        heard_of: The time of its last message. None: there is none.
        twins: The agents that use its identity, if there are two.
        starts, summaries: The first and last events of its last run, and of the last run of each assignment, by run ID.
        recorded: The runs that have no start event in the stream, but are in an operator's records.
        standing: The stored assignments that apply to it, by name.
        judged: Its state for each assignment.
        answer: The full answer of its agent. None: no answer.
        status: The readable part of the answer.
        asked: ANSWERED, SILENT, NOT_ASKED (the node is offline or at a site) or DENIED (this operator may not send the query).
        site: Its site, if its entries were copied from the broker of a site. Requests do not reach it from here.
        rollouts: The open rollouts that it is part of, oldest first.
        slots: The slots that it holds or waits for.
    """

    node: Node
    told: dict[str, AgentEvent] = {}
    heard_of: datetime | None = None
    twins: list[DuplicateIdentity] = []
    starts: dict[str, SessionStart] = {}
    summaries: dict[str, SessionSummary] = {}
    recorded: frozenset[str] = frozenset()
    standing: dict[str, Standing] = {}
    judged: dict[str, NodeStanding] = {}
    answer: dict[str, Any] | None = None
    status: Status = Status()
    asked: str = NOT_ASKED
    site: SiteSource | None = None
    rollouts: list[NodeRollout] = []
    slots: list[NodeSlot] = []


async def read_evidence(fleet: Fleet, name: str) -> Evidence:
    """
    Collect the available information about a node.

    Raises:
        NoTargetError: The node is unknown. The error names the most similar node.
    """
    node, written = await _read_node(fleet, name)
    told = await _read_told(fleet, name)
    site = await fleet.sites.site_of(node.copied_from) if fleet.sites is not None else None
    answer, asked = await _ask(fleet, node) if site is None else (None, NOT_ASKED)
    node.record = _with_newest(node.record, read_status(answer))
    starts, summaries = await _read_sessions(fleet, node)
    moments = [written, *(event.timestamp for event in told.values())]
    moments += [summary.timestamp for summary in summaries.values()]
    if node.presence:
        moments.append(node.presence.time)
    assignments = await _read_assignments(fleet, node)
    standing = assignments.of_node(node)
    newest = await FollowedData(fleet.data).newest(followed_keys([node], assignments))
    away = None if node.is_present else (await read_away(fleet, [node])).get(name)
    now = fleet.clock.now()
    return Evidence(
        node=node,
        told=told,
        heard_of=max((moment for moment in moments if moment is not None), default=None),
        twins=await read_twins(fleet, name) if "duplicate" in told else [],
        starts=starts,
        recorded=await _read_recorded(fleet, [run for run in _wanted_runs(node) if run not in starts]),
        summaries=summaries,
        standing=standing,
        judged={one: judge(node, found, now, away, newest) for one, found in standing.items()},
        answer=answer,
        status=read_status(answer),
        asked=asked,
        site=site,
        rollouts=await _read_rollouts(fleet, name),
        slots=await read_slots_of(fleet, name),
    )


def decide_node(evidence: Evidence, now: datetime) -> NodeCondition:
    """Return the condition of a node, including the answer of its agent."""
    return decide_condition(evidence.node, evidence.judged, now, _answer(evidence, now))


def _answer(evidence: Evidence, now: datetime) -> AgentAnswer | None:
    """Return the answer of its agent. None: the agent was not queried, or this operator may not query it."""
    if evidence.asked not in (ANSWERED, SILENT):
        return None
    refused, status = evidence.told.get("refused"), evidence.status
    is_silent = evidence.asked == SILENT
    is_lately = refused is not None and (now - refused.timestamp).total_seconds() < REFUSED_LATELY_S
    return AgentAnswer(
        is_silent=is_silent,
        refuses_requests=is_silent and is_lately,
        run=status.run,
        refused_facts=status.refused_facts,
        disk=status.spool.trouble,
        undelivered=status.trouble,
    )


async def _read_node(fleet: Fleet, name: str) -> tuple[Node, datetime | None]:
    """Return the node, and the time of its last write other than a heartbeat."""
    check_node(name)
    node, written = Node(name=name), None
    for entry in await fleet.nodes.matching([f"{kind}.{name}" for kind in ("node", "presence", "facts")]):
        kind = entry.key.partition(".")[0]
        node.entries = {**node.entries, kind: entry}
        node.copied_from = entry.copied_from
        if kind == "node":
            node.record = _decoded(entry, NodeRecord)
        elif kind == "presence":
            node.presence = _decoded(entry, Presence)
            if node.presence is not None:
                node.heard, node.clock_off_s = entry.created, clock_off_s(node.presence, entry)
        written = max(written, entry.created) if written else entry.created
    assigned = await fleet.facts.get(name)
    document = decode_document(assigned) if assigned else None
    if assigned is not None and document is not None and isinstance(document.body, dict):
        node.assigned, node.entries = document.body, {**node.entries, ASSIGNED: assigned}
    await mark_unverified(fleet, [node])
    if written is None and not node.assigned:
        (await read_inventory(fleet)).need(name)
    return node, written


def _decoded(entry: KeyValueEntry, kind: type[T]) -> T | None:
    try:
        return decode_foreign(entry.value, kind)
    except msgspec.MsgspecError:
        return None  # an unreadable record is ignored, because a missing answer also shows the problem


async def _read_told(fleet: Fleet, name: str) -> dict[str, AgentEvent]:
    found = {}
    for message in await fleet.events.newest([f"{KIND}*.{name}"]):
        said = _said(message)
        if isinstance(said, AgentEvent):
            found[said.protocol.removeprefix(KIND)] = said
    return found


def _wanted_runs(node: Node) -> list[str]:
    """Return the node's last run, and the last run of each of its assignments."""
    record = node.record or NodeRecord(node=node.name)
    runs = [record.last_run, *(state.run for state in record.assignments.values())]
    return list(dict.fromkeys(run for run in runs if is_id(run)))[: RUNS_READ + 1]


async def _read_recorded(fleet: Fleet, runs: Iterable[str]) -> frozenset[str]:
    """Return those of the runs that are in an operator's records."""
    patterns = [f"*.{run}.request" for run in runs]
    entries = await fleet.runs.matching(patterns) if patterns else []
    return frozenset(entry.key.split(".")[1] for entry in entries)


async def _read_sessions(
    fleet: Fleet, node: Node
) -> tuple[dict[str, SessionStart], dict[str, SessionSummary]]:
    wanted = _wanted_runs(node)
    kinds = (SESSION_START, SESSION_SUMMARY)
    starts, summaries = {}, {}
    for message in await fleet.events.newest(
        [event_subject(kind, node.name, run) for run in wanted for kind in kinds]
    ):
        said = _said(message)
        if isinstance(said, SessionStart):
            starts[said.run] = said
        elif isinstance(said, SessionSummary):
            summaries[said.run] = said
    return starts, summaries


async def _read_rollouts(fleet: Fleet, name: str) -> list[NodeRollout]:
    """Return the open rollouts that a node is part of. The number read is limited."""
    found = []
    for state in (await RolloutStore(fleet).open_rollouts([]))[-ROLLOUTS_READ:]:
        try:
            recorded = await History(fleet).load(state.run)
        except (ProtocolError, RunError):
            continue
        if name in recorded.nodes:
            is_planned = name not in recorded.nodes[: state.asked] and name not in state.returned
            found.append(NodeRollout(record=recorded.record, state=state, is_planned=is_planned))
    return found


async def _read_assignments(fleet: Fleet, node: Node) -> Assignments:
    assignments = await read_assignments(fleet)
    await assignments.fill_in(fleet, Inventory({node.name: node}))
    return assignments


async def _ask(fleet: Fleet, node: Node) -> tuple[dict[str, Any] | None, str]:
    """Return the agent's answer, if it is online, and the result of the query. The number of attempts is limited."""
    if not node.is_present:
        return None, NOT_ASKED
    meant = TargetSet(nodes=[node.name], offline=[], scopes=[node_scope(node.name)], targets=[])
    try:
        replies, _ = await gather(fleet, NODE_STATUS, meant)
    except BusDeniedError:
        return None, DENIED
    reply = replies.get(node.name)
    return (dict(reply.answer.body), ANSWERED) if reply else (None, SILENT)


def read_status(answer: dict[str, Any] | None) -> Status:
    """Decode an answer. An unreadable answer, for example from another version, results in an empty status."""
    try:
        return msgspec.convert(answer or {}, Status)
    except msgspec.ValidationError:
        return Status()


def _with_newest(record: NodeRecord | None, status: Status) -> NodeRecord | None:
    """Update a node's record with the newest finished run from the agent's answer. The answer is newer than the record."""
    if record is None or status.last_time is None or not is_id(status.last_run):
        return record
    if record.last_time is not None and status.last_time <= record.last_time:
        return record
    newest = {"last_run": status.last_run, "last_state": status.last_state, "last_time": status.last_time}
    return msgspec.structs.replace(record, **newest)


def _said(message: StoredEvent) -> object:
    """Decode an event. Returns None if the event is not valid."""
    try:
        return decode_agent_message(message).said
    except (ProtocolError, msgspec.MsgspecError):
        return None
