"""
Collect everything about one node: its record, last events, answer, and assignments.

This takes a few direct gets and one request, and reads no data of other nodes.
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
from ccm_ctl.fleet.nodes.slot_holders import NodeSlot, read_slots_of
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.gather import gather
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.trust.node_state import mark_unverified

T = TypeVar("T")

KIND = f"{PROTOCOL}.agent."
RUNS_READ = 20
"""The most assignments whose last runs are read."""

ROLLOUTS_READ = 20
"""The most open rollouts whose nodes are read."""

REFUSED_LATELY_S = 600.0
"""An agent that does not answer and refused a request so lately, or by a clock that is ahead, refuses this operator's, too."""

ANSWERED, SILENT, NOT_ASKED, DENIED = "answered", "silent", "not asked", "denied"


class WaitingRun(Struct, frozen=True):
    """A run that waits at the node for its turn."""

    run: str = ""
    name: str = ""


class Backlog(Struct, frozen=True):
    """Events that the node has not been able to send yet, and why it cannot write them to its disk; "": it can."""

    events: int = 0
    bytes: int = 0
    trouble: str = ""


class LocalManifest(Struct, frozen=True):
    """A manifest of the node's configuration: last result, problem of its source, next run."""

    name: str = ""
    digest: str = ""
    trouble: str = ""
    next: datetime | None = None


class PolicyState(Struct, frozen=True):
    """The policy of the node: the file's digest and number of rules, or why it cannot be used."""

    digest: str = ""
    rules: int = 0
    trouble: str = ""


class Status(Struct, frozen=True, kw_only=True):
    """
    The fields of an agent's status answer that are used here.

    Attributes:
        run, name: The current run; "" for none.
        stopping: The operator who stopped that run, which ends after its current resource; "" for none, and from older agents.
        progress: Its progress.
        waits_for: Locks that it waits for, each with its holder.
        waiting: Queued runs.
        spool, trouble: Unsent events, and why they are not sent.
        refused_facts: Why it refuses its assigned facts.
        manifests: Those of its own configuration.
        policy: The node's policy; None when it has none.
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
        is_planned: The node has not been asked.
    """

    record: RunRecord
    state: RolloutState
    is_planned: bool


class Evidence(Struct, frozen=True, kw_only=True):
    """
    What is known of a node.

    Attributes:
        node: Record, presence and assigned facts.
        told: What the agent said last about itself, newest of each kind, by the word: `startup`, `shutdown`, `refused`.
        heard_of: When it was last heard of; None for never.
        twins: The agents that use its identity, when there are two.
        starts, summaries: How its last run, and the last run of each assignment, began and ended, by run id.
        recorded: Those of these runs whose start is not in the stream, and that are in an operator's record.
        standing: The stored assignments that apply to it, by name.
        judged: Its state for each of them.
        answer: What its agent answered, all of it; None when it did not.
        status: The same, as far as it can be read.
        asked: ANSWERED, SILENT, NOT_ASKED (it is offline) or DENIED (this operator may not ask).
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
    rollouts: list[NodeRollout] = []
    slots: list[NodeSlot] = []


async def read_evidence(fleet: Fleet, name: str) -> Evidence:
    """
    What is known of a node.

    Raises:
        NoTargetError: The node is not known; the error names the nearest.
    """
    node, written = await _read_node(fleet, name)
    told = await _read_told(fleet, name)
    answer, asked = await _ask(fleet, node)
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
        rollouts=await _read_rollouts(fleet, name),
        slots=await read_slots_of(fleet, name),
    )


def decide_node(evidence: Evidence, now: datetime) -> NodeCondition:
    """Return the condition of a node, with what its agent answered."""
    return decide_condition(evidence.node, evidence.judged, now, _answer(evidence, now))


def _answer(evidence: Evidence, now: datetime) -> AgentAnswer | None:
    """What its agent answered; None: it was not asked, or this operator may not ask."""
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
    """The node, and when it last wrote something other than a sign of life."""
    check_node(name)
    node, written = Node(name=name), None
    for entry in await fleet.nodes.matching([f"{kind}.{name}" for kind in ("node", "presence", "facts")]):
        kind = entry.key.partition(".")[0]
        node.entries[kind] = entry
        if kind == "node":
            node.record = _decoded(entry, NodeRecord)
        elif kind == "presence":
            node.presence = _decoded(entry, Presence)
            if node.presence is not None:
                node.heard, node.clock_off_s = entry.created, clock_off_s(node.presence, entry.created)
        written = max(written, entry.created) if written else entry.created
    assigned = await fleet.facts.get(name)
    document = decode_document(assigned) if assigned else None
    if assigned is not None and document is not None and isinstance(document.body, dict):
        node.assigned, node.entries[ASSIGNED] = document.body, assigned
    await mark_unverified(fleet, [node])
    if written is None and not node.assigned:
        (await read_inventory(fleet)).need(name)
    return node, written


def _decoded(entry: KeyValueEntry, kind: type[T]) -> T | None:
    try:
        return decode_foreign(entry.value, kind)
    except msgspec.MsgspecError:
        return None  # an unreadable record explains nothing, but a missing answer will


async def _read_told(fleet: Fleet, name: str) -> dict[str, AgentEvent]:
    found = {}
    for message in await fleet.events.newest([f"{KIND}*.{name}"]):
        said = _said(message)
        if isinstance(said, AgentEvent):
            found[said.protocol.removeprefix(KIND)] = said
    return found


def _wanted_runs(node: Node) -> list[str]:
    """The node's last run, and the last run of each of its assignments."""
    record = node.record or NodeRecord(node=node.name)
    runs = [record.last_run, *(state.run for state in record.assignments.values())]
    return list(dict.fromkeys(run for run in runs if is_id(run)))[: RUNS_READ + 1]


async def _read_recorded(fleet: Fleet, runs: Iterable[str]) -> frozenset[str]:
    """Those of the runs that an operator recorded."""
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
    """The open rollouts that a node is part of; reading is bounded."""
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
    """What its agent answers, if it is there; bounded by the rounds of a question."""
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
    """Decode an answer; an unreadable one, perhaps of another version, gives an empty status."""
    try:
        return msgspec.convert(answer or {}, Status)
    except msgspec.ValidationError:
        return Status()


def _with_newest(record: NodeRecord | None, status: Status) -> NodeRecord | None:
    """What a node wrote of itself, with the run that has ended since: its agent knows at once, and writes it some time later."""
    if record is None or status.last_time is None or not is_id(status.last_run):
        return record
    if record.last_time is not None and status.last_time <= record.last_time:
        return record
    newest = {"last_run": status.last_run, "last_state": status.last_state, "last_time": status.last_time}
    return msgspec.structs.replace(record, **newest)


def _said(message: StoredEvent) -> object:
    """Decode an event; None if it breaks the protocol."""
    try:
        return decode_agent_message(message).said
    except (ProtocolError, msgspec.MsgspecError):
        return None
