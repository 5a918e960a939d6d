"""Undo a run in the browser. A preview, which changes nothing, comes first. The undo follows after the user has confirmed it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec
from aiohttp import web
from msgspec import Struct

from ccm_agent.model.errors import RunError, UsageError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ids import short_id
from ccm_agent.model.noop_words import noop_words
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.wire import COMPLIANT_STATES
from ccm_ctl.dashboard.access import DashboardUser
from ccm_ctl.dashboard.action_pages import ACTION_DEADLINE_S, in_the_name_of, name_of
from ccm_ctl.dashboard.middleware import answer, sender_of
from ccm_ctl.dashboard.recent_answers import RecentAnswers
from ccm_ctl.dashboard.run_pages import DIFFS_SHOWN, check_word, diff_fields, node_fields, run_word
from ccm_ctl.dashboard.work_limiter import WorkLimiter
from ccm_ctl.fleet.assignments.bundles import find_assigned
from ccm_ctl.fleet.nodes.discovery import TargetSpec
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.concurrent import refuse_concurrent
from ccm_ctl.fleet.runs.background_runs import BackgroundRuns
from ccm_ctl.fleet.runs.history import History, Recorded
from ccm_ctl.fleet.runs.node_run import NodeRun
from ccm_ctl.fleet.runs.run import Run
from ccm_ctl.fleet.runs.run_again import base_of, read_known
from ccm_ctl.fleet.runs.run_request import Launch, check_message
from ccm_ctl.fleet.runs.run_session import check_own_rights
from ccm_ctl.fleet.runs.undo import (
    UndoTargets,
    find_undoable,
    nodes_to_apply_again,
    prepare_undo,
    resolve_undo,
    select_node,
    would_undo,
)
from ccm_ctl.render.left_out import find_not_undone
from ccm_ctl.render.reapplied import format_assigned, format_starter
from ccm_ctl.render.resource_diffs import group_diffs

log = logging.getLogger(__name__)

PREVIEW_DEADLINE_S = 600
"""The time limit, in seconds, for nodes to start the plan. It is short because the user waits for the result."""

PREVIEW_LIMIT_S = 900.0
"""Nodes that have not finished the plan within this many seconds are treated as lost."""

PREVIEWS_AT_ONCE = 10
PREVIEWS_KEPT = 50
"""The maximum number of previews whose state is kept for the page. The state of older ones is read from the broker."""


class UndoRequest(Struct, frozen=True, kw_only=True):
    """
    The body of a preview and of an undo.

    Attributes:
        node: Only this node. "": all nodes on which the run may have changed something.
        redo: Whether the run itself is an undo.
        plan: For an undo, the run of its preview.
        message: For an undo, the reason, which is shown with its run.
        alongside: Whether the user agreed to continue although a rollout is in progress on the same nodes.
    """

    node: str = ""
    redo: bool = False
    plan: str = ""
    message: str = ""
    alongside: bool = False


class UndoPages:
    """
    The API for undos. `require_user` has checked the right to act, and that a page of this dashboard sent the request.

    Args:
        fleet: The bus.
        started: Tracks the started undos.
    """

    def __init__(self, fleet: Fleet, started: BackgroundRuns) -> None:
        self._fleet = fleet
        self._started = started
        self._previews = BackgroundRuns(
            fleet, at_once=PREVIEWS_AT_ONCE, limit_s=PREVIEW_LIMIT_S, kept=PREVIEWS_KEPT
        )
        self._shown = RecentAnswers()
        self._work = WorkLimiter()

    def add_to(self, application: web.Application) -> None:
        """Add the routes."""
        application.on_cleanup.append(self._end)
        application.router.add_post("/api/runs/{run}/undo/plan", self._plan)
        application.router.add_get("/api/runs/{run}/undo/{plan}", self._preview)
        application.router.add_post("/api/runs/{run}/undo", self._undo)

    async def _end(self, _application: web.Application) -> None:
        await self._previews.end()

    async def _plan(self, request: web.Request) -> web.Response:
        """Start the plan of an undo. Reply with its run and nodes, and with warnings about repeated changes (see `_warnings`)."""
        said, user = await _body_of(request), sender_of(request)
        async with self._work.place(user.on_record):
            recorded, targets = await self._targets(run_word(request), said)
            # check the right to undo before the user reads the preview
            await check_own_rights(self._fleet, self._prepare(recorded, targets, user, is_plan=False))
            warnings = await self._warnings(recorded, targets)
            launch = self._prepare(recorded, targets, user, is_plan=True)
        self._log("a preview of an undo", launch, user)
        await self._previews.start(launch)
        nodes = targets.nodes
        return answer(
            {
                "run": launch.record.run,
                "nodes": len(nodes.nodes),
                "offline": len(nodes.offline),
                "warnings": warnings,
            }
        )

    async def _preview(self, request: web.Request) -> web.Response:
        """Return the results of an undo's plan so far."""
        run, plan = run_word(request), run_word(request, "plan")
        return answer(await self._shown.give((run, plan), lambda: self._read_preview(run, plan)))

    async def _read_preview(self, run: str, plan: str) -> dict[str, Any]:
        planned = await self._planned(run, plan)
        # read before the events, because more of them arrive while their diffs are grouped
        is_done = self._is_done(planned)
        nodes = [node for _, node in sorted(planned.nodes.items())]
        events = [(node.node, node.events[number]) for node in nodes for number in sorted(node.events)]
        groups = await asyncio.to_thread(group_diffs, events)
        return {
            "is_done": is_done,
            "would_change": any(map(would_undo, nodes)),
            "counts": {str(state): count for state, count in planned.counts().items()},
            "groups": [diff_fields(event, names) for event, names in groups[:DIFFS_SHOWN]],
            "left_out": max(0, len(groups) - DIFFS_SHOWN),
            "without_diff": _grouped((_without_diff(event), node) for node, event in events),
            "not_undone": _grouped((one, node.node) for node in nodes for one in _not_undone(node)),
            "problems": [node_fields(node) for node in nodes if _is_problem(node)],
        }

    async def _undo(self, request: web.Request) -> web.Response:
        """Start the undo whose preview the user has seen, and reply with its run."""
        said, user = await _body_of(request), sender_of(request)
        word, message = run_word(request), check_message(said.message)
        planned = await self._planned(word, check_word(said.plan))
        nodes = list(planned.nodes.values())
        if not self._is_done(planned):
            raise RunError(
                f"{short_id(said.plan)}: the preview has not ended on all nodes; wait until it has"
            )
        if not any(map(would_undo, nodes)):
            raise RunError(f"{short_id(word)}: there is nothing to undo on these nodes now")
        async with self._work.place(user.on_record):
            recorded, targets = await self._targets(word, said)
            if not set(targets.nodes.nodes) <= planned.nodes.keys():
                raise RunError(
                    f"{short_id(word)}: the preview was for fewer nodes than the undo; make a new preview"
                )
            if not said.alongside:
                await refuse_concurrent(self._fleet, targets.nodes.nodes)
            launch = self._prepare(recorded, targets, user, is_plan=False, message=message)
            await check_own_rights(self._fleet, launch)
        self._log("an undo", launch, user)
        await self._started.start(launch)
        return answer({"run": launch.record.run, "nodes": launch.record.nodes})

    async def _targets(self, word: str, said: UndoRequest) -> tuple[Recorded, UndoTargets]:
        recorded = await find_undoable(self._fleet, word, redo=said.redo)
        spec = select_node(said.node) if said.node else TargetSpec()
        return recorded, await resolve_undo(self._fleet, recorded, spec)

    def _prepare(
        self,
        recorded: Recorded,
        targets: UndoTargets,
        user: DashboardUser,
        *,
        is_plan: bool,
        message: str = "",
    ) -> Launch:
        seconds = PREVIEW_DEADLINE_S if is_plan else ACTION_DEADLINE_S
        deadline = self._fleet.clock.now() + timedelta(seconds=seconds)
        launch = prepare_undo(
            self._fleet, recorded, targets.nodes, deadline, is_plan=is_plan, message=message
        )
        return in_the_name_of(user, launch, self._fleet)

    async def _warnings(self, recorded: Recorded, targets: UndoTargets) -> list[str]:
        """Return warnings about assignments and schedules that will apply the same changes again after the undo."""
        if again := nodes_to_apply_again(recorded, targets):
            return [format_starter(recorded.cause, recorded.origin, again)]
        managed = await find_assigned(self._fleet, targets.inventory, targets.known, targets.changed)
        return list(format_assigned(managed))

    async def _planned(self, run: str, plan: str) -> Run:
        """Return the state of a preview. If this process did not start it, the state is read from the broker."""
        recorded = await History(self._fleet).load(plan)
        record = base_of(recorded).value
        if record.action != "plan" or record.request.get("undo") != run:
            raise UsageError(f"{short_id(plan)}: this run is not a preview of the undo of {short_id(run)}")
        return self._previews.find(plan) or await read_known(self._fleet, recorded)

    def _is_done(self, planned: Run) -> bool:
        """Whether a preview has ended on all nodes. Events of a run that is followed here may arrive after its results."""
        return planned.is_done if self._previews.find(planned.run) is planned else planned.is_ended

    def _log(self, what: str, launch: Launch, user: DashboardUser) -> None:
        fields = {"run": launch.record.run, "undo": launch.record.request["undo"]}
        log.info(what, extra={**fields, "by": name_of(user, self._fleet)})


async def _body_of(request: web.Request) -> UndoRequest:
    try:
        return decode_foreign(await request.read(), UndoRequest)
    except msgspec.MsgspecError as err:
        raise UsageError("the body is not the request of an undo") from err


Row = tuple[str, str]
"""A resource, and a description of its change or problem."""


def _without_diff(event: TransactionEvent) -> Row | None:
    """Return a change without a diff that would be undone, such as a change by an older agent. None for other events."""
    if not event.changed or event.diff is not None:
        return None
    return f"{event.type}#{event.name}", noop_words(event)


def _not_undone(node: NodeRun) -> list[Row]:
    return find_not_undone([node.events[number] for number in sorted(node.events)])


def _is_problem(node: NodeRun) -> bool:
    """Whether the node finished with a state that is neither compliant nor a planned change."""
    return node.state.is_final and node.state not in COMPLIANT_STATES


def _grouped(found: Iterable[tuple[Row | None, str]]) -> list[dict[str, Any]]:
    """Return each resource and description once, with the nodes that have both."""
    nodes: dict[Row, list[str]] = {}
    for row, node in found:
        if row is not None:
            nodes.setdefault(row, []).append(node)
    return [{"resource": resource, "why": why, "nodes": names} for (resource, why), names in nodes.items()]
