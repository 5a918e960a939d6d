"""Compare the reports of nodes with the assignment that applies to them."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.bus.subjects import event_subject, parse_event
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.formats.moments import format_moment
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.wire import (
    AGENT_SHUTDOWN,
    COMPLIANT_STATES,
    DISABLED,
    FAILED_STATES,
    WAITING,
    AgentEvent,
    NodeState,
)
from ccm_ctl.fleet.assignments.followed_data import (
    FollowedData,
    followed_keys,
    format_older_data,
    older_data,
    reported,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from ccm_agent.model.wire import AssignmentState, NodeRecord
    from ccm_ctl.fleet.assignments.assignments import Assignments, Standing
    from ccm_ctl.fleet.nodes.nodes import Inventory, Node
    from ccm_ctl.fleet.ports import Fleet

    Read = Callable[[Fleet], Awaitable[tuple[Inventory, Assignments]]]

CONVERGED = "converged"
OFFLINE = "offline"
EXPIRED = "expired"
REFUSED = "refused"

LOOK_AGAIN_S = 1.0
"""Seconds between two reads of nodes' records. They are polled because the broker sends no notification of changes."""

SAID_GOODBYE_MOST = 200
"""The maximum number of offline nodes whose goodbye events are read. With more, the whole fleet is probably offline."""


PENDING_NAMED = 3
"""The maximum number of pending refreshes that a message names."""


class AbsentSince(Struct, frozen=True):
    """
    The time since which a node is offline.

    Attributes:
        since: The time, or None if unknown.
        is_exact: Whether the node sent a goodbye at this time. Otherwise, it was last seen at this time and disconnected later
            without a goodbye.
    """

    since: datetime | None = None
    is_exact: bool = False


class NodeStanding(Struct, frozen=True, kw_only=True):
    """
    The state of a node for an assignment.

    Attributes:
        node: The node.
        wanted: The assignment that applies to it.
        state: "converged", "waiting", "disabled", "offline", or the end of its last run with this revision: "failed",
            "refused", "expired" …
        reason: The reason why it is not converged. For a converged node: an additional note.
        code: The error code, if the reason is an error.
        revision: The revision that it reports, in the numbers that operators see. 0: it has not reported one.
        digest, data_revision: The content that it applied last. "": it has not applied an assignment with this name.
        data_revisions: If the assignment follows data: the revision of each document in CCM_DATA that its last run read, by key.
        older_data: The documents of `data_revisions` that are not the newest.
        since: When it entered this state.
        run: The last run.
        next_time: When it will try again.
        away: The time since which it is offline. None: it is present.
        unverified: The entries that the node did not sign, as text. "": there are none, or this was not checked.
        has_drifted: Whether the assignment only plans, and its last plan found changes.
    """

    node: str
    wanted: Standing
    state: str
    reason: str = ""
    code: str = ""
    revision: int = 0
    digest: str = ""
    data_revision: int = 0
    data_revisions: dict[str, int] = {}
    older_data: list[str] = []
    since: datetime | None = None
    run: str = ""
    next_time: datetime | None = None
    away: AbsentSince | None = None
    unverified: str = ""
    has_drifted: bool = False

    @property
    def is_converged(self) -> bool:
        """Whether the node complies with the assignment."""
        return self.state == CONVERGED

    @property
    def has_failed(self) -> bool:
        """Whether an operator must act: the run failed or was refused."""
        return self.state in FAILED_STATES

    @property
    def is_on_its_way(self) -> bool:
        """Whether it will converge without an operator. A node that failed with older data tries again with the newest data."""
        return self.state == WAITING or (self.state == NodeState.FAILED and bool(self.older_data))


def judge_all(
    inventory: Inventory,
    assignments: Assignments,
    standing: Standing,
    now: datetime,
    newest: Mapping[str, int],
    away: Mapping[str, AbsentSince] | None = None,
) -> list[NodeStanding]:
    """
    Return the state of all nodes to which an assignment applies, by name.

    Args:
        inventory, assignments, standing, now: The nodes, all assignments, the assignment to judge, and the time.
        newest: The newest revisions of followed documents, by key.
        away: The known times since which nodes are offline.
    """
    found = []
    for node in inventory.nodes.values():
        one = assignments.of_node(node).get(standing.name)
        if one is not None and one.key == standing.key:
            gone = None if node.is_present else (away or {}).get(node.name, AbsentSince())
            found.append(judge(node, one, now, gone, newest))
    return found


async def wait_standings(
    fleet: Fleet,
    name: str,
    seconds: float,
    read: Read,
    on_look: Callable[[list[NodeStanding], float], None] = lambda _found, _left: None,
) -> tuple[Assignments, list[NodeStanding]]:
    """
    Wait for nodes that can converge by themselves, and return the state of all nodes.

    Args:
        fleet: The bus.
        name: The assignment's name.
        seconds: The maximum time to wait.
        read: Reads nodes and assignments.
        on_look: Called with the state of all nodes and the remaining seconds, before each further wait.
    """
    woken, data = asyncio.Event(), FollowedData(fleet.data)
    stop = await fleet.assignments.watch_changes(">", lambda _key, _revision: woken.set())
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        while True:
            woken.clear()
            inventory, assignments = await read(fleet)
            found = await read_standings(fleet, inventory, assignments, name, data)
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0 or not any(one.is_on_its_way for one in found):
                return assignments, found
            on_look(found, left)
            await _woken(woken, min(left, LOOK_AGAIN_S))
    finally:
        await stop()


async def _woken(woken: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await woken.wait()
    except TimeoutError:
        return


async def read_standings(
    fleet: Fleet,
    inventory: Inventory,
    assignments: Assignments,
    name: str,
    data: FollowedData | None = None,
) -> list[NodeStanding]:
    """Return the state of each node to which an assignment with this name applies."""
    meant = [node for node in inventory.nodes.values() if name in assignments.of_node(node)]
    away = await read_away(fleet, (node for node in meant if not node.is_present))
    newest = await (data or FollowedData(fleet.data)).newest(followed_keys(meant, assignments))
    now = fleet.clock.now()
    return [judge(node, assignments.of_node(node)[name], now, away.get(node.name), newest) for node in meant]


async def read_away(
    fleet: Fleet, nodes: Iterable[Node], goodbyes_most: int = SAID_GOODBYE_MOST
) -> dict[str, AbsentSince]:
    """Return the times since which nodes are offline. Goodbye events are read for at most `goodbyes_most` nodes."""
    found: dict[str, AbsentSince] = {}
    gone = list(nodes)
    goodbyes = await _goodbyes(fleet, [node.name for node in gone if node.record][:goodbyes_most])
    for node in gone:
        goodbye, started = goodbyes.get(node.name), node.record.started if node.record else None
        # A start after the goodbye means that the node disconnected again later. Both times are from the node's own clock.
        is_last = goodbye is not None and (started is None or started <= goodbye)
        found[node.name] = AbsentSince(goodbye, is_exact=True) if is_last else AbsentSince(_last_heard(node))
    return found


def judge(
    node: Node, standing: Standing, now: datetime, away: AbsentSince | None, newest: Mapping[str, int]
) -> NodeStanding:
    """
    Return the state of one node for the assignment that applies to it.

    Args:
        node: The node.
        standing: The assignment.
        now: The time.
        away: The time since which it is offline. None: it is present.
        newest: The newest revisions of followed documents, by key.
    """
    record = node.record
    told = record.assignments.get(standing.name) if record else None
    older = older_data(standing, told, newest)
    if told is not None and (told.key, told.revision) == (standing.key, standing.number):
        state, reason = _current(
            node, told, standing, away, [*_format_pending(told), *format_older_data(older)]
        )
        since = told.since
    else:
        state, reason = _behind(node, told, standing, now, away)
        since = None
    return NodeStanding(
        node=node.name,
        wanted=standing,
        state=state,
        reason=reason,
        code=told.code if told and state not in (CONVERGED, OFFLINE) else "",
        revision=(told.count or told.revision) if told else 0,
        digest=told.digest if told else "",
        data_revision=told.data_revision if told else 0,
        data_revisions=reported(standing, told),
        older_data=list(older),
        since=since,
        run=told.run if told else "",
        next_time=told.next_time if told and state != CONVERGED and away is None else None,
        away=away,
        unverified=node.unverified_note,
        has_drifted=state == CONVERGED and told is not None and _has_drifted(told, standing),
    )


def _has_drifted(told: AssignmentState, standing: Standing) -> bool:
    """Whether the last plan would change something."""
    return standing.assignment.mode == "plan" and told.state == NodeState.CHANGED


def _current(
    node: Node, told: AssignmentState, standing: Standing, away: AbsentSince | None, left: list[str]
) -> tuple[str, str]:
    """Return the state and reason of a node that has reported the current revision. `left` describes its remaining work."""
    record = node.record
    if told.state in COMPLIANT_STATES and not left:
        notes = (
            "would change" if _has_drifted(told, standing) else "",
            _format_unreported(told, standing),
            _format_absence(away),
            _format_disabled(record),
        )
        return CONVERGED, "; ".join(note for note in notes if note)
    if told.state in (WAITING, DISABLED, *COMPLIANT_STATES):
        if away is not None:
            return OFFLINE, "; ".join([_format_absence(away), *left])
        if record is not None and record.disabled is not None:
            return DISABLED, "; ".join([_format_disabled(record), *left])
        if told.state in COMPLIANT_STATES:
            return WAITING, "; ".join(left)
        return told.state, told.reason or "not its turn yet"
    reason = told.reason or (record.conflict if record else "")
    return str(told.state), "; ".join(part for part in (reason, *left, _format_absence(away)) if part)


def _format_unreported(told: AssignmentState, standing: Standing) -> str:
    """Return the sentence about a node that does not report the applied data revision."""
    assignment = standing.assignment
    if assignment.data_revision or not assignment.data or told.data_revisions:
        return ""
    return "its agent is too old to report its data revisions"


def _format_pending(told: AssignmentState) -> list[str]:
    """Return the sentence about pending refreshes, or an empty list."""
    if not told.refresh_pending:
        return []
    named = ", ".join(told.refresh_pending[:PENDING_NAMED])
    more = len(told.refresh_pending) - PENDING_NAMED
    return [f"a refresh is pending: {named}" + (f" and {more} more" if more > 0 else "")]


def _behind(
    node: Node, told: AssignmentState | None, standing: Standing, now: datetime, away: AbsentSince | None
) -> tuple[str, str]:
    """Return the state and reason of a node that has not reported the current revision."""
    record = node.record
    has = ""
    if told is not None and told.key == standing.key:
        count = told.count or told.revision
        # the count restarts at 1 on a recreated broker
        has = f"last reported {'an earlier ' if count == standing.revision else ''}revision {count}"
    deadline = standing.assignment.deadline
    if record is None:
        state, reason = OFFLINE, "never seen"
    elif away is not None:
        state, reason = OFFLINE, _format_absence(away)
    elif record.disabled is not None:
        state, reason = DISABLED, _format_disabled(record)
    elif record.conflict:
        state, reason = REFUSED, record.conflict
    else:
        state, reason = WAITING, "has not started"
    if deadline is not None and deadline <= now:
        state, reason = EXPIRED, f"the deadline {_clock(deadline)} has passed; {reason}"
    return state, "; ".join(part for part in (reason, has) if part)


def _format_absence(away: AbsentSince | None) -> str:
    if away is None:
        return ""
    if away.since is None:
        return "offline"
    return (
        f"offline since {_clock(away.since)}" if away.is_exact else f"offline, last seen {_clock(away.since)}"
    )


def _format_disabled(record: NodeRecord | None) -> str:
    if record is None or record.disabled is None:
        return ""
    disabled = record.disabled
    until = f" until {_clock(disabled.until)}" if disabled.until else ""
    why = f": {disabled.why}" if disabled.why else ""
    by = f" (by {disabled.by})" if disabled.by else ""
    return f"disabled{until}{why}{by}"


def _clock(moment: datetime) -> str:
    return format_moment(moment)


async def _goodbyes(fleet: Fleet, nodes: list[str]) -> dict[str, datetime]:
    """Return the times at which nodes last sent a goodbye."""
    found: dict[str, datetime] = {}
    if not nodes:
        return found
    for message in await fleet.events.newest([event_subject(AGENT_SHUTDOWN, node) for node in nodes]):
        try:
            found[parse_event(message.subject).node] = decode_foreign(message.body, AgentEvent).timestamp
        except (msgspec.MsgspecError, ProtocolError):
            continue
    return found


def _last_heard(node: Node) -> datetime | None:
    record = node.record
    if record is None:
        return None
    times = [
        node.written,
        record.started,
        record.last_time,
        *(one.since for one in record.assignments.values()),
    ]
    return max((time for time in times if time is not None), default=None)
