"""The API for the pages of runs."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from ccm_agent.model.errors import NotFoundError, UsageError
from ccm_agent.model.ids import short_id
from ccm_agent.model.noop_words import noop_words
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.records.rollout_records import RolloutState
from ccm_agent.model.records.run_records import UNDO, RunRecord
from ccm_agent.model.secret import mask_url
from ccm_ctl.dashboard.feed import RESOURCE_CHARACTERS, resource_name
from ccm_ctl.dashboard.middleware import answer, sender_of
from ccm_ctl.dashboard.recent_answers import RecentAnswers
from ccm_ctl.dashboard.work_limiter import WorkLimiter
from ccm_ctl.fleet.nodes.node_past import PastSession, read_session
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.starts import read_servers
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.find_run import find_run
from ccm_ctl.fleet.runs.history import Recorded
from ccm_ctl.fleet.runs.node_run import NodeRun
from ccm_ctl.fleet.runs.open_runs import look_at_ends
from ccm_ctl.fleet.runs.run_again import signer_of
from ccm_ctl.fleet.runs.run_list import RunFilter, list_runs
from ccm_ctl.fleet.runs.stored_session import read_run_events, read_session_events
from ccm_ctl.fleet.runs.stream_runs import CAUSES, SCHEDULE
from ccm_ctl.fleet.runs.undo import offered_nodes
from ccm_ctl.fleet.trust.authors import read_authors
from ccm_ctl.render.records import run_fields
from ccm_ctl.render.resource_diffs import group_diffs
from ccm_ctl.render.rollout import limits, rollout_line

RUNS_SHOWN = 100
EVENTS_COMPARED = 20_000
"""The maximum number of a run's events whose diffs are compared."""

DIFFS_SHOWN = 200


class RunPages:
    """The API for the list of runs and the page of a run."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._lists = RecentAnswers()
        self._runs = RecentAnswers()
        self._all_diffs = RecentAnswers()
        self._work = WorkLimiter()

    def add_to(self, application: web.Application) -> None:
        """Add the routes."""
        application.router.add_get("/api/runs", self._list)
        application.router.add_get("/api/runs/{run}", self._run)
        application.router.add_get("/api/runs/{run}/nodes/{node}", self._events)
        application.router.add_get("/api/runs/{run}/nodes/{node}/origin", self._origin)
        application.router.add_get("/api/runs/{run}/diffs", self._diffs)

    async def _list(self, request: web.Request) -> web.Response:
        """`?node=NODE&name=NAME&by=OPERATOR&state=STATE&cause=CAUSE`: return the newest matching runs."""
        said = {
            name: request.query.get(name, "").strip() for name in ("node", "name", "by", "state", "cause")
        }
        if said["cause"] and said["cause"] not in CAUSES:
            raise UsageError(f"cause: must be one of {', '.join(CAUSES)}")
        wanted = RunFilter(
            node=said["node"],
            name=said["name"],
            by=said["by"],
            state=said["state"],
            causes=(said["cause"],) if said["cause"] else (),
            folds=True,
        )
        return answer(await self._lists.give(tuple(said.values()), lambda: self._read(wanted)))

    async def _read(self, wanted: RunFilter) -> dict[str, Any]:
        listed = await list_runs(self._fleet, wanted, RUNS_SHOWN)
        runs = [
            {
                **request_fields(one.record),
                "state": one.state.state,
                "counts": one.state.counts,
                "stopped_by": one.state.stopped_by,
                "unverified": one.unverified,
                "cause": one.cause,
                "origin": one.origin,
                "reported_by": one.reported_by,
                "others": one.others,
            }
            for one in listed.runs
        ]
        return {"runs": runs, "left_out": listed.left_out}

    async def _run(self, request: web.Request) -> web.Response:
        """Return a run with its nodes and its rollout."""
        word = run_word(request)
        return answer(await self._runs.give(word, lambda: self._read_run(word)))

    async def _read_run(self, word: str) -> dict[str, Any]:
        recorded = await find_run(self._fleet, word)
        run = await look_at_ends(self._fleet, recorded, await read_authors(self._fleet))
        found = await RolloutStore(self._fleet).read(recorded.record.run)
        rollout = found[0] if found else None
        return {
            **request_fields(recorded.record),
            "is_stored": is_stored(recorded.record) or recorded.cause == SCHEDULE,
            "state": recorded.state.state,
            "stopped_by": recorded.state.stopped_by,
            "unverified": recorded.unverified,
            "cause": recorded.cause,
            "counts": {str(state): count for state, count in run.counts().items()},
            "results": [node_fields(node) for _, node in sorted(run.nodes.items())],
            "undoable": offered_nodes(recorded, run),
            "rollout": await self._rollout(rollout, recorded) if rollout else None,
        }

    async def _rollout(self, rollout: RolloutState, recorded: Recorded) -> dict[str, Any]:
        """Return a rollout, and the rollout servers that could drive it."""
        servers = [] if rollout.phase.is_over else await read_servers(self._fleet)
        names = [f"{server.operator} on {server.host}" for server in servers]
        return {**rollout_fields(rollout, recorded, self._fleet), "servers": names}

    async def _events(self, request: web.Request) -> web.Response:
        """Return the events of a node's resources in a run."""
        recorded = await find_run(self._fleet, run_word(request))
        events = await read_session_events(self._fleet, recorded.record.run, request.match_info["node"])
        return answer({"events": [event_fields(event) for event in events]})

    async def _origin(self, request: web.Request) -> web.Response:
        """`?resource=TYPE#NAME`: return the origin of a resource's event: run, signatures, manifest, data and diff."""
        resource = request.query.get("resource", "")
        async with self._work.place(sender_of(request).on_record):
            recorded = await find_run(self._fleet, run_word(request))
            session = await read_session(self._fleet, request.match_info["node"], recorded.record.run)
        if session is None:
            raise NotFoundError(
                f"{short_id(recorded.record.run)}: the stream no longer has events of this node"
            )
        return answer(origin_fields(recorded, session, resource))

    async def _diffs(self, request: web.Request) -> web.Response:
        """Return the changes that a run made or planned. Each distinct diff is returned once, with its nodes."""
        word = run_word(request)
        async with self._work.place(sender_of(request).on_record):
            return answer(await self._all_diffs.give(word, lambda: self._read_diffs(word)))

    async def _read_diffs(self, word: str) -> dict[str, Any]:
        recorded = await find_run(self._fleet, word)
        events, is_cut = await read_run_events(self._fleet, recorded.record.run, EVENTS_COMPARED)
        groups = await asyncio.to_thread(group_diffs, events)
        return {
            "groups": [diff_fields(event, nodes) for event, nodes in groups[:DIFFS_SHOWN]],
            "left_out": max(0, len(groups) - DIFFS_SHOWN),
            "is_cut": is_cut,
            "is_asked": bool(recorded.record.request.get("diff")),
        }


def run_word(request: web.Request, name: str = "run") -> str:
    """
    Return the ID of a run in the path of a request.

    Raises:
        UsageError: The text cannot be the ID of a run.
    """
    return check_word(request.match_info[name])


def check_word(word: str) -> str:
    """
    Return the text if it is the ID of a run, or the beginning of an ID.

    Raises:
        UsageError: The text cannot be the ID of a run.
    """
    if not (word.isascii() and word.isalnum()):
        raise UsageError("not the id of a run")
    return word


def request_fields(record: RunRecord) -> dict[str, Any]:
    """Return the fields of a run's request, and whether it can be repeated."""
    return run_fields(record) | {
        "retry_of": record.retry_of,
        "user": record.user,
        "undo": str(record.request.get("undo") or "") if record.action == UNDO else "",
        "is_stored": is_stored(record),
    }


def is_stored(record: RunRecord) -> bool:
    """Whether the manifest is stored. A stored manifest can be sent again without a file."""
    part = record.request.get("part")
    content = part if isinstance(part, dict) else record.request
    return bool(content.get("bundle") or record.request.get("undo"))


def node_fields(node: NodeRun) -> dict[str, Any]:
    """Return the state of a node in a run, with its failures."""
    summary = node.summary
    fields: dict[str, Any] = {
        "node": node.node,
        "state": str(node.state),
        "reason": node.reason,
        "code": node.code,
    }
    if node.joined:
        fields["joined"] = True
    if summary is not None:
        fields |= {
            "failed": summary.failed,
            "changed_count": summary.changed_resources,
            "failed_count": summary.failed_resources,
            "total_count": summary.total_resources,
            "ended": summary.end_time,
            "seconds": summary.total_duration / 1e9,
        }
    return fields


def origin_fields(recorded: Recorded, session: PastSession, resource: str) -> dict[str, Any]:
    """Return the origin of a resource's event. `signer` and `unverified` are "" in a fleet without signatures."""
    start = session.start
    return {
        **request_fields(recorded.record),
        "cause": recorded.cause,
        "origin": recorded.origin,
        "is_on_record": recorded.is_on_record,
        "signer": signer_of(recorded),
        "unverified": recorded.unverified,
        "verdict": session.verdict,
        "manifest": session.manifest,
        "digest": start.digest if start else "",
        "data": {mask_url(url): number for url, number in start.data_revisions.items()} if start else {},
        "may_be_undone": session.applies,
        "events": [event_fields(one) for one in session.events if is_of_resource(one, resource)],
    }


def is_of_resource(event: TransactionEvent, resource: str) -> bool:
    """Whether the event is about a resource. The given name may be truncated, as on the pages of events."""
    return resource_name(event) == resource[:RESOURCE_CHARACTERS]


def event_fields(event: TransactionEvent) -> dict[str, Any]:
    """Return the fields of a resource's event, without the values of properties. These are in the run's manifest."""
    return {
        "resource": f"{event.type}#{event.name}",
        "outcome": str(event.outcome),
        "time": event.timestamp,
        "seconds": event.duration / 1e9,
        "error": event.error,
        "output": event.output,
        "noop_message": noop_words(event),
        "corrective": event.corrective,
        "parent": event.parent,
        "triggered_by": event.triggered_by,
        "diff": event.diff,
    }


def diff_fields(event: TransactionEvent, nodes: list[str]) -> dict[str, Any]:
    """Return the diff of a resource, and the nodes with the same diff."""
    return {
        "resource": f"{event.type}#{event.name}",
        "parent": event.parent,
        "noop": event.noop,
        "failed": event.failed,
        "is_cut": "diff" in event.cut,
        "diff": event.diff,
        "nodes": nodes,
    }


def rollout_fields(state: RolloutState, recorded: Recorded, fleet: Fleet) -> dict[str, Any]:
    """Return the phase and the driver of a rollout, and its waves with their nodes and limits."""
    waves, begin = [], 0
    for wave in state.plan.waves:
        waves.append(
            {
                "name": wave.name,
                "nodes": recorded.nodes[begin : begin + wave.nodes],
                "slots": wave.slots,
                "bake_s": wave.bake_s,
                "gate": wave.gate,
                "limits": limits(wave.budgets),
            }
        )
        begin += wave.nodes
    lease = state.lease
    is_driven = lease is not None and lease.until > fleet.clock.now()
    return {
        "phase": str(state.phase),
        "line": rollout_line(state),
        "wave": state.wave,
        "waves": waves,
        "asked": state.asked + len(state.returned),
        "total": state.plan.total,
        "limits": limits(state.plan.budgets),
        "reason": state.reason,
        "by": state.by,
        "bake_until": state.bake_until,
        "driver": f"{lease.operator} on {lease.host}" if lease and is_driven else "",
        "is_detached": state.is_detached,
    }
