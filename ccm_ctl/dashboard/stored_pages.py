"""The API for the pages of stored objects: assignments, data, schedules, registrations and slots."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING, Any

import msgspec

from ccm_agent.clikit.text import safe
from ccm_agent.model.errors import BusError, DocumentError, NotFoundError, ProtocolError
from ccm_agent.model.line_diff import diff_lines
from ccm_agent.model.resource_diff import DIFF_LIMIT_BYTES, FILES_LISTED, FileDiff, ResourceDiff, cut
from ccm_ctl.dashboard.middleware import answer, sender_of
from ccm_ctl.dashboard.work_limiter import WorkLimiter
from ccm_ctl.fleet.assignments.assignment_history import find_past
from ccm_ctl.fleet.assignments.assignments import format_scope
from ccm_ctl.fleet.assignments.revision_changes import (
    DIFF_LINES,
    compare_revisions,
    find_change,
    find_rollback,
)
from ccm_ctl.fleet.data.document_changes import find_changes
from ccm_ctl.fleet.data.document_history import find_revision, read_history
from ccm_ctl.fleet.data.documents import Documents
from ccm_ctl.fleet.nodes.registered_services import describe_service
from ccm_ctl.fleet.nodes.slot_holders import find_locks, read_slots
from ccm_ctl.fleet.runs.find_run import read_schedules
from ccm_ctl.fleet.trust.node_state import judge_services

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from ccm_agent.model.wire import Assignment
    from ccm_ctl.dashboard.fleet_state import FleetState
    from ccm_ctl.fleet.assignments.assignment_history import Past
    from ccm_ctl.fleet.assignments.assignments import Standing
    from ccm_ctl.fleet.assignments.revision_changes import TextChange
    from ccm_ctl.fleet.data.documents import StoredDocument
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.schedules.stored_schedule import Schedule

DATA = "CCM_DATA"
CHANGES = 500
"""The maximum number of changed values of one revision in a response."""


class StoredPages:
    """
    The API for these pages. It never serves the texts of documents, because they can contain secrets. For bundles, it serves the
    changed lines in the form that `ccmctl assign` shows.
    """

    def __init__(self, fleet: Fleet, state: FleetState) -> None:
        self._fleet = fleet
        self._state = state
        self._work = WorkLimiter()

    def add_to(self, application: web.Application) -> None:
        """Add the routes."""
        application.router.add_get("/api/assignments", self._assignments)
        application.router.add_get("/api/assignments/{name}", self._assignment)
        application.router.add_get("/api/data", self._data)
        application.router.add_get("/api/data/{key:.+}", self._document)
        application.router.add_get("/api/schedules", self._schedules)
        application.router.add_get("/api/registrations", self._registrations)
        application.router.add_get("/api/slots", self._slots)

    async def _assignments(self, _request: web.Request) -> web.Response:
        """Return all assignments, each with the number of nodes per state."""
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
        """
        `?scope=SCOPE`: return the stored revisions of an assignment, newest first. A removal has only a time.

        With `&changes=REVISION`, return the lines that a revision changed. With `&rollback=REVISION`, return the lines that a
        rollback to it would change.
        """
        overview = await self._state.current()
        name, scope = request.match_info["name"], request.query.get("scope", "")
        past = await find_past(self._fleet, overview.assignments, name, scope)
        if "changes" in request.query or "rollback" in request.query:
            async with self._work.place(sender_of(request).name):
                return answer(await self._lines(past, request))
        revisions = [
            assignment_fields(one.standing) | {"unverified": one.unverified}
            if one.standing is not None
            else {"time": one.time, "removed": True}
            for one in reversed(past.revisions)
        ]
        return answer({"revisions": revisions})

    async def _lines(self, past: Past, request: web.Request) -> dict[str, Any]:
        is_rollback = "rollback" in request.query
        number = parse_revision(request.query["rollback" if is_rollback else "changes"])
        try:
            pair = (
                await find_rollback(self._fleet, past, number) if is_rollback else find_change(past, number)
            )
            changes = await compare_revisions(self._fleet, pair)
        except (NotFoundError, ProtocolError) as err:  # a bundle is missing, or a revision is not verified
            return {
                "before": 0,
                "unverified": [],
                "diff": ResourceDiff(),
                "problem": err.message,
                "command": "",
            }
        return {
            "before": pair.before,
            "unverified": pair.unverified,
            "diff": await asyncio.to_thread(diff_texts, changes),
            "problem": "",
            "command": rollback_command(pair.new, number) if is_rollback else "",
        }

    async def _data(self, _request: web.Request) -> web.Response:
        """Return the documents of Hiera data with their last author, time and reason."""
        documents = await Documents(self._fleet, self._fleet.data, DATA).read_all()
        return answer({"documents": [document_fields(one) for one in documents]})

    async def _document(self, request: web.Request) -> web.Response:
        """
        Return the stored revisions of a document, newest first. With `?changes=REVISION`, return the changes of that revision.
        """
        key = request.match_info["key"]
        kept = await read_history(self._fleet, self._fleet.data, DATA, key, "document", "ccmctl data ls")
        if "changes" in request.query:
            return await self._changes(kept, request)
        return answer({"revisions": [document_fields(one) for one in reversed(kept)]})

    async def _changes(self, kept: list[StoredDocument], request: web.Request) -> web.Response:
        new = find_revision(kept, parse_revision(request.query["changes"]))
        older = [one for one in kept if one.revision < new.revision]
        texts = [one.body if isinstance(one.body, str) else None for one in (*older[-1:], new)]
        problem, changes = "", []
        async with self._work.place(sender_of(request).name):
            is_protected = await self._fleet.data.is_kept_apart(new.key)
            try:
                before = texts[0] if older else None
                changes = await asyncio.to_thread(find_changes, before, texts[-1], is_protected=is_protected)
            except DocumentError:  # the error could contain the text
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
        """Return the schedules with their last and next time."""
        now = self._fleet.clock.now()
        found = await read_schedules(self._fleet)
        return answer({"schedules": [schedule_fields(one) | {"next": one.next_after(now)} for one in found]})

    async def _registrations(self, _request: web.Request) -> web.Response:
        """Return the services that nodes have registered, including stale ones."""
        if self._fleet.services is None:
            return answer({"registrations": [], "problem": "the broker is unavailable"})
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
        """Return the holders of slots, the waiting nodes, and the locks on nodes."""
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


def parse_revision(text: str) -> int:
    """Return the number of a revision from an address. An invalid number results in 0, which is not a revision."""
    return int(text) if text.isdecimal() and len(text) < 20 else 0


def rollback_command(assignment: Assignment, number: int) -> str:
    """Return the shell command for a rollback."""
    scope = shlex.quote(format_scope(assignment.scope))
    return f"ccmctl rollback {shlex.quote(assignment.name)} --to {number} --scope {scope}"


def diff_texts(changes: Sequence[TextChange]) -> ResourceDiff:
    """Return the changed lines in the form that `ccmctl assign` shows, at most DIFF_LINES in total. Blocking."""
    files, lines_left, bytes_left = [], DIFF_LINES, DIFF_LIMIT_BYTES
    for one in changes[:FILES_LISTED]:
        lines = list(diff_lines(safe(one.before).splitlines(), safe(one.after).splitlines()))
        shown = lines[:lines_left]
        file = cut(
            FileDiff(
                path=one.path,
                action=one.action,
                text="".join(f"{line}\n" for line in shown),
                added=sum(line.startswith("+") for line in lines),
                removed=sum(line.startswith("-") for line in lines),
                left_out=len(lines) - len(shown),
                why="" if lines else "only masked values differ",
            ),
            bytes_left,
        )
        files.append(file)
        lines_left -= len(shown)
        bytes_left -= len(file.text.encode())
    return ResourceDiff(files=files, files_left_out=max(0, len(changes) - FILES_LISTED))


def assignment_fields(standing: Standing) -> dict[str, Any]:
    """Return the fields of an assignment, or of an earlier revision."""
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
    """Return the fields of a document's revision, without its text."""
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
    """Return the fields of a schedule and its request."""
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
