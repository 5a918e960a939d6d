"""Actions on runs: pause, resume, promote and abort rollouts, and retry runs. The user who requested an action is recorded."""

from __future__ import annotations

import logging
from datetime import timedelta

import msgspec
from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.model.errors import RunError, UsageError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ids import short_id
from ccm_agent.model.records.rollout_records import OrderKind, RolloutState
from ccm_agent.model.wire import NodeState
from ccm_ctl.dashboard.access import DashboardUser
from ccm_ctl.dashboard.middleware import answer, sender_of
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.concurrent import refuse_concurrent
from ccm_ctl.fleet.rollout.judge import name_author
from ccm_ctl.fleet.rollout.orders import Orders
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.background_runs import BackgroundRuns
from ccm_ctl.fleet.runs.find_run import find_run
from ccm_ctl.fleet.runs.history import History, Recorded
from ccm_ctl.fleet.runs.open_runs import look_at_ends
from ccm_ctl.fleet.runs.run_again import RETRIABLE_ENDS, RETRIED_ENDS, prepare_retry
from ccm_ctl.fleet.runs.run_request import Launch, check_message, send_stop
from ccm_ctl.fleet.trust.authors import read_authors

log = logging.getLogger(__name__)

ACTIONS = ("pause", "resume", "promote", "abort")
WHY_CHARACTERS = 500
ACTION_DEADLINE_S = 3600
"""The time limit, in seconds, for nodes to start. It is the same as for `ccmctl run retry` and `ccmctl undo`."""


class ActionRequest(Struct, frozen=True):
    """
    The body of an action.

    Attributes:
        why: The reason for pausing or aborting a rollout.
        message: The reason for a retry, shown with the new run.
        states: For a retry: only nodes with these results. Empty: all nodes on which the run did not succeed.
        alongside: Whether the user agreed to continue although another rollout is in progress on the same nodes.
    """

    why: str = ""
    message: str = ""
    states: list[str] = []
    alongside: bool = False


class ActionPages:
    """
    The API for actions. `require_user` has checked the right to act, and that a page of this dashboard sent the request.
    """

    def __init__(self, fleet: Fleet, started: BackgroundRuns) -> None:
        self._fleet = fleet
        self._started = started

    def add_to(self, application: web.Application) -> None:
        """Add the routes."""
        application.router.add_post("/api/runs/{run}/retry", self._retry)
        application.router.add_post("/api/runs/{run}/{action}", self._act)

    async def _act(self, request: web.Request) -> web.Response:
        """Perform an action on a rollout, and reply with its new state."""
        action, run = request.match_info["action"], request.match_info["run"]
        if action not in ACTIONS:
            raise UsageError(f"not an action; use one of {', '.join(ACTIONS)}")
        said = await _body_of(request)
        by = name_of(sender_of(request), self._fleet)
        recorded = await History(self._fleet).load(run)
        log.info("an action", extra={"action": action, "run": run, "by": by})
        kind, user = OrderKind(action), sender_of(request).on_record
        if kind.is_halt:
            state = await self._halt(recorded, user, said.why[:WHY_CHARACTERS], kind)
        else:
            if not said.alongside:
                await refuse_concurrent(self._fleet, recorded.nodes, besides=recorded.record.run)
            state = await self._continue(recorded, user, kind)
        return answer({"phase": str(state.phase)})

    async def _retry(self, request: web.Request) -> web.Response:
        """Repeat a run's request on nodes where it did not succeed, and reply with the ID of the new run."""
        run, said = request.match_info["run"], await _body_of(request)
        if unknown := set(said.states) - set(RETRIABLE_ENDS):
            raise UsageError(f"states: cannot be retried: {', '.join(sorted(unknown)[:5])}")
        user, message = sender_of(request), check_message(said.message)
        recorded = await find_run(self._fleet, run)
        ends = [NodeState(word) for word in said.states] or RETRIED_ENDS
        deadline = self._fleet.clock.now() + timedelta(seconds=ACTION_DEADLINE_S)
        if recorded.is_on_record and await RolloutStore(self._fleet).look(recorded.record.run) is not None:
            raise RunError(
                f"{short_id(run)}: the dashboard cannot retry a rollout; use `ccmctl run retry {short_id(run)}`"
            )
        launch = await prepare_retry(self._fleet, recorded, ends, deadline, message=message)
        if not said.alongside:
            await refuse_concurrent(self._fleet, launch.resolved.nodes)
        launch = in_the_name_of(user, launch, self._fleet)
        log.info("an action", extra={"action": "retry", "run": run, "by": name_of(user, self._fleet)})
        await self._started.start(launch)
        return answer({"run": launch.record.run, "nodes": launch.record.nodes})

    async def _halt(self, recorded: Recorded, user: str, why: str, kind: OrderKind) -> RolloutState:
        """Pause or abort a rollout, so that no further nodes start. An abort also stops nodes that have started."""
        state, _ = await RolloutStore(self._fleet).need(recorded.record.run)
        if state.phase.is_over:
            raise RunError(f"{short_id(state.run)}: this rollout is already {state.phase}")
        state = await Orders(self._fleet, recorded).give(kind, why=why, user=user)
        if kind is OrderKind.ABORT:
            await History(self._fleet).mark_stopped(recorded.record.run, self._fleet.operator)
            asked = [*recorded.nodes[: state.asked], *state.returned]
            await send_stop(self._fleet, recorded.record, asked, is_kill=False)
        return state

    async def _continue(self, recorded: Recorded, user: str, kind: OrderKind) -> RolloutState:
        """Let the rollout continue. A rollout without a driver waits for a rollout server."""
        authors = await read_authors(self._fleet)
        run = await look_at_ends(self._fleet, recorded, authors)
        ends: dict[str, NodeState] = {name: node.state for name, node in run.nodes.items()}

        def detaches(state: RolloutState) -> bool:
            is_driven = state.lease is not None and state.lease.until > self._fleet.clock.now()
            return not is_driven and not state.signature

        return await Orders(self._fleet, recorded, ends).give(kind, user=user, detaches=detaches)


async def _body_of(request: web.Request) -> ActionRequest:
    try:
        return decode_foreign(await request.read(), ActionRequest)
    except msgspec.MsgspecError as err:
        raise UsageError("the body is not an action") from err


def in_the_name_of(user: DashboardUser, launch: Launch, fleet: Fleet) -> Launch:
    """Return a run whose record also contains the user, unless the user is the operator."""
    if user.on_record == fleet.operator:
        return launch
    return replace(launch, record=replace(launch.record, user=user.on_record))


def name_of(user: DashboardUser, fleet: Fleet) -> str:
    """
    Return the name for the record of an action. It consists of the user and the operator whose credentials the dashboard uses.
    """
    return name_author(fleet.operator, user.on_record)
