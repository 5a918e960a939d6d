"""
Commands to nodes that are not runs. Nodes answer commands to disable or enable them immediately. The other command makes nodes
converge now.

While a node converges, it sends progress reports every few seconds, and it answers at the end. If a node falls silent, the
request is repeated. An agent that was restarted then starts again, and an agent whose answer was lost repeats the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from ccm_agent.bus.signatures.verified import Authored
from ccm_agent.bus.subjects import request_subject, run_pattern
from ccm_agent.model.errors import BusUnavailableError, ProtocolError
from ccm_agent.model.formats.untrusted_json import Count
from ccm_agent.model.ids import new_id
from ccm_agent.model.ports import StoredEvent
from ccm_agent.model.records.maintenance import LockChange
from ccm_agent.model.wire import (
    NODE_CONVERGE,
    Answer,
    AnswerState,
    MaintenanceRequest,
    NodeState,
    Progress,
)
from ccm_ctl.fleet.events.messages import decode_agent_message
from ccm_ctl.fleet.nodes.nodes import TargetSet
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.gather import NAMED_AT_ONCE, Reply, ask
from ccm_ctl.fleet.runs.run import ANSWER_WITHIN_S, LOST_AFTER_S, RESENDS, resend_after_s

TURN_S = 0.5
"""The interval, in seconds, at which time limits are checked."""

NOTHING = "nothing"
"""State of a node without manifests or assignments to converge on."""
DONE = "done"
"""State of a node that has converged, but whose results were lost in transit."""
LOST = str(NodeState.LOST)
SILENT = str(NodeState.UNREACHABLE)
OFFLINE = str(NodeState.OFFLINE)
REFUSED = str(NodeState.REFUSED)

_WORST = (NodeState.FAILED, NodeState.STOPPED, NodeState.REFUSED, NodeState.CHANGED, NodeState.STABLE)


async def send_command(
    fleet: Fleet,
    protocol: str,
    resolved: TargetSet,
    why: str,
    until: datetime | None = None,
    lock: LockChange | None = None,
) -> tuple[dict[str, Reply], list[str]]:
    """
    Disable or enable nodes.

    Args:
        fleet: The bus.
        protocol: NODE_DISABLE or NODE_ENABLE.
        resolved: The nodes. Offline nodes cannot be reached.
        why: The reason.
        until: When disabled nodes are enabled again, or when locks end. None: until an operator enables or unlocks them.
        lock: A lock for resources, to send instead. It contains its own reason.

    Returns:
        The answers by node, and the nodes that did not answer.
    """
    request = _request(fleet, protocol, resolved, "" if lock is not None else why)
    request.until, request.lock = until, lock
    return await ask(fleet, request, resolved.scopes, set(resolved.nodes) - set(resolved.offline))


class ManifestResult(Struct, frozen=True, kw_only=True):
    """The result of convergence for one manifest or assignment, as the node reports it."""

    name: str = ""
    state: str = ""
    run: str = ""
    reason: str = ""
    changed: Count = 0
    failed: Count = 0
    total: Count = 0


class NodeConvergence(Struct, frozen=True, kw_only=True):
    """
    The result of convergence on one node.

    Attributes:
        node: The node.
        state: The worst state of its results, or NOTHING, DONE, LOST, SILENT, OFFLINE or REFUSED.
        reason: The reason, if the state is not self-explanatory.
        results: The result for each manifest and assignment.
    """

    node: str
    state: str
    reason: str = ""
    results: tuple[ManifestResult, ...] = ()


class _Waiting(Struct):
    """
    A node that has not ended. The fields are whether it has accepted, when its last message arrived, and whether the request was
    repeated since then.
    """

    has_accepted: bool = False
    heard_at: float = 0
    is_asked_again: bool = False


class Convergences:
    """
    The answers of nodes to one request to converge. This class does no I/O: its input is messages and the time.

    Attributes:
        ended: The nodes that have ended, by name.
    """

    def __init__(self, nodes: Iterable[str], now: float) -> None:
        self.ended: dict[str, NodeConvergence] = {}
        self._waiting = {node: _Waiting(heard_at=now) for node in nodes}
        self._since = now
        self._resends = 0

    @property
    def working(self) -> list[str]:
        """Nodes that are converging now."""
        return sorted(name for name, node in self._waiting.items() if node.has_accepted)

    @property
    def is_done(self) -> bool:
        """Whether all nodes have ended."""
        return not self._waiting

    def heard(self, name: str, said: object, now: float) -> None:
        """Process a node's answer or progress report."""
        node = self._waiting.get(name)
        if node is None:
            return
        if isinstance(said, Progress) or (isinstance(said, Answer) and said.state == AnswerState.ACCEPTED):
            node.has_accepted, node.heard_at, node.is_asked_again = True, now, False
        elif isinstance(said, Answer):
            self._end(_ended(name, said))

    def tick(self, now: float, *, is_connected: bool) -> list[str]:
        """Return the nodes to which the request must be repeated now. While the broker connection is lost, timeouts pause."""
        if not is_connected:
            self._since += TURN_S
            for node in self._waiting.values():
                node.heard_at = now
            return []
        if self._resends < RESENDS and now - self._since >= resend_after_s(self._resends):
            self._resends += 1
            return sorted(name for name, node in self._waiting.items() if not node.has_accepted)
        again = []
        for name, node in list(self._waiting.items()):
            silent_s = now - node.heard_at
            if not node.has_accepted and silent_s >= ANSWER_WITHIN_S:
                self._end(NodeConvergence(node=name, state=SILENT, reason=f"no answer in {silent_s:.0f}s"))
            elif node.has_accepted and silent_s >= LOST_AFTER_S:
                if node.is_asked_again:
                    self._end(
                        NodeConvergence(node=name, state=LOST, reason=f"silent for {silent_s * 2:.0f}s")
                    )
                else:
                    node.is_asked_again, node.heard_at = True, now
                    again.append(name)
        return sorted(again)

    def give_up(self, seconds: float) -> None:
        """Stop waiting for the nodes that have not ended."""
        for name in list(self._waiting):
            self._end(NodeConvergence(node=name, state=LOST, reason=f"not finished after {seconds:g}s"))

    def _end(self, ended: NodeConvergence) -> None:
        del self._waiting[ended.node]
        self.ended[ended.node] = ended


async def converge(
    fleet: Fleet,
    resolved: TargetSet,
    why: str,
    limit_s: float,
    on_turn: Callable[[Convergences], None],
) -> list[NodeConvergence]:
    """
    Make nodes converge now, and wait until they have ended.

    Args:
        fleet: The bus.
        resolved: The nodes.
        why: The reason, or "".
        limit_s: The maximum time to wait. 0: wait only until the nodes have accepted or refused.
        on_turn: Called twice a second and at the end.

    Returns:
        The results by node.
    """
    loop = asyncio.get_running_loop()
    request = _request(fleet, NODE_CONVERGE, resolved, why)
    found = Convergences(set(resolved.nodes) - set(resolved.offline), loop.time())
    woken = asyncio.Event()

    def take(message: StoredEvent) -> None:
        try:
            heard = decode_agent_message(message)
        except ProtocolError:
            return
        found.heard(heard.node, heard.said, loop.time())
        woken.set()

    stop = await fleet.events.follow(run_pattern(request.run), take)
    until = loop.time() + (limit_s or ANSWER_WITHIN_S)
    try:
        await _send(fleet, request, resolved.scopes, [])
        while not found.is_done:
            if loop.time() >= until:
                found.give_up(limit_s)
            elif again := found.tick(loop.time(), is_connected=fleet.link.connected):
                await _send(fleet, request, resolved.scopes, again)
            on_turn(found)
            await _wait(woken)
    finally:
        await stop()
    on_turn(found)
    away = [NodeConvergence(node=name, state=OFFLINE) for name in resolved.offline]
    return sorted([*found.ended.values(), *away], key=lambda one: one.node)


async def _wait(woken: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(TURN_S):
            await woken.wait()
    except TimeoutError:
        pass
    woken.clear()


async def _send(fleet: Fleet, request: MaintenanceRequest, scopes: Iterable[str], named: list[str]) -> None:
    for begin in range(0, max(len(named), 1), NAMED_AT_ONCE):
        again = msgspec.structs.replace(request, named=named[begin : begin + NAMED_AT_ONCE])
        try:
            for scope in scopes:
                await fleet.requests.publish(
                    request_subject(request.protocol, scope),
                    msgspec.json.encode(again),
                    base=[Authored.from_arguments()],
                )
        except BusUnavailableError:
            if not named:
                raise  # the nodes never received the request
            return


def _request(fleet: Fleet, protocol: str, resolved: TargetSet, why: str) -> MaintenanceRequest:
    now = fleet.clock.now()
    return MaintenanceRequest(
        protocol=protocol,
        run=new_id(now),
        time=now,
        targets=resolved.targets,
        where=resolved.where,
        requester=fleet.operator,
        why=why,
    )


def _ended(name: str, answer: Answer) -> NodeConvergence:
    """Decode a node's last answer, which may have any content."""
    if answer.state == AnswerState.REFUSED:
        return NodeConvergence(node=name, state=REFUSED, reason=answer.reason)
    body: dict[str, Any] = answer.body
    try:
        results = tuple(msgspec.convert(body.get("ended", []), list[ManifestResult]))
    except msgspec.ValidationError:
        results = ()
    if "ended" not in body:
        return NodeConvergence(
            node=name, state=DONE, reason=f"its results were lost; see `ccmctl why {name}`"
        )
    states = {one.state for one in results}
    worst = next((str(state) for state in _WORST if state in states), NOTHING)
    return NodeConvergence(node=name, state=worst, results=results)
