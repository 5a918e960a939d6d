"""List the selected runs, with the progress of each."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import ProtocolError, RunError
from ccm_agent.model.records.rollout_records import Phase, RolloutState
from ccm_agent.model.records.run_records import RunRecord, RunState
from ccm_agent.model.wire import MANIFEST_PLAN, NodeState
from ccm_ctl.fleet.assignments.assignments import read_assignments
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.find_run import is_from, match_now, read_refusals, read_schedules
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.runs.open_runs import close_ended, look_at_ends
from ccm_ctl.fleet.runs.stream_runs import (
    ASSIGNMENT,
    NODE,
    READ_LIMIT,
    READ_LONG_LIMIT,
    REQUEST,
    SCHEDULE,
    NodeSession,
    StreamRun,
    read_recent,
)
from ccm_ctl.fleet.trust.authors import read_authors

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.schedules.stored_schedule import Schedule
    from ccm_ctl.fleet.trust.authors import Authors

_LONG_AGO = datetime.min.replace(tzinfo=UTC)

PHASES = (Phase.PAUSED, Phase.ABORTED)
"""Phases of rollouts by which a list can be filtered."""

OPEN_LOOKED_AT = 50
"""
The maximum number of open runs for which a list reads the stream. Other open runs are shown with the state in their records.
"""


class RunFilter(Struct, frozen=True, kw_only=True):
    """
    Selects runs. All fields that are set must match.

    Attributes:
        node: A node that was expected in the run.
        name: The name of the manifest or resource. `*` and `?` are wildcards.
        by: The operator who started it.
        state: "open", "stopping", "done", a phase of a rollout in PHASES, or an end state of at least one node.
        since, until: The period in which the run must have begun.
        causes: Kinds of causes, from `stream_runs.CAUSES`. Empty: all.
        schedule, assignment: The name of the schedule or assignment that started it.
        folds: Whether runs of one assignment, or of one manifest in the nodes' configuration, are shown as one entry.
    """

    node: str = ""
    name: str = ""
    by: str = ""
    state: str = ""
    since: datetime | None = None
    until: datetime | None = None
    causes: tuple[str, ...] = ()
    schedule: str = ""
    assignment: str = ""
    folds: bool = False

    def wants(self, *causes: str) -> bool:
        """Whether the filter accepts runs with any of these causes."""
        if self.by:
            return REQUEST in causes
        if self.schedule or self.assignment:
            named = {SCHEDULE if self.schedule else "", ASSIGNMENT if self.assignment else ""}
            return not named.isdisjoint(causes)
        return not self.causes or not set(self.causes).isdisjoint(causes)

    def fits_origin(self, cause: str, origin: str) -> bool:
        """Whether the filter accepts this schedule or assignment."""
        named = {SCHEDULE: self.schedule, ASSIGNMENT: self.assignment}
        return not any(named.values()) or named.get(cause) == origin

    def fits_record(self, record: RunRecord) -> bool:
        """Whether the filter accepts the request of the record, its operator and its time."""
        if self.name and not fnmatchcase(record.name, self.name):
            return False
        if self.by and record.requester != self.by:
            return False
        if self.since and (record.time is None or record.time < self.since):
            return False
        return not (self.until and (record.time is None or record.time > self.until))

    def fits_state(self, state: RunState, rollout: RolloutState | None = None) -> bool:
        """Whether the filter accepts the state of the run."""
        if not self.state:
            return True
        if self.state in PHASES:
            return rollout is not None and rollout.phase == self.state
        if self.state == "open":
            return state.state != "done"
        return self.state == state.state or state.counts.get(self.state, 0) > 0


class ListedRun(Struct, frozen=True, kw_only=True):
    """
    A run in the list.

    Attributes:
        record: The request.
        state: The progress. While the run is open, `counts` contains the known number of nodes by state.
        closed_by: The operator who recorded the end of the run, if another operator started it. Otherwise "".
        unverified: The reason why its record does not verify. "": it verifies, or there is no record.
        cause, origin: The kind of the run's cause (see `stream_runs.CAUSES`), and the name of the schedule or assignment.
        others: The number of older runs of the same assignment that this entry includes. The entry shows the newest run of each
            node.
        nodes: The nodes with a session, for a run that no operator started.
        is_confirmed: Whether the broker confirms that the run's schedule was due.
        reported_by: The only node that reports the run, if it is a schedule's run that the broker cannot confirm, or the run of
            an assignment that is not stored. Otherwise "".
        rollout: The rollout of an open or stopped run. None: the run is not a rollout, or the rollout was not read.
    """

    record: RunRecord
    state: RunState
    closed_by: str = ""
    unverified: str = ""
    cause: str = REQUEST
    origin: str = ""
    others: int = 0
    nodes: frozenset[str] = frozenset()
    is_confirmed: bool = False
    reported_by: str = ""
    rollout: RolloutState | None = None

    @property
    def is_claim(self) -> bool:
        """Whether only one node reports the run and no operator started it."""
        return self.cause != REQUEST and len(self.nodes) == 1 and not self.is_confirmed


class ListedRuns(Struct, frozen=True, kw_only=True):
    """
    Runs, newest first.

    Attributes:
        runs: The runs.
        left_out: Keys of records that cannot be read.
        read_since: The time since which the list of runs that no operator started is complete. None: the stream was not read.
        is_cut: Whether older runs that no operator started were not read because there are too many events.
        begins: When the oldest event in the stream was stored. None: the stream is empty or was not read.
        crowding: Nodes with runs that were left out because the nodes report more than their share.
    """

    runs: list[ListedRun]
    left_out: list[str]
    read_since: datetime | None = None
    is_cut: bool = False
    begins: datetime | None = None
    crowding: tuple[str, ...] = ()


async def list_runs(fleet: Fleet, wanted: RunFilter, most: int) -> ListedRuns:
    """Return the newest runs that match. Also closes the records of runs that have ended."""
    left_out: list[str] = []
    runs = await _recorded_runs(fleet, wanted, most, left_out) if wanted.wants(REQUEST, SCHEDULE) else []
    if not wanted.wants(SCHEDULE, ASSIGNMENT, NODE):
        return ListedRuns(runs=runs, left_out=sorted(left_out))
    now = fleet.clock.now()
    since = wanted.since or now - timedelta(days=1)
    if len(runs) == most and (oldest := runs[-1].record.time) is not None:
        since = max(since, oldest)  # older runs would not be shown
    known = {one.record.run for one in runs}

    def is_enough(found: list[StreamRun]) -> bool:
        entries = _entries(found, wanted, known)
        return len(entries) >= most if wanted.node else _fills(entries, most)

    limit = READ_LONG_LIMIT if wanted.since else READ_LIMIT
    recent = await read_recent(fleet, since, is_enough, limit)
    entries = await _with_expected(fleet, _entries(recent.runs, wanted, known), wanted)
    fitting = [one for one in entries if wanted.fits_record(one.record) and wanted.fits_state(one.state)]
    shared, crowding = (
        _share_rows([*runs, *fitting], most, now) if not wanted.node else ([*runs, *fitting], set())
    )
    shared.sort(key=lambda one: _moment(one, now), reverse=True)
    return ListedRuns(
        runs=shared[:most],
        crowding=tuple(sorted(crowding | recent.crowding)),
        left_out=sorted(left_out),
        read_since=recent.since,
        is_cut=recent.is_cut,
        begins=await fleet.events.oldest(),
    )


def _moment(one: ListedRun, now: datetime) -> datetime:
    return min(one.record.time or _LONG_AGO, now)


def _share_rows(runs: list[ListedRun], most: int, now: datetime) -> tuple[list[ListedRun], set[str]]:
    """
    Choose the rows of a list so that the runs of one node leave room for other runs.

    A run that only one node reports may be invented, and a node can invent any number of runs. Half of the rows are for runs of
    operators, and for runs that several nodes report or the broker confirms. The other rows are shared among the nodes.

    Returns:
        The rows, and the nodes with runs that were left out in favor of older runs of other nodes.
    """
    if len(runs) <= most:
        return runs, set()
    runs = sorted(runs, key=lambda one: _moment(one, now), reverse=True)
    claims = [one for one in runs if one.is_claim]
    certain = [one for one in runs if not one.is_claim]
    room = most - min(len(certain), (most + 1) // 2)
    taken: Counter[str] = Counter()
    ranked = []
    for place, one in enumerate(claims):
        [node] = one.nodes
        taken[node] += 1
        ranked.append((taken[node], place, one))
    ranked.sort(key=lambda rank: rank[:2])  # the newest run of each node first, then the second newest runs
    kept, beyond = ([one for *_, one in part] for part in (ranked[:room], ranked[room:]))
    shown = sorted([*certain, *kept], key=lambda one: _moment(one, now), reverse=True)[:most]
    oldest = _moment(shown[-1], now)
    return shown, {node for one in beyond if _moment(one, now) > oldest for node in one.nodes}


def _fills(entries: list[ListedRun], most: int) -> bool:
    """Whether these entries fill a list even if each node may have at most a quarter of the list."""
    claims = Counter(node for one in entries if one.is_claim for node in one.nodes)
    share = max(most // 4, 1)
    certain = sum(not one.is_claim for one in entries)
    return certain + sum(min(count, share) for count in claims.values()) >= most


async def _recorded_runs(fleet: Fleet, wanted: RunFilter, most: int, left_out: list[str]) -> list[ListedRun]:
    runs: list[ListedRun] = []
    history = History(fleet)
    authors, looked_at = None, 0
    async for record, state, closed_by, unverified in history.newest_first(left_out):
        cause = SCHEDULE if record.schedule else REQUEST
        if not (wanted.by or wanted.wants(cause)) or not wanted.fits_origin(cause, record.schedule):
            continue
        if not wanted.fits_record(record):
            continue
        if wanted.node and wanted.node not in (await history.load(record.run)).nodes:
            continue
        one = ListedRun(
            record=record,
            state=state,
            closed_by=closed_by,
            unverified=unverified,
            cause=cause,
            origin=record.schedule,
            is_confirmed=True,
        )
        if state.state != "done" and looked_at < OPEN_LOOKED_AT:
            if not looked_at:
                authors = await read_authors(fleet)
            looked_at += 1
            one = await _looked_at(fleet, one, authors)
        if one.state.state != "done" or one.state.stopped_by:
            one = await _with_rollout(fleet, one)
        if wanted.fits_state(one.state, one.rollout):
            runs.append(one)
            if len(runs) == most:
                break
    return runs


def _entries(found: list[StreamRun], wanted: RunFilter, known: Collection[str]) -> list[ListedRun]:
    """Return the list entries of runs that no operator started, newest first."""
    entries: dict[tuple[str, ...], list[StreamRun]] = {}
    for run in found:
        cause = run.cause
        is_meant = cause != REQUEST and wanted.wants(cause) and run.run not in known
        if not is_meant or not wanted.fits_origin(cause, run.origin):
            continue
        if wanted.node and wanted.node not in run.sessions:
            continue
        is_folded = wanted.folds and cause != SCHEDULE
        key = (cause, run.origin, run.name, run.action) if is_folded else (run.run,)
        entries.setdefault(key, []).append(run)
    return [_entry(runs) for runs in entries.values()]


def _entry(runs: list[StreamRun]) -> ListedRun:
    """Return one entry for the runs of one origin (given newest first), with the newest session of each node."""
    newest = runs[0]
    sessions: dict[str, NodeSession] = {}
    for run in runs:
        for node, session in run.sessions.items():
            sessions.setdefault(node, session)
    counts = Counter(str(session.state) for session in sessions.values())
    is_done = all(session.summary is not None for session in sessions.values())
    return ListedRun(
        record=RunRecord(
            run=newest.run, action=newest.action, name=newest.name, time=newest.time, nodes=len(sessions)
        ),
        state=RunState(run=newest.run, state="done" if is_done else "running", counts=dict(counts)),
        cause=newest.cause,
        origin=newest.origin,
        others=len(runs) - 1,
        nodes=frozenset(sessions),
    )


async def _with_expected(fleet: Fleet, entries: list[ListedRun], wanted: RunFilter) -> list[ListedRun]:
    """Add the expected nodes without a session to the runs of schedules, and add last runs that no node started."""
    schedules = {one.name: one for one in await read_schedules(fleet)} if wanted.wants(SCHEDULE) else {}
    listed = {one.record.run for one in entries}
    for schedule in schedules.values():
        is_meant = wanted.fits_origin(SCHEDULE, schedule.name) and not wanted.node
        if is_meant and schedule.last_run and schedule.last_run not in listed:
            record = RunRecord(
                run=schedule.last_run,
                action="plan" if schedule.protocol == MANIFEST_PLAN else "apply",
                name=schedule.request.name,
                time=schedule.last,
            )
            state = RunState(run=record.run, state="done")
            entries.append(ListedRun(record=record, state=state, cause=SCHEDULE, origin=schedule.name))
    assigned = await _read_names(fleet) if any(one.cause == ASSIGNMENT for one in entries) else set()
    entries = [_judge_claim(one, schedules, assigned) for one in entries]
    expected: dict[str, set[str]] = {}
    absent: dict[str, set[str]] = {}
    times = []
    for one in entries:
        stored = schedules.get(one.origin) if one.cause == SCHEDULE else None
        if stored is not None and one.record.time and is_from(stored, one.record.time):
            if one.origin not in expected:
                expected[one.origin] = set(await match_now(fleet, stored))
            if missing := expected[one.origin] - one.nodes:
                absent[one.record.run] = missing
                times.append(one.record.time)
    refusals = await read_refusals(fleet, absent, min(times)) if times else {}
    return [
        _with_absent(one, absent[one.record.run], refusals.get(one.record.run, set()))
        if one.record.run in absent
        else one
        for one in entries
    ]


async def _read_names(fleet: Fleet) -> set[str]:
    """Return the names of the stored assignments. Only operators can write them."""
    return {one.name for one in (await read_assignments(fleet)).standing}


def _judge_claim(one: ListedRun, schedules: Mapping[str, Schedule], assigned: Collection[str]) -> ListedRun:
    """
    Mark a run if only one node reports it.

    The broker stores the last run of a schedule. Each node converges on an assignment on its own, so the only possible check is
    whether an assignment with this name exists. For other runs, the sessions are the only evidence.
    """
    reporter = next(iter(one.nodes)) if len(one.nodes) == 1 else ""
    if one.cause == ASSIGNMENT:
        return msgspec.structs.replace(one, reported_by="" if one.origin in assigned else reporter)
    if one.cause != SCHEDULE:
        return one
    stored = schedules.get(one.origin)
    is_confirmed = stored is not None and stored.last_run == one.record.run
    return msgspec.structs.replace(
        one, is_confirmed=is_confirmed, reported_by="" if is_confirmed else reporter
    )


def _with_absent(one: ListedRun, absent: set[str], refused: set[str]) -> ListedRun:
    """Add the nodes that have no session, some of which may have refused the run."""
    refused = absent & refused
    counts = Counter(one.state.counts)
    counts[str(NodeState.OFFLINE)] += len(absent - refused)
    counts[str(NodeState.REFUSED)] += len(refused)
    nodes = one.record.nodes + len(absent)
    return msgspec.structs.replace(
        one,
        record=msgspec.structs.replace(one.record, nodes=nodes, offline=len(absent - refused)),
        state=msgspec.structs.replace(one.state, counts=dict(+counts)),
    )


async def _with_rollout(fleet: Fleet, listed: ListedRun) -> ListedRun:
    """Add the rollout, if the run is a rollout that can be read."""
    try:
        found = await RolloutStore(fleet).read(listed.record.run)
    except ProtocolError:
        return listed
    return msgspec.structs.replace(listed, rollout=found[0]) if found else listed


async def _looked_at(fleet: Fleet, listed: ListedRun, authors: Authors | None) -> ListedRun:
    """Return an open run with the state from the stream, or from its record if the stream cannot be read."""
    try:
        recorded = await History(fleet).load(listed.record.run)
        run = await look_at_ends(fleet, recorded, authors)
        is_ended = await close_ended(fleet, recorded, run)
    except (ProtocolError, RunError):
        return listed
    counts = {str(state): count for state, count in run.counts().items()}
    word = "done" if is_ended else listed.state.state
    state = msgspec.structs.replace(listed.state, state=word, counts=counts, joined=run.joined)
    return msgspec.structs.replace(listed, state=state)
