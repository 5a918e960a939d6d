"""
The driver of a rollout: it follows the run, and starts the next nodes.

At each turn it stores the next state before it sends a request. It holds a lease, so that two drivers cannot send at the same
time. When a driver dies, no further node starts. After the lease expires, another driver continues from the stored state. It
repeats the request for nodes that already got it and have not ended. This is safe because an agent applies a run once.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.bus.signatures.verified import Unverified
from ccm_agent.bus.subjects import node_scope, request_subject
from ccm_agent.model.errors import BusDeniedError, BusUnavailableError, CcmError, RevisionError, RunError
from ccm_agent.model.ids import new_id, short_id
from ccm_agent.model.records.rollout_records import Lease, Phase, RolloutState
from ccm_agent.model.wire import NodeState
from ccm_agent.templates.broker_functions import BrokerFunctions
from ccm_ctl.fleet.rollout.gate import count_health, evaluate_gate, parse_gate
from ccm_ctl.fleet.rollout.judge import obey
from ccm_ctl.fleet.rollout.lease import LEASE_S, RENEW_S, check_lease
from ccm_ctl.fleet.rollout.state import gated, step
from ccm_ctl.fleet.rollout.store import require_verified
from ccm_ctl.fleet.trust.node_state import VerifiedServices

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ccm_agent.bus.signatures.verified import Base
    from ccm_agent.model.records.rollout_records import GivenOrder
    from ccm_agent.model.wire import Request
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.rollout.store import RolloutStore, StoredRollout
    from ccm_ctl.fleet.runs.run import Run

log = logging.getLogger(__name__)

READ_S = 1.0
"""The interval, in seconds, at which a driver that stores nothing reads the orders of operators."""

SENT_AT_ONCE = 64
"""The maximum number of requests in transit to the broker at the same time."""


class LeaseLostError(RunError):
    """Another driver has taken over the rollout."""

    code = "rollout.lease_lost"


def skip_reason(state: RolloutState) -> str:
    """Return why a node of an ended rollout never got the request."""
    return f"the rollout was aborted by {state.by}: {state.reason}"


class Driving(Struct, frozen=True, kw_only=True):
    """
    The inputs of a driver.

    Attributes:
        fleet: The fleet, to which requests are sent.
        store: The store with the state of the rollout.
        request: The request that is sent to each node. Its run, targets and requester are set here.
        base: The verified data or operator input from which the request was made.
        scopes: The scopes of the run, for an operator who may not send to single nodes.
        is_sent_to_scopes: Whether requests are sent only to these scopes, even if the broker allows more.
        order: The nodes of all waves, in the plan's order.
        find_back: Returns those of the given nodes that have come back.
        release: Called with nodes before the request is sent to them. It may be called again. None: no action is needed.
        complete: Called when all waves have ended, before the rollout ends. It may be called again. None: no action is needed.
    """

    fleet: Fleet
    store: RolloutStore
    request: Request
    base: Sequence[Base]
    scopes: list[str]
    order: list[str]
    find_back: Callable[[Sequence[str]], Awaitable[list[str]]]
    release: Callable[[Sequence[str]], Awaitable[None]] | None = None
    complete: Callable[[], Awaitable[None]] | None = None
    is_sent_to_scopes: bool = False


class RolloutDriver:
    """
    Drives one rollout.

    Attributes:
        state: The rollout as this driver last stored or read it.
        orders: The orders for the rollout, in the order in which they were stored, including invalid ones.
        disturbance: The reason why a state that another program wrote was replaced instead of accepted, or "".
    """

    def __init__(self, driving: Driving, run: Run, state: RolloutState, revision: int) -> None:
        self._driving = driving
        self._run = run
        self.state = state
        self._revision = revision
        self._process = new_id()
        self._stored_at = float("-inf")
        self._stored: RolloutState | None = None
        self._has_stored = False
        self.orders: list[GivenOrder] = []
        self.disturbance = ""
        self._read_at = float("-inf")
        self._to_scopes = driving.is_sent_to_scopes

    @property
    def is_over(self) -> bool:
        """Whether no further node will start."""
        return self.state.phase.is_over

    @property
    def is_waiting_for_operator(self) -> bool:
        """Whether the rollout is paused and all nodes that got the request have ended."""
        return self.state.phase is Phase.PAUSED and not self._asked_open()

    async def begin(self) -> None:
        """
        Acquire the lease, and repeat the request for nodes that have received it and have not ended.

        Raises:
            RunError: Another driver holds the rollout.
        """
        check_lease(self.state, self._driving.fleet.clock.now())
        await self._store(self.state)
        open_nodes = self._asked_open()
        self._run.ask(open_nodes, _monotonic())
        await self._send(open_nodes)

    async def turn(self) -> None:
        """
        Do the actions that are due.

        Raises:
            LeaseLostError: Another driver has taken over.
            BusUnavailableError: The broker cannot be reached.
        """
        if self._run.away_since is not None:
            return
        now_s = _monotonic()
        if now_s - self._read_at >= READ_S:
            await self._read()
        is_changed = self._stored is not None and self.state != self._stored
        if is_changed and not await self._try_store(self.state):
            return
        if self.is_over:
            self._run.skip(skip_reason(self.state))
            return
        await self._ask_forgotten()
        ends = {name: node.state for name, node in self._run.nodes.items()}
        back = await self._driving.find_back(self._offline()) if self.state.phase is Phase.RUNNING else []
        next_step = step(self.state, self._driving.order, ends, back, self._driving.fleet.clock.now())
        if next_step.gate:
            next_step = replace(next_step, state=await self._evaluate(next_step.state))
        if next_step.state == self.state:
            if now_s - self._stored_at >= RENEW_S:
                await self._try_store(self.state)
            return
        if next_step.state.phase is Phase.DONE and not await self._complete():
            return
        if await self._try_store(next_step.state) and next_step.ask:
            self._run.ask(next_step.ask, _monotonic())
            await self._send(next_step.ask)

    async def _complete(self) -> bool:
        """
        Do the last step after the last wave. Returns False if the stored state has changed. The step must then be done later.
        """
        complete = self._driving.complete
        if complete is None:
            return True
        # an abort is now refused, so it cannot occur between this step and the end
        if not self.state.is_completing and not await self._try_store(
            replace(self.state, is_completing=True)
        ):
            return False
        try:
            await complete()
        except BusUnavailableError:
            raise
        except CcmError as err:
            await self._pause(str(err))
            return False
        return True

    async def _pause(self, reason: str) -> None:
        """Pause the rollout, because this operator cannot continue it."""
        paused = replace(
            self.state, phase=Phase.PAUSED, by="", bake_until=None, is_completing=False, reason=reason
        )
        await self._try_store(paused)

    async def send_again(self, nodes: list[str]) -> None:
        """Repeat the request for nodes that have not answered."""
        await self._send(nodes)

    async def leave(self) -> None:
        """Release the lease, so that another driver can continue immediately."""
        if self.state.phase.is_over or self.state.lease is None:
            return
        try:
            store, base = self._driving.store, self._driving.base
            self._revision = await store.write(replace(self.state, lease=None), self._revision, base=base)
        except (RevisionError, BusUnavailableError) as err:
            log.info(
                "the lease of a rollout could not be released; it will expire", extra={"reason": str(err)}
            )

    def _offline(self) -> list[str]:
        return [
            name
            for name, node in self._run.nodes.items()
            if node.state is NodeState.OFFLINE and name not in self.state.returned
        ]

    def _asked_open(self) -> list[str]:
        asked = [*self._driving.order[: self.state.asked], *self.state.returned]
        return [name for name in asked if not self._run.nodes[name].state.is_final]

    async def _evaluate(self, state: RolloutState) -> RolloutState:
        """
        Evaluate the gate of the current wave and return the new state. Runs in a thread, because a gate may query the broker.
        """
        fleet = self._driving.fleet
        loop = asyncio.get_running_loop() if fleet.services else None
        functions = BrokerFunctions(loop, lambda: VerifiedServices(fleet))
        program, counts = parse_gate(state.current.gate), self._run.counts()
        health = count_health(summary for node in self._run.expected if (summary := node.summary))
        result = await asyncio.to_thread(evaluate_gate, program, counts, health, functions.registrations)
        return gated(state, *result)

    async def _read(self) -> None:
        self._read_at = _monotonic()
        found = await self._driving.store.look(self.state.run)
        if found is None and self._has_stored:
            self._revision, self.disturbance = 0, "it was removed"
            self._stored = replace(self.state, serial=0)
            return
        found = found or await self._driving.store.require(self.state.run)
        self._revision = found.revision
        self._stored = found.judged.value
        if not self._has_stored:
            require_verified(found)
        reason = _not_obeyed(found, self.state) if self._has_stored else ""
        if reason and reason != self.disturbance:
            log.warning("the state of a rollout is restored", extra={"run": self.state.run, "reason": reason})
        self.disturbance = reason or self.disturbance
        self.orders = found.orders
        state = self.state if reason else found.judged.value
        ends = {name: node.state for name, node in self._run.nodes.items()}
        self.state = obey(state, found.orders, self._driving.order, ends)
        self._check_lease()

    async def _ask_forgotten(self) -> None:
        """
        Send the request to nodes that the stored state lists as asked, but that did not get it.

        This happens if the reply to the last write was lost.
        """
        nodes = self._run.nodes
        forgotten = [
            *(
                one
                for one in self._driving.order[: self.state.asked]
                if nodes[one].state is NodeState.PLANNED
            ),
            *(one for one in self.state.returned if nodes[one].state is NodeState.OFFLINE),
        ]
        if forgotten:
            self._run.ask(forgotten, _monotonic())
            await self._send(forgotten)

    def _check_lease(self) -> None:
        lease = self.state.lease
        if not self.is_over and lease is not None and lease.process != self._process:
            raise LeaseLostError(
                f"{short_id(self.state.run)}: {lease.operator} on {lease.host} is driving this rollout"
            )

    async def _try_store(self, state: RolloutState) -> bool:
        """Store the state. If an operator or another driver stored a state first, read that state instead and return False."""
        try:
            await self._store(state)
        except RevisionError:
            await self._read()
            return False
        return True

    async def _store(self, state: RolloutState) -> None:
        fleet = self._driving.fleet
        lease = Lease(
            operator=fleet.operator,
            host=socket.gethostname(),
            process=self._process,
            until=fleet.clock.now() + timedelta(seconds=LEASE_S),
        )
        state = replace(state, lease=None if state.phase.is_over else lease)
        driving = self._driving
        self._revision = await driving.store.write(state, self._revision, base=driving.base)
        # the state as stored, with the time and the serial
        self.state, self._stored_at = replace(state, serial=state.serial + 1), _monotonic()
        self._stored, self._has_stored = self.state, True

    async def _send(self, nodes: Sequence[str]) -> None:
        """
        Send the request to each of these nodes.

        Raises:
            BusDeniedError: The broker refuses the request, and would refuse further attempts of this operator. The rollout is
                therefore paused.
        """
        if not await self._try_release(nodes):
            return
        try:
            await self._send_where_allowed(nodes)
        except BusDeniedError as err:
            if self.state.phase in (Phase.RUNNING, Phase.BAKING):
                await self._pause(str(err))
            raise

    async def _try_release(self, nodes: Sequence[str]) -> bool:
        """
        Do the work that must precede the request to these nodes. If it fails, the rollout is paused. A resume tries again.
        """
        if self._driving.release is None or not nodes:
            return True
        try:
            await self._driving.release(nodes)
        except BusUnavailableError:
            raise
        except CcmError as err:
            if self.state.phase in (Phase.RUNNING, Phase.BAKING):
                await self._pause(str(err))
            return False
        return True

    async def _send_where_allowed(self, nodes: Sequence[str]) -> None:
        deadline = self._driving.fleet.clock.now() + timedelta(seconds=self.state.deadline_s)
        request = replace(self._driving.request, deadline=deadline, named=[], rollout=True)
        for begin in range(0, len(nodes), SENT_AT_ONCE):
            part = nodes[begin : begin + SENT_AT_ONCE]
            if not self._to_scopes:
                try:
                    await self._send_each(request, part)
                    continue
                except BusDeniedError:
                    self._to_scopes = True
            await self._send_to_scopes(request, part)

    async def _send_each(self, request: Request, nodes: Sequence[str]) -> None:
        body = msgspec.json.encode(request)
        requests = self._driving.fleet.requests
        subjects = [request_subject(request.protocol, node_scope(node)) for node in nodes]
        for failed in await asyncio.gather(
            *(requests.publish(subject, body, base=self._driving.base) for subject in subjects),
            return_exceptions=True,
        ):
            if isinstance(failed, BaseException):
                raise failed

    async def _send_to_scopes(self, request: Request, nodes: Sequence[str]) -> None:
        """Send the request to the scopes that the operator may use, for these nodes only. Other agents in the scope ignore it."""
        names = f"node in ({','.join(nodes)})"
        targets = [f"{text},{names}" for text in request.targets] or [names]
        body = msgspec.json.encode(replace(request, targets=targets, named=list(nodes)))
        for scope in self._driving.scopes:
            await self._driving.fleet.requests.publish(
                request_subject(request.protocol, scope), body, base=self._driving.base
            )


def _not_obeyed(found: StoredRollout, own: RolloutState) -> str:
    """Return why a driver does not accept a state that has replaced its own. "": the driver accepts it."""
    judged = found.judged
    if isinstance(judged, Unverified):
        return judged.reason
    # an unsigned state may be from an older controller, which does not write a serial
    is_older = bool(judged.key) and judged.value.serial <= own.serial
    is_other = replace(judged.value, time=None) != replace(own, time=None)
    return "an earlier state was restored" if is_older and is_other else ""


def _monotonic() -> float:
    return asyncio.get_running_loop().time()
