"""
What happens in a fleet that rules can report: runs that end, rollouts that pause, nodes that fail, drift or stay behind.

`FleetObserver.look` reads what is new since the last look and returns it. The cursor says where the last look ended, so a server
that was away reports what happened meanwhile.
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
"""How many of the newest runs are looked at."""

TEXT_LIMIT = 500
"""Characters of a reason; a node writes it."""

MISSING_STATES = (NodeState.UNREACHABLE, NodeState.LOST, NodeState.EXPIRED, NodeState.OFFLINE)
OVERLAP = timedelta(seconds=5)
"""The stream is read from so long before the cursor, in the broker's time; the sequence says what is new."""


class Happening(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    One thing that happened, as conditions and messages see it.

    Attributes:
        kind: "run", "rollout", "node", "drift", "stale" or "test".
        run: The run, with the fields of rules.RUN_FIELDS; of a node's session only the id.
        failed: A run or a node's session failed.
        drift: A node corrected a change that did not come from its assignment.
        stale: A node has not matched its assignment for longer than the rule's `after`.
        paused: A rollout waits for an operator.
        node, manifest, assignment: Which node, manifest and assignment.
        reason: Why, as a sentence.
        time: When.
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
        """A value for each name in rules.VARIABLES."""
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
        """Identifies what it is about; for a stale node it stays the same as long as the node is stale."""
        return f"{self.kind}/{self.assignment}/{self.node}"


class Cursor(Struct, kw_only=True, omit_defaults=True):
    """
    Where the last look ended. It is stored, so a restart neither loses nor repeats what happened.

    Attributes:
        since: Time of the last look, by the broker's clock.
        sequence: The newest event of the stream that was read.
        runs: Ids of runs that had ended then, of the newest RUNS_READ; with a digest of the result, if another operator than
            that of the run recorded the end.
        paused: Rollouts that were paused then.
        behind: When each node was first seen behind its assignment, by Happening.key.
        started: Something was read before; the first look only learns what there is.
    """

    since: datetime | None = None
    sequence: int = 0
    runs: list[str] = []
    paused: list[str] = []
    behind: dict[str, datetime] = {}
    started: bool = False


class StaleNode(Struct, frozen=True, kw_only=True):
    """A node that is behind its assignment, and since when; each rule decides how long is too long."""

    happening: Happening
    since: datetime


class Observation(Struct, frozen=True, kw_only=True):
    """
    What one look found.

    Attributes:
        happenings: New happenings, oldest first.
        behind: Every node that is behind now; None if that was not read.
        unproven: Nodes with new events that are left out, because the node did not sign them.
    """

    happenings: list[Happening]
    behind: list[StaleNode] | None
    unproven: frozenset[str] = frozenset()


class _NewEvents(Struct, frozen=True):
    """Happenings in the events of nodes, the newest sequence that was read, and nodes with events that do not count."""

    happenings: list[Happening]
    newest: int
    unproven: frozenset[str]


class FleetObserver:
    """
    Reads what happens in the fleet.

    Args:
        fleet: The fleet.
        cursor: Where the last look ended; it is changed by `look`.
    """

    def __init__(self, fleet: Fleet, cursor: Cursor) -> None:
        self._fleet = fleet
        self.cursor = cursor
        self._data = FollowedData(fleet.data)

    async def look(self, *, reads_nodes: bool) -> Observation:
        """
        Read what is new. The cursor moves when everything was read.

        Args:
            reads_nodes: Also compare every node with its assignments, which reads a record of each node.

        Raises:
            BusError: The broker is away; the cursor stays.
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
        """What agents published since the last look; of the first look only where the stream ends."""
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
            known = 0  # the stream was created again, and numbers its events from 1
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
        """Runs that ended since the last look, oldest first; and the ids of all that have ended."""
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
        """Rollouts that were paused since the last look; and the ids of all that are paused."""
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
        """What the record of a run says it is; of a run without a readable record only the id."""
        record = known.get(run)
        if record is None:
            try:
                record = (await History(self._fleet).load(run)).record
            except (ProtocolError, RunError):
                return {"id": run}
        return _run_fields(record)

    async def _read_behind(self, now: datetime) -> list[StaleNode]:
        """Nodes that do not match their assignment, each since it was first seen so, or since it went offline."""
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
    """What an event of an agent reports; None: nothing that rules can name."""
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
    A run with the result that another operator recorded.

    Any operator may record the end of a run. So the end that its own operator records is reported, too, if it is another one.
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
    """What a run is, as its record says."""
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
    """One line of a text that others wrote, of a length that a message can hold, without control characters."""
    line = "".join(character if character.isprintable() else " " for character in text[: TEXT_LIMIT * 2])
    return line if len(line) <= TEXT_LIMIT else f"{line[: TEXT_LIMIT - 1]}…"
