"""What the pages of assignments, data, schedules and registrations ask for: what operators and services have stored."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from ccm_agent.model.errors import BusError, DocumentError
from ccm_ctl.dashboard.middleware import answer, sender_of
from ccm_ctl.dashboard.work_limiter import WorkLimiter
from ccm_ctl.fleet.assignment_history import find_past
from ccm_ctl.fleet.assignments import format_scope
from ccm_ctl.fleet.document_changes import find_changes
from ccm_ctl.fleet.document_history import find_revision, read_history
from ccm_ctl.fleet.documents import Documents
from ccm_ctl.fleet.find_run import read_schedules
from ccm_ctl.fleet.node_state import judge_services
from ccm_ctl.fleet.registered_services import describe_service
from ccm_ctl.fleet.slot_holders import find_locks, read_slots

if TYPE_CHECKING:
    from aiohttp import web

    from ccm_ctl.dashboard.fleet_state import FleetState
    from ccm_ctl.fleet.assignments import Standing
    from ccm_ctl.fleet.documents import StoredDocument
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.stored_schedule import Schedule

DATA = "CCM_DATA"
CHANGES = 500
"""Values that one revision changed that are given."""


class StoredPages:
    """The interface of these pages. It never serves the texts of documents: they can contain secrets, which are masked."""

    def __init__(self, fleet: Fleet, state: FleetState) -> None:
        self._fleet = fleet
        self._state = state
        self._work = WorkLimiter()

    def add_to(self, application: web.Application) -> None:
        """Serve it."""
        application.router.add_get("/api/assignments", self._assignments)
        application.router.add_get("/api/assignments/{name}", self._assignment)
        application.router.add_get("/api/data", self._data)
        application.router.add_get("/api/data/{key:.+}", self._document)
        application.router.add_get("/api/schedules", self._schedules)
        application.router.add_get("/api/registrations", self._registrations)
        application.router.add_get("/api/slots", self._slots)

    async def _assignments(self, _request: web.Request) -> web.Response:
        """All assignments, each with how many of its nodes are in which state."""
        overview = await self._state.current()
        counts: dict[str, dict[str, int]] = {}
        for standings in overview.standings.values():
            for one in standings.values():
                of_key = counts.setdefault(one.wanted.key, {})
                of_key[one.state] = of_key.get(one.state, 0) + 1
        standing = overview.assignments.standing
        return answer(
            {
                "assignments": [
                    assignment_fields(one) | {"counts": counts.get(one.key, {})} for one in standing
                ]
            }
        )

    async def _assignment(self, request: web.Request) -> web.Response:
        """`?scope=SCOPE`: the revisions of an assignment that are kept, newest first; a removal has no fields but its time."""
        overview = await self._state.current()
        name, scope = request.match_info["name"], request.query.get("scope", "")
        past = await find_past(self._fleet, overview.assignments, name, scope)
        revisions = [
            assignment_fields(one.standing) | {"unverified": one.unverified}
            if one.standing is not None
            else {"time": one.time, "removed": True}
            for one in reversed(past.revisions)
        ]
        return answer({"revisions": revisions})

    async def _data(self, _request: web.Request) -> web.Response:
        """The documents of Hiera data: who wrote each last, when and why."""
        documents = await Documents(self._fleet, self._fleet.data, DATA).read_all()
        return answer({"documents": [document_fields(one) for one in documents]})

    async def _document(self, request: web.Request) -> web.Response:
        """The revisions of a document that are kept, newest first; with `?changes=REVISION`, what that revision changed."""
        key = request.match_info["key"]
        kept = await read_history(self._fleet, self._fleet.data, DATA, key, "document", "ccmctl data ls")
        if "changes" in request.query:
            return await self._changes(kept, request)
        return answer({"revisions": [document_fields(one) for one in reversed(kept)]})

    async def _changes(self, kept: list[StoredDocument], request: web.Request) -> web.Response:
        wanted = request.query["changes"]
        new = find_revision(kept, int(wanted) if wanted.isdecimal() and len(wanted) < 20 else 0)
        older = [one for one in kept if one.revision < new.revision]
        texts = [one.body if isinstance(one.body, str) else None for one in (*older[-1:], new)]
        problem, changes = "", []
        async with self._work.place(sender_of(request).name):
            is_protected = await self._fleet.data.is_kept_apart(new.key)
            try:
                before = texts[0] if older else None
                changes = await asyncio.to_thread(find_changes, before, texts[-1], is_protected=is_protected)
            except DocumentError:  # the error could quote the text
                problem = "a revision is not readable YAML; `ccmctl data diff` shows the texts"
        return answer(
            {
                "before": older[-1].revision if older else 0,
                "changes": changes[:CHANGES],
                "left_out": max(0, len(changes) - CHANGES),
                "problem": problem,
            }
        )

    async def _schedules(self, _request: web.Request) -> web.Response:
        """The schedules, with their last and next time."""
        now = self._fleet.clock.now()
        found = await read_schedules(self._fleet)
        return answer({"schedules": [schedule_fields(one) | {"next": one.next_after(now)} for one in found]})

    async def _registrations(self, _request: web.Request) -> web.Response:
        """The services that nodes have registered, and those that are gone and still known."""
        if self._fleet.services is None:
            return answer({"registrations": [], "problem": "the broker cannot be asked"})
        try:
            stored = await self._fleet.services.stored()
        except BusError as err:
            return answer({"registrations": [], "problem": err.message})
        judged = await judge_services(self._fleet, [one for one in stored if not one.is_spoilt])
        found = [
            msgspec.structs.asdict(describe_service(one)) | {"unverified": reason} for one, reason in judged
        ]
        return answer({"registrations": found, "problem": ""})

    async def _slots(self, _request: web.Request) -> web.Response:
        """Who holds slots and who waits, and what is locked on which node."""
        overview = await self._state.current()
        found, problem = [], ""
        try:
            found = await read_slots(self._fleet)
        except BusError as err:
            problem = err.message
        locks = find_locks(overview.inventory, self._fleet.clock.now())
        return answer(
            {
                "slots": [one.fields() for one in found],
                "problem": problem,
                "locks": [
                    {
                        "node": node,
                        "resource": resource,
                        "since": one.since,
                        "until": one.until,
                        "by": one.by,
                        "why": one.why,
                        "unverified": overview.inventory.nodes[node].unverified.get("node", ""),
                    }
                    for node, resource, one in locks
                ],
            }
        )


def assignment_fields(standing: Standing) -> dict[str, Any]:
    """An assignment, or an earlier revision of one."""
    said = standing.assignment
    return {
        "name": standing.name,
        "scope": said.scope,
        "for": format_scope(said.scope),
        "revision": standing.revision,
        "targets": said.targets,
        "where": said.where,
        "manifest": said.manifest,
        "digest": said.bundle.digest,
        "data_revision": said.data_revision,
        "mode": said.mode,
        "interval_s": said.interval_s,
        "written_by": standing.written_by,
        "time": standing.time,
        "message": standing.message,
        "rolled_back_from": said.rolled_back_from,
        "unverified": standing.unverified,
    }


def document_fields(document: StoredDocument) -> dict[str, Any]:
    """A revision of a document, without its text."""
    return {
        "key": document.key,
        "revision": document.revision,
        "written_by": document.written_by,
        "time": document.time,
        "message": document.message,
        "removed": document.body is None,
        "is_plain": document.is_plain,
        "unverified": document.unverified,
    }


def schedule_fields(schedule: Schedule) -> dict[str, Any]:
    """A schedule and what it sends."""
    return {
        "name": schedule.name,
        "action": schedule.protocol.split(".")[-2],
        "manifest": schedule.request.name,
        "targets": schedule.request.targets,
        "where": schedule.request.where,
        "when": schedule.when,
        "zone": schedule.zone,
        "stored": schedule.stored,
        "last": schedule.last,
        "last_run": schedule.last_run,
        "ends": schedule.ends,
        "rollout": str(schedule.rollout.definition) if schedule.rollout is not None else "",
        "unverified": schedule.unverified,
    }
