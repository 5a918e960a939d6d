"""
The state of a run, node by node. This module does no I/O. Its input is messages and the time, and its output is the next actions.

The module follows the rules of delivery (docs/concepts/controller.md). The stream is the record, and core delivery is only a
hint. Duplicates of an event are ignored, and a node's events are passed on in the order of their numbers. Missing events are read
from the stream before a node is considered lost. Every expected node ends in exactly one named state.

An unexpected node that may join is shown, but the run does not wait for it, and it does not change the result.

Its caller (`fleet/runs/follow.py`) passes messages and `away`, `back` and `read_done`, calls `tick` a few times a second,
executes the returned actions, and shows `news`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain

import msgspec

from ccm_agent.model.outcome import STOPPED_CODE, SessionStart, SessionSummary, TransactionEvent, end_state
from ccm_agent.model.wire import (
    CARRIED_OUT,
    PROGRESS_INTERVAL_S,
    PROGRESS_MISSED,
    UNRECEIVED_CODE,
    Answer,
    AnswerState,
    NodeState,
    Progress,
)
from ccm_ctl.fleet.runs.node_run import (
    NO_GAPS,
    NOTHING,
    READS,
    Event,
    EventReceived,
    News,
    NodeRun,
    PendingActions,
    StateChange,
)
from ccm_ctl.fleet.runs.shared_values import SharedValues

RESEND_AFTER_S = 1.0
"""Seconds after which the request is first repeated for nodes that have not answered."""

RESENDS = 4
"""The maximum number of repeats. The interval doubles each time, so a node that reconnects later still gets the request."""

ANSWER_WITHIN_S = 10.0
"""A node without an answer within this time is unreachable. A slow disk delays answers. Late answers are still accepted."""

ANSWERS_PER_S = 500
"""The slowest expected rate of answers, in nodes per second. It gives a large fleet more time."""

QUIET_S = 3.0
"""Nodes become unreachable only after this many seconds without any answer, because answers may be in transit until then."""

LOST_AFTER_S = PROGRESS_INTERVAL_S * PROGRESS_MISSED + 1
"""A node that had accepted is lost after this many seconds of silence. They include one because messages may be late."""

LIMIT_S = 24 * 3600.0
"""A run is watched at most this long after its deadline, even if nodes still report progress."""

READ_AGAIN_S = 0.5
_WORKING = (NodeState.ACCEPTED, NodeState.QUEUED, NodeState.RUNNING)
_ABSENT = (NodeState.OFFLINE, NodeState.UNREACHABLE)
_REVIVABLE = (NodeState.PLANNED, NodeState.EXPECTED, NodeState.LOST, NodeState.SKIPPED, *_ABSENT)
UNRECEIVED = "the request had not reached it when the run was stopped"

_BY_ANSWER = {
    AnswerState.ACCEPTED: NodeState.ACCEPTED,
    AnswerState.QUEUED: NodeState.QUEUED,
    AnswerState.REFUSED: NodeState.REFUSED,
    AnswerState.SUPERSEDED: NodeState.SUPERSEDED,
    AnswerState.EXPIRED: NodeState.EXPIRED,
}


class Run:
    """
    The state of a run as one observer sees it.

    Args:
        run: Its ID.
        expected: The frozen list of nodes.
        offline: The expected nodes that were not present when it began.
        now: Monotonic seconds.
        asked: Whether this observer sent the request and repeats it. Otherwise it only watches.
        limit_s: Seconds after which this observer gives up. If it sent the request, nodes that have not ended are then lost. An
            observer that only watches does not change the state of these nodes, because it is unknown.
        planned: Nodes to which the request is sent later, by `ask`.

    Attributes:
        ignored: Nodes that answered, were not expected, and may not join.
        is_given_up: Whether this observer gave up before every node had ended.
    """

    def __init__(
        self,
        run: str,
        expected: Iterable[str],
        offline: Collection[str],
        now: float,
        *,
        asked: bool,
        limit_s: float = LIMIT_S,
        planned: Collection[str] = (),
    ) -> None:
        self.run = run
        self.ignored: set[str] = set()
        self.is_given_up = False
        self._is_observer = not asked
        self._limit_s = limit_s
        self._resends = 0 if asked else RESENDS
        self.nodes = {
            node: NodeRun(
                node=node,
                state=NodeState.OFFLINE
                if node in offline
                else NodeState.PLANNED
                if node in planned
                else NodeState.EXPECTED,
                heard_at=now,
                asked_at=now,
                resends=self._resends,
            )
            for node in expected
        }
        self.away_since: float | None = None
        self._since = self._answered_at = now
        self._answer_within_s = ANSWER_WITHIN_S if asked else LOST_AFTER_S
        self._read_all = not asked
        self._news: list[News] = []
        self._values = SharedValues()
        # Nodes that have not ended or whose events are missing. Each turn checks only these nodes, not thousands.
        self._open = {name for name, node in self.nodes.items() if not node.state.is_final}
        self._open_joined: set[str] = set()
        self._absent = {name for name, node in self.nodes.items() if node.state in _ABSENT}

    @property
    def is_done(self) -> bool:
        """Whether every expected node has ended and no events are missing, or this observer gave up."""
        return not self._read_all and (not self._open or self.is_given_up)

    @property
    def is_ended(self) -> bool:
        """Whether every expected node has ended."""
        return all(node.state.is_final for node in self.expected)

    @property
    def expected(self) -> list[NodeRun]:
        """The expected nodes of the run."""
        return [node for node in self.nodes.values() if not node.joined]

    @property
    def joined(self) -> list[str]:
        """Unexpected nodes that answered and may join."""
        return sorted(name for name, node in self.nodes.items() if node.joined)

    def counts(self) -> dict[NodeState, int]:
        """The number of expected nodes in each state, in the order of the states. States without nodes are left out."""
        found = [node.state for node in self.expected]
        return {state: found.count(state) for state in NodeState if state in found}

    def knows(self, name: str) -> bool:
        """Whether a node is expected or has joined. Messages of other nodes are ignored."""
        return name in self.nodes

    def join(self, name: str, now: float) -> None:
        """Add a node that was not expected but may join."""
        self.nodes.setdefault(name, NodeRun(node=name, joined=True, heard_at=now))

    def ask(self, names: Iterable[str], now: float) -> None:
        """Mark nodes as asked. These are planned nodes, and nodes that came back."""
        for name in names:
            node = self.nodes[name]
            if node.state in _REVIVABLE:
                node.asked_at = node.heard_at = now
                node.resends = self._resends
                node.reason = ""
                self._move(node, NodeState.EXPECTED)
                self._settle(node)

    def missing(self) -> dict[str, float]:
        """Nodes that are unreachable or offline, and the time at which the request was sent to them (0: they were offline)."""
        return {
            name: 0.0 if self.nodes[name].state is NodeState.OFFLINE else self.nodes[name].asked_at
            for name in sorted(self._absent)
        }

    def skip(self, reason: str) -> None:
        """Skip the nodes that are still planned, so that no request is sent to them."""
        for name in sorted(self._open):
            node = self.nodes[name]
            if node.state is NodeState.PLANNED:
                node.reason = reason
                self._move(node, NodeState.SKIPPED)
                self._settle(node)

    def updates(self) -> list[News]:
        """Return the news since the last call."""
        news, self._news = self._news, []
        return news

    def answered(self, name: str, answer: Answer, now: float) -> None:
        """Process a node's answer to the request."""
        node = self._heard(name, now)
        if node is None:
            return
        state = answer.state
        if state == AnswerState.DONE:
            self._handled_before(node, answer)
        elif state in _BY_ANSWER and (node.state in (*_WORKING, *_REVIVABLE)):
            wanted = _BY_ANSWER[AnswerState(state)]
            node.position, node.reason, node.code = answer.position, answer.reason, answer.code
            node.ahead = answer.ahead or node.ahead
            if not (node.state is NodeState.RUNNING and wanted in _WORKING):
                self._move(node, wanted)
        self._settle(node)

    def progressed(self, name: str, progress: Progress, now: float) -> None:
        """Process a progress report. An identical report is ignored, because it may be a replayed message."""
        known = self.nodes.get(name)
        if known is None or (progress == known.progress and progress.state == "running"):
            return
        node = self._heard(name, now) or known
        node.progress = progress
        if node.state in (*_WORKING, *_REVIVABLE):
            self._move(node, NodeState.QUEUED if progress.state == "queued" else NodeState.RUNNING)
        self._settle(node)

    def happened(self, name: str, event: Event, now: float) -> None:
        """Process an event from core delivery or the stream. An event that was seen before is dropped."""
        known = self.nodes.get(name)
        if known is None or (
            event.number not in known.missing and (event.number in known.seen or event.number <= known.given)
        ):
            return
        node = self._heard(name, now) or known
        if isinstance(event, TransactionEvent):
            if (event.node, event.run) == (node.node, self.run):
                event.node, event.run = node.node, self.run
            self._values.share(event)
        node.known = max(node.known, event.number)
        if isinstance(event, SessionSummary):
            node.kept_summary = self._values.keep(event)
            node.known = max(node.known, event.events_sent)
            node.reason, node.code = event.reason, event.code
            self._move(node, _end_state(event))
        elif node.state in (*_WORKING, *_REVIVABLE):
            self._move(node, NodeState.RUNNING)
        self._give(node, event)
        self._settle(node)

    def proven(self, name: str, summary: SessionSummary, now: float) -> None:
        """Process a node's signed summary. Earlier events are discarded: those that the signature covers are received again."""
        node = self.nodes.get(name)
        if node is None:
            return
        node.shown = {*filter(None, [node.started]), *map(_hash, node.events.values())} or NOTHING
        node.events, node.seen, node.missing = NOTHING, NOTHING, NO_GAPS
        node.started, node.kept_summary = 0, None
        node.known = node.given = node.reads = 0
        self.happened(name, summary, now)

    def ended(self, name: str, state: NodeState, reason: str, code: str, now: float) -> None:
        """Set a node's end state from a record, if the stream has no end."""
        node = self._heard(name, now)
        if node is None:
            return
        if node.kept_summary is None and node.state in (*_WORKING, *_REVIVABLE):
            node.reason, node.code = reason, code
            self._move(node, state)
        self._settle(node)

    def away(self, now: float) -> None:
        """Pause the timeouts, because the broker connection is lost."""
        if self.away_since is None:
            self.away_since = now

    def back(self, now: float) -> None:
        """Read missed events from the stream and restart the timeouts, because the connection is restored."""
        if self.away_since is None:
            return
        away_s = now - self.away_since
        self._since, self._answered_at = self._since + away_s, self._answered_at + away_s
        self.away_since = None
        self._read_all = True
        for node in self.nodes.values():
            node.asked_at += away_s
            node.heard_at, node.suspected = now, False

    def tick(self, now: float) -> PendingActions:
        """Return the actions that are due now."""
        if self.away_since is not None:
            return PendingActions()
        if self._read_all:
            return PendingActions(read_all=True)
        if now - self._since >= self._limit_s:
            self._give_up()
        return PendingActions(resend=self._resend(now), read=self._reads(now))

    def read_done(self, names: Collection[str] | None, now: float) -> None:
        """Record that the stream was read for these nodes (None: for all), and its events have been passed to `happened`."""
        if names is None:
            self._read_all = False
        for name in list(self.nodes) if names is None else names:
            node = self.nodes[name]
            node.reads += 1
            node.read_at = now
            if node.reads >= READS and node.given < node.known:
                self._skip(node)
            if node.suspected and node.state in _WORKING:
                node.reason = _last_word(node, now - node.heard_at)
                self._move(node, NodeState.LOST)
            elif node.suspected and node.state is NodeState.EXPECTED:
                node.reason = f"present, but silent for {now - node.asked_at:.0f}s"
                self._move(node, NodeState.UNREACHABLE)
            node.suspected = False
            self._settle(node)

    def _settle(self, node: NodeRun) -> None:
        """Record whether a node must still be checked."""
        others = self._open_joined if node.joined else self._open
        if node.state.is_final and not node.has_gap:
            others.discard(node.node)
        else:
            others.add(node.node)

    def _give_up(self) -> None:
        """Stop waiting for nodes that have not ended, because the run has taken too long."""
        self.is_given_up = True
        for name in sorted(self._open):
            node = self.nodes[name]
            node.reads = READS
            # a node without a request is not lost; a node that got the request from another process may still be working
            if not (node.state.is_final or node.state is NodeState.PLANNED or self._is_observer):
                node.reason = f"not finished after {self._limit_s:g}s; ccmctl stopped watching it"
                self._move(node, NodeState.LOST)
        self._open.clear()

    def _heard(self, name: str, now: float) -> NodeRun | None:
        node = self.nodes.get(name)
        if node is not None:
            node.heard_at, node.suspected = now, False
            if node.state in (NodeState.EXPECTED, NodeState.UNREACHABLE):
                self._answered_at = now
        return node

    def _move(self, node: NodeRun, state: NodeState) -> None:
        if node.state is not state:
            if node.state in (NodeState.LOST, NodeState.UNREACHABLE) and not state.is_final:
                node.reason = ""
            node.state = state
            if state in _ABSENT:
                self._absent.add(node.node)
            else:
                self._absent.discard(node.node)
            self._news.append(StateChange(node=node.node, state=state))

    def _handled_before(self, node: NodeRun, answer: Answer) -> None:
        """Process an answer from the node's ledger: the run has ended there, and its events are in the stream or in transit."""
        if answer.code == UNRECEIVED_CODE and node.state in (*_WORKING, *_REVIVABLE):
            node.reason, node.code = UNRECEIVED, answer.code  # the node has no events
            self._move(node, NodeState.UNREACHABLE)
            return
        try:
            state = NodeState(answer.outcome)
        except ValueError:
            return
        if node.kept_summary is None and state.is_final:
            node.reason, node.code = answer.reason, answer.code
            # a convergence has no summary, because it consists of several runs
            node.wants_summary = state in CARRIED_OUT and "ended" not in answer.body
            # the state in this answer is one that older controllers support, so a stopped run is recognized by the code
            self._move(node, NodeState.STOPPED if answer.code == STOPPED_CODE else state)

    def _give(self, node: NodeRun, event: Event) -> None:
        """Pass on an event that was missing or is the next one, and those that follow without a gap. Others wait."""
        if event.number in node.missing:
            node.missing.discard(event.number)
            self._keep(node, event, event.number)
        elif event.number == node.given + 1:
            self._keep(node, event, event.number)
        else:
            node.seen = node.seen or {}
            node.seen[event.number] = event
        while (number := node.given + 1) in node.seen:
            self._keep(node, node.seen.pop(number), number)
        node.seen = node.seen or NOTHING
        if node.given >= node.known:
            node.reads = 0

    def _keep(self, node: NodeRun, event: Event, number: int) -> None:
        node.given = max(node.given, number)
        if isinstance(event, TransactionEvent):
            node.events = node.events or {}
            node.events[number] = event
        elif isinstance(event, SessionStart) and node.kept_summary is None:
            node.started = _hash(event)
        if node.shown and (seen_hash := _hash(event)) in node.shown:
            node.shown.discard(seen_hash)
            node.shown = node.shown or NOTHING
        else:
            self._news.append(EventReceived(node=node.node, event=event))

    def _skip(self, node: NodeRun) -> None:
        """Skip events that are not in the stream."""
        node.missing = node.lacking
        for number in sorted(node.seen):
            self._keep(node, node.seen[number], number)
        node.seen, node.given = NOTHING, node.known

    def _resend(self, now: float) -> list[str]:
        """
        Return the nodes to send the request to again. It is repeated only when answers have stopped arriving.

        While answers arrive, the request is being delivered, and thousands of copies would delay the answers further.
        """
        silent = [
            node
            for node in map(self.nodes.__getitem__, self._open)
            if node.state is NodeState.EXPECTED and node.resends < RESENDS
        ]
        patience_s = len(silent) // ANSWERS_PER_S
        again = []
        for node in sorted(silent, key=lambda one: one.node):
            quiet_s = now - max(node.asked_at, self._answered_at)
            if quiet_s >= resend_after_s(node.resends) + patience_s:
                node.resends += 1
                again.append(node.node)
        return again

    def _reads(self, now: float) -> list[str]:
        """Return nodes with events to read: some are missing, or the node is lost or unreachable unless the stream has news."""
        found = []
        patience_s = len(self._open) // ANSWERS_PER_S
        is_quiet = now - self._answered_at >= QUIET_S
        answer_within_s = self._answer_within_s + patience_s
        for name in chain(self._open, self._open_joined):
            node = self.nodes[name]
            if node.state is NodeState.EXPECTED:
                is_silent = is_quiet and now - node.asked_at >= answer_within_s
            else:
                is_silent = node.state in _WORKING and now - node.heard_at >= LOST_AFTER_S + patience_s
            if is_silent:
                node.suspected = True
                found.append(name)
            elif node.has_gap and now - node.read_at >= READ_AGAIN_S:
                found.append(name)
        return sorted(found)


def resend_after_s(resends: int) -> float:
    """Return the seconds without an answer before the next repeat of the request, after this many repeats."""
    return RESEND_AFTER_S * 2.0**resends


def _hash(event: Event) -> int:
    """Return a hash that differs in each process, so that a sender cannot search for an event with the same hash."""
    return hash(msgspec.json.encode(event))


def _end_state(summary: SessionSummary) -> NodeState:
    """Return the end state in a summary. If it is missing (older agents) or unknown, it is computed from the counts."""
    if summary.state in CARRIED_OUT:
        return NodeState(summary.state)
    return NodeState(end_state(summary))


def _last_word(node: NodeRun, silent_s: float) -> str:
    """Describe a lost node's last reported progress."""
    if node.progress and node.progress.resource:
        place = f" ({node.progress.position} of {node.progress.total})" if node.progress.total else ""
        return f"silent for {silent_s:.0f}s; it was last at {node.progress.resource}{place}"
    if node.events:
        last = node.events[max(node.events)]
        return f"silent for {silent_s:.0f}s; it last reported {last.type}#{last.name}"
    return f"silent for {silent_s:.0f}s; it had not reported a resource yet"
