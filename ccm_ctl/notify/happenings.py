"""
Happenings: fleet events that rules can report. For example, a run ends, a rollout pauses, or a node fails, drifts or is behind.

`FleetObserver.look` returns the happenings since the last scan. The cursor records where that scan ended. After downtime, a
server therefore also reports the happenings that it missed.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import ProtocolError, RunError
from ccm_agent.model.outcome import SESSION_SUMMARY, SessionSummary
from ccm_agent.model.records.rollout_records import Phase
from ccm_agent.model.wire import AGENT_DRIFT, DISABLED, FAILED_STATES, PROTOCOL, AgentEvent, NodeState
from ccm_ctl.fleet.assignments.assignments import read_assignments
from ccm_ctl.fleet.assignments.convergence import read_standings
from ccm_ctl.fleet.assignments.followed_data import FollowedData
from ccm_ctl.fleet.events.messages import decode_agent_message
from ccm_ctl.fleet.nodes.inventory import read_inventory
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.trust.authors import find_certificates, read_authors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ccm_agent.model.ports import StoredEvent
    from ccm_agent.model.records.run_records import RunRecord, RunState
    from ccm_ctl.fleet.ports import Fleet

RUNS_READ = 200
"""The number of recent runs that are read."""

TEXT_LIMIT = 500
"""The maximum length of a reason. Reasons are texts from nodes."""

MISSING_STATES = (NodeState.UNREACHABLE, NodeState.LOST, NodeState.EXPIRED, NodeState.OFFLINE)
OVERLAP = timedelta(seconds=5)
"""Each scan starts reading this long before the cursor, by the broker's clock. Sequence numbers show which events are new."""


class Happening(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A fleet event, in the form that conditions and messages use.

    Attributes:
        kind: "run", "rollout", "node", "drift", "stale" or "test".
        run: The run, with the fields in rules.RUN_FIELDS. For a node's session, it contains only the ID.
        failed: Whether a run or a node's session failed.
        drift: Whether a node corrected a change that did not come from its assignment.
        stale: Whether a node has not matched its assignment for longer than the rule's `after`.
        paused: Whether a rollout waits for an operator.
        node, manifest, assignment: The node, the manifest and the assignment.
        reason: The reason, as a sentence.
        time: The time of the event.
    """

    kind: str
    run: dict[str, Any] = {}
    failed: bool = False
    drift: bool = False
    stale: bool = False
    paused: bool = False
    node: str = ""
    manifest: str = ""
    assignment: str = ""
    reason: str = ""
    time: datetime | None = None

    def variables(self) -> dict[str, Any]:
        """Return the value of each variable in rules.VARIABLES."""
        run = {
            "id": "",
            "name": "",
            "action": "",
            "operator": "",
            "message": "",
            "targets": "",
            "nodes": 0,
            "counts": {},
            "failed": False,
            "missing": False,
        }
        return {
            "kind": self.kind,
            "run": run | self.run,
            "failed": self.failed,
            "drift": self.drift,
            "stale": self.stale,
            "paused": self.paused,
            "node": self.node,
            "manifest": self.manifest,
            "assignment": self.assignment,
            "reason": self.reason,
        }

    @property
    def key(self) -> str:
        """A key that identifies the subject of the happening. For a stale node, it does not change while the node is stale."""
        return f"{self.kind}/{self.assignment}/{self.node}"


class Cursor(Struct, kw_only=True, omit_defaults=True):
    """
    The position where the last scan ended. It is stored, so a restart neither loses nor repeats happenings.

    Attributes:
        since: The time of the last scan, by the broker's clock.
        sequence: The sequence number of the newest event that was read from the stream.
        runs: The IDs of the ended runs among the newest RUNS_READ. If an operator other than the run's own recorded the end, the
            entry also contains a digest of the result.
        paused: The paused rollouts.
        behind: The time when each node was first seen behind its assignment, by Happening.key.
        started: Whether there was an earlier scan. The first scan only records the current state.
    """

    since: datetime | None = None
    sequence: int = 0
    runs: list[str] = []
    paused: list[str] = []
    behind: dict[str, datetime] = {}
    started: bool = False


class StaleNode(Struct, frozen=True, kw_only=True):
    """A node that is behind its assignment, and when this was first seen. Each rule has its own limit for the time since then."""

    happening: Happening
    since: datetime


class Observation(Struct, frozen=True, kw_only=True):
    """
    The result of one scan.

    Attributes:
        happenings: New happenings, oldest first.
        behind: All nodes that are behind now; None if nodes were not read.
        unproven: Nodes with new events that were ignored because the node did not sign them.
    """

    happenings: list[Happening]
    behind: list[StaleNode] | None
    unproven: frozenset[str] = frozenset()


class _NewEvents(Struct, frozen=True):
    """The happenings in new events of nodes, the newest sequence number that was read, and the nodes with unproven events."""

    happenings: list[Happening]
    newest: int
    unproven: frozenset[str]


class FleetObserver:
    """
    Scans the fleet for happenings.

    Args:
        fleet: The fleet.
        cursor: Where the last scan ended. `look` changes it.
    """

    def __init__(self, fleet: Fleet, cursor: Cursor) -> None:
        self._fleet = fleet
        self.cursor = cursor
        self._data = FollowedData(fleet.data)

    async def look(self, *, reads_nodes: bool) -> Observation:
        """
        Read the happenings since the last scan. The cursor moves only after all reads have succeeded.

        Args:
            reads_nodes: Whether to compare every node with its assignments, which reads a record of each node.

        Raises:
            BusError: The broker is unavailable. The cursor has not moved.
        """
        now, stream_now = self._fleet.clock.now(), await self._fleet.nodes.now()
        is_first = not self.cursor.started
        events = await self._read_events(stream_now)
        listed = (await History(self._fleet).newest(RUNS_READ)).runs
        runs, ended = self._read_runs(listed)
        rollouts, paused = await self._read_rollouts({record.run: record for record, *_ in listed})
        behind = await self._read_behind(now) if reads_nodes else None
        happenings = [] if is_first else [*runs, *rollouts, *events.happenings]
        self.cursor.since, self.cursor.sequence, self.cursor.started = stream_now, events.newest, True
        self.cursor.runs, self.cursor.paused = ended, paused
        if behind is not None:
            self.cursor.behind = {one.happening.key: one.since for one in behind}
        unproven = frozenset[str]() if is_first else events.unproven
        return Observation(happenings=happenings, behind=behind, unproven=unproven)

    async def _read_events(self, now: datetime) -> _NewEvents:
        """Return the events that agents published since the last scan. The first scan only determines the end of the stream."""
        since = (self.cursor.since or now) - OVERLAP
        authors = await read_authors(self._fleet)
        found: list[tuple[StoredEvent, Happening]] = []
        newest, known = 0, self.cursor.sequence
        for pattern in (f"{SESSION_SUMMARY}.*.>", f"{PROTOCOL}.agent.*.>"):
            async for message in self._fleet.events.scan(pattern, since):
                newest = max(newest, message.sequence)
                if authors is not None:
                    authors.learn_from(message)
                if (happening := _happening_of(message)) is not None:
                    found.append((message, happening))
        if 0 < newest < known:
            known = 0  # the stream was created again, and its sequence numbers restarted at 1
        newest = max(newest, known)
        found = sorted((one for one in found if one[0].sequence > known), key=lambda one: one[0].sequence)
        if authors is None:
            return _NewEvents([one for _, one in found], newest, frozenset())
        signers = {(one.node, authors.check(one.node, message).key) for message, one in found}
        await find_certificates(self._fleet, authors, signers)
        genuine, unproven = [], set()
        for message, one in found:
            if authors.accepts(one.node, message):
                genuine.append(one)
            else:
                unproven.add(one.node)
        return _NewEvents(genuine, newest, frozenset(unproven))

    def _read_runs(
        self, listed: Sequence[tuple[RunRecord, RunState, str, str]]
    ) -> tuple[list[Happening], list[str]]:
        """Return the happenings for runs that ended since the last scan, oldest first, and the IDs of all ended runs."""
        known = set(self.cursor.runs)
        claimed = {key.partition(" ")[0] for key in known}
        ended = [one for one in listed if one[1].state == "done"]
        new = [
            _run_happening(record, state, closed_by)
            for record, state, closed_by, _ in reversed(ended)
            if not known & {record.run, _claim(state)} and not (closed_by and record.run in claimed)
        ]
        return new, [_claim(state) if closed_by else record.run for record, state, closed_by, _ in ended]

    async def _read_rollouts(self, known: Mapping[str, RunRecord]) -> tuple[list[Happening], list[str]]:
        """Return the happenings for rollouts that paused since the last scan, and the IDs of all paused rollouts."""
        paused = [
            state for state in await RolloutStore(self._fleet).open_rollouts() if state.phase is Phase.PAUSED
        ]
        new = [
            Happening(
                kind="rollout",
                run={**await self._describe(state.run, known), "nodes": state.plan.total},
                paused=True,
                reason=_bounded(f"{state.reason} (by {state.by})" if state.by else state.reason),
                time=state.time,
            )
            for state in paused
            if state.run not in self.cursor.paused
        ]
        return new, [state.run for state in paused]

    async def _describe(self, run: str, known: Mapping[str, RunRecord]) -> dict[str, Any]:
        """Return the fields of a run from its record, or only its ID if the record cannot be read."""
        record = known.get(run)
        if record is None:
            try:
                record = (await History(self._fleet).load(run)).record
            except (ProtocolError, RunError):
                return {"id": run}
        return _run_fields(record)

    async def _read_behind(self, now: datetime) -> list[StaleNode]:
        """Return the nodes that do not match their assignment, and when this was first seen or the node went offline."""
        inventory, assignments = await read_inventory(self._fleet), await read_assignments(self._fleet)
        found = []
        for name in sorted({name for node in inventory.nodes.values() for name in assignments.of_node(node)}):
            for one in await read_standings(self._fleet, inventory, assignments, name, self._data):
                if one.is_converged or one.state == DISABLED:
                    continue
                happening = Happening(
                    kind="stale",
                    stale=True,
                    node=one.node,
                    assignment=name,
                    reason=_bounded(f"{one.state}: {one.reason}" if one.reason else one.state),
                    time=now,
                )
                since = self.cursor.behind.get(happening.key, now)
                if one.away is not None and one.away.since is not None:
                    since = min(since, one.away.since)
                found.append(StaleNode(happening=happening, since=since))
        return found


def _happening_of(message: StoredEvent) -> Happening | None:
    """Return the happening for an agent's event; None if rules cannot match the event."""
    try:
        heard = decode_agent_message(message)
    except ProtocolError:
        return None
    said = heard.said
    if isinstance(said, SessionSummary):
        if said.failed_resources == 0 and said.state not in ("failed", "stopped"):
            return None
        return Happening(
            kind="node",
            run={"id": heard.run},
            failed=True,
            node=heard.node,
            manifest=_bounded(said.manifest),
            reason=_bounded(_summary_reason(said)),
            time=said.timestamp,
        )
    if isinstance(said, AgentEvent) and heard.protocol == AGENT_DRIFT:
        return Happening(
            kind="drift", drift=True, node=heard.node, reason=_bounded(said.message), time=said.timestamp
        )
    return None


def _summary_reason(summary: SessionSummary) -> str:
    names = ", ".join(one.resource for one in summary.failed[:3])
    if summary.reason:
        return summary.reason
    return f"failed: {names}" if names else f"{summary.failed_resources} resources failed"


def _claim(state: RunState) -> str:
    """
    Return a key for a run and its result as another operator recorded it.

    Any operator may record the end of a run. If the run's own operator later records a different end, both are reported.
    """
    counts = msgspec.json.encode(state.counts, order="deterministic")
    return f"{state.run} {hashlib.sha256(counts).hexdigest()[:16]}"


def _run_happening(record: RunRecord, state: RunState, closed_by: str) -> Happening:
    failed = any(state.counts.get(str(one), 0) for one in FAILED_STATES)
    missing = any(state.counts.get(str(one), 0) for one in MISSING_STATES)
    counts = {str(one): state.counts[str(one)] for one in NodeState if str(one) in state.counts}
    words = ", ".join(f"{count} {name}" for name, count in counts.items())
    return Happening(
        kind="run",
        run={**_run_fields(record), "counts": counts, "failed": failed, "missing": missing},
        failed=failed,
        manifest=_bounded(record.name),
        reason=_bounded(f"{words} (recorded by {closed_by})" if closed_by else words),
        time=state.time or datetime.now(UTC),
    )


def _run_fields(record: RunRecord) -> dict[str, Any]:
    """Return the fields of a run from its record."""
    where = f" where {record.where}" if record.where else ""
    return {
        "id": record.run,
        "name": _bounded(record.name),
        "action": _bounded(record.action),
        "operator": _bounded(record.requester),
        "message": _bounded(record.message),
        "targets": _bounded(f"{' or '.join(record.targets) or 'all nodes'}{where}"),
        "nodes": record.nodes,
    }


def _bounded(text: str) -> str:
    """Return one line of untrusted text, without control characters and short enough for a message."""
    line = "".join(character if character.isprintable() else " " for character in text[: TEXT_LIMIT * 2])
    return line if len(line) <= TEXT_LIMIT else f"{line[: TEXT_LIMIT - 1]}…"
