"""
The condition of a node in one word. Only `decide_condition` determines it.

Lists, `why`, `top`, the fleet page and the page of a node all use it, so they show the same state. `why` and the page of a node
also query the node's agent, and pass the answer to the same function as additional evidence.

A state that hides others takes precedence. For example, it is unknown whether an offline node still fails.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from ccm_agent.model.wire import DUPLICATE_IDENTITY, NodeState
from ccm_ctl.fleet.nodes.node_clock import HEARTBEAT_TTL_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ccm_ctl.fleet.assignments.convergence import NodeStanding
    from ccm_ctl.fleet.nodes.nodes import Node

NEVER_SEEN, OFFLINE, DUPLICATE, CLOCK, DISABLED, PLANS_ONLY = (
    "never seen", "offline", "duplicate", "clock", "disabled", "plans only",
)  # fmt: skip
FAILED, STOPPED, REFUSED, SILENT, DISK, RUNNING = "failed", "stopped", "refused", "silent", "disk", "running"
EXPIRED, WAITING, REFRESH_PENDING, UNDELIVERED, DRIFTED, CONVERGED, UNASSIGNED = (
    "expired", "waiting", "refresh pending", "undelivered", "drifted", "converged", "unassigned",
)  # fmt: skip

MEANINGS = {
    FAILED: "bad", DUPLICATE: "bad", CLOCK: "bad", REFUSED: "bad", PLANS_ONLY: "bad", STOPPED: "bad", DISK: "bad",
    EXPIRED: "change", SILENT: "gone", REFRESH_PENDING: "change", UNDELIVERED: "change", DRIFTED: "change", OFFLINE: "gone",
    NEVER_SEEN: "quiet", DISABLED: "change", WAITING: "change", RUNNING: "change", UNASSIGNED: "quiet", CONVERGED: "good",
}  # fmt: skip
"""The states, worst first, with their meanings as keys of `clikit.table.COLORS`."""


class AgentAnswer(Struct, frozen=True, kw_only=True):
    """
    The answer of a node's agent to a query.

    Attributes:
        is_silent: Whether there was no answer.
        refuses_requests: Whether there was no answer, but the agent recently refused a request.
        run: Its current run, or "".
        refused_facts: The reason why it refuses its assigned facts.
        disk: The reason why it cannot write its state.
        undelivered: The reason why its events are not sent.
    """

    is_silent: bool = False
    refuses_requests: bool = False
    run: str = ""
    refused_facts: str = ""
    disk: str = ""
    undelivered: str = ""


class NodeCondition(Struct, frozen=True, kw_only=True):
    """
    The state of a node, with the affected assignment and run.

    Attributes:
        state: A key of MEANINGS.
        detail: The problem in a few words. "": the state is sufficient.
        assignment: The affected assignment, or "".
        run: The affected run, or "".
        heard: When the broker received its last heartbeat or, for an offline node, when it was last online. None: unknown.
        is_late: Whether it is present but has missed a heartbeat. The displayed data may then be old.
    """

    state: str
    detail: str = ""
    assignment: str = ""
    run: str = ""
    heard: datetime | None = None
    is_late: bool = False

    @property
    def meaning(self) -> str:
        """A key of `clikit.table.COLORS`."""
        return MEANINGS[self.state]


def decide_condition(
    node: Node, standings: Mapping[str, NodeStanding], now: datetime, answer: AgentAnswer | None = None
) -> NodeCondition:
    """
    Return the condition of a node.

    Args:
        node: The node.
        standings: Its state for each assignment that applies to it, by name.
        now: The time.
        answer: The answer of its agent. None: the agent was not queried.
    """
    is_late = has_missed_heartbeat(node, now) and (answer is None or answer.is_silent)
    state, detail, about = _decide(node, standings, answer, is_late=is_late)
    record = node.record
    run = about.run if about is not None else ""
    if state in (FAILED, STOPPED) and about is None and record is not None:
        run = record.last_run
    if state == RUNNING:
        run = _current_run(node, answer)
    return NodeCondition(
        state=state,
        detail=detail,
        assignment=about.wanted.name if about is not None else "",
        run=run,
        heard=last_heartbeat(node) if node.is_present else _last_there(node, standings),
        is_late=is_late,
    )


def has_missed_heartbeat(node: Node, now: datetime) -> bool:
    """Whether the heartbeat of a present node is half an interval late. Its agent, network or machine may be down."""
    heard = last_heartbeat(node)
    if node.presence is None or heard is None:
        return False
    return now - heard > timedelta(seconds=(node.presence.ttl_s or HEARTBEAT_TTL_S) / 2)


def last_heartbeat(node: Node) -> datetime | None:
    """Return when the broker received the last heartbeat of a node. None: the node is offline."""
    return node.heard or node.presence.time if node.presence is not None else None


def _decide(
    node: Node, standings: Mapping[str, NodeStanding], answer: AgentAnswer | None, *, is_late: bool
) -> tuple[str, str, NodeStanding | None]:
    """Return the state, the problem, and the affected assignment."""
    record = node.record
    if not node.is_present:
        return (OFFLINE if record is not None else NEVER_SEEN), "", None
    if record is not None and record.conflict.startswith(DUPLICATE_IDENTITY):
        return DUPLICATE, record.conflict, None
    if node.wrong_clock:
        return CLOCK, node.wrong_clock, None
    if record is not None:
        if record.disabled is not None:
            return DISABLED, record.disabled.sentence, None
        if record.plans_only:
            return PLANS_ONLY, record.plans_only, None
    return (
        _find_failure(node, standings)
        or _find_refusal(node, standings, answer)
        or _find_silence(answer, is_late=is_late)
        or _find_rest(node, standings, answer)
    )


Found = tuple[str, str, "NodeStanding | None"]


def _find_failure(node: Node, standings: Mapping[str, NodeStanding]) -> Found | None:
    for one in standings.values():
        if one.state == NodeState.FAILED:
            return FAILED, one.reason, one
    if node.record is not None and node.record.last_state == NodeState.FAILED:
        return FAILED, "", None
    return None


def _find_refusal(
    node: Node, standings: Mapping[str, NodeStanding], answer: AgentAnswer | None
) -> Found | None:
    for one in standings.values():
        if one.has_failed:
            return (STOPPED if one.state == NodeState.STOPPED else REFUSED), one.reason, one
    if node.record is not None and node.record.conflict:
        return REFUSED, node.record.conflict, None
    if answer is not None and answer.refused_facts:
        return REFUSED, answer.refused_facts, None
    return None


def _find_silence(answer: AgentAnswer | None, *, is_late: bool) -> Found | None:
    """Return the silent state, if it applies. An agent that answers is not silent, even if its heartbeat is late."""
    if answer is not None and answer.refuses_requests:
        return REFUSED, "it refuses requests", None
    if answer is not None and answer.is_silent:
        return SILENT, "its agent does not answer", None
    if answer is None and is_late:
        return SILENT, "it missed its heartbeat", None
    return None


def _find_rest(node: Node, standings: Mapping[str, NodeStanding], answer: AgentAnswer | None) -> Found:
    if answer is not None and answer.disk:
        return DISK, answer.disk, None
    if _current_run(node, answer):
        return RUNNING, "", None
    if node.record is not None and node.record.last_state == NodeState.STOPPED:
        return STOPPED, "", None
    for one in standings.values():
        if not one.is_converged:
            return (EXPIRED if one.state == NodeState.EXPIRED else WAITING), one.reason, one
    if node.record is not None and node.record.refresh_pending:
        return REFRESH_PENDING, ", ".join(node.record.refresh_pending), None
    if answer is not None and answer.undelivered:
        return UNDELIVERED, answer.undelivered, None
    for one in standings.values():
        if one.has_drifted:
            return DRIFTED, one.reason, one
    return (CONVERGED if standings else UNASSIGNED), "", None


def _current_run(node: Node, answer: AgentAnswer | None) -> str:
    """Return the current run from the agent's answer, or from its last heartbeat, or ""."""
    if answer is not None and not answer.is_silent:
        return answer.run
    return node.presence.run if node.presence is not None else ""


def _last_there(node: Node, standings: Mapping[str, NodeStanding]) -> datetime | None:
    """Return the time at which an offline node disconnected or was last seen."""
    for one in standings.values():
        if one.away is not None and one.away.since is not None:
            return one.away.since
    return node.written
