"""The API for a node's history, its data, and its assigned facts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from ccm_agent.model.errors import NotFoundError, UsageError
from ccm_agent.model.secret import MASK
from ccm_ctl.dashboard.fleet_pages import time_of
from ccm_ctl.dashboard.fleet_state import FleetState
from ccm_ctl.dashboard.middleware import answer, sender_of
from ccm_ctl.dashboard.work_limiter import WorkLimiter
from ccm_ctl.fleet.data.document_history import read_facts_history
from ccm_ctl.fleet.data.hiera_explain import (
    DEFAULT_DATA,
    PREFIX,
    explain_value,
    layer_fields,
    list_keys,
    list_sources,
    masked,
)
from ccm_ctl.fleet.nodes.node_past import PastManifest, PastSession, find_states, read_past
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.stream_runs import find_cause

DOCUMENTS = 10
KEY_CHARACTERS = 500
SESSIONS_SHOWN = 500
LOOK_BACK = timedelta(days=30)
"""The period for which sessions are listed. For the state at a given time, the stream is read from its beginning."""


class NodePastPages:
    """The API for these parts of a node's page. Reading them is expensive, so only a few are read at the same time."""

    def __init__(self, fleet: Fleet, state: FleetState) -> None:
        self._fleet = fleet
        self._state = state
        self._work = WorkLimiter(of_one_user=6, in_all=24)  # the page requests several of them together

    def add_to(self, application: web.Application) -> None:
        """Add the routes."""
        application.router.add_get("/api/nodes/{name}/past", self._past)
        application.router.add_get("/api/nodes/{name}/state", self._at)
        application.router.add_get("/api/nodes/{name}/data", self._data)
        application.router.add_get("/api/nodes/{name}/fact-history", self._facts)

    async def _past(self, request: web.Request) -> web.Response:
        """Return the sessions with changes or failures, newest first, and the time of the oldest event in the stream."""
        name = await self._name(request)
        now = self._fleet.clock.now()
        async with self._work.place(sender_of(request).on_record):
            past = await read_past(self._fleet, name, now - LOOK_BACK)
        sessions = [one for one in past.sessions if not one.is_quiet and not one.is_empty]
        said = {
            "begins": past.begins,
            "now": now,
            "sessions": [session_fields(one) for one in reversed(sessions[-SESSIONS_SHOWN:])],
        }
        return answer(said)

    async def _at(self, request: web.Request) -> web.Response:
        """`?at=SECONDS`: return the state of each resource of the node at a time, like `ccmctl state --at`."""
        name, moment = await self._name(request), time_of(request, "at")
        async with self._work.place(sender_of(request).on_record):
            past = await read_past(self._fleet, name, until=moment)
        states = find_states(past)
        return answer(
            {
                "begins": past.begins,
                "manifests": [manifest_fields(manifest, states[manifest]) for manifest in sorted(states)],
            }
        )

    async def _data(self, request: web.Request) -> web.Response:
        """
        `?data=URL&key=KEY`: return the origin of a value, like `ccmctl data explain`. Without a key, return the existing keys.

        Secret values and all values of protected documents are masked. The default of `data` is the document `common`.
        """
        name = await self._name(request)
        key = request.query.get("key", "").strip()
        urls = request.query.getall("data", [])[:DOCUMENTS] or [DEFAULT_DATA]
        if len(key) > KEY_CHARACTERS or (key and not all(key.split("."))):
            raise UsageError("not a key; write it like port or tls.cert")
        async with self._work.place(sender_of(request).on_record):
            if not key:
                sources = await list_sources(self._fleet, name)
                return answer({"sources": sources, "keys": await self._keys(name, urls)})
            explained = await explain_value(self._fleet, key, name, urls, {})
            is_protected = [await self._fleet.data.is_kept_apart(url.removeprefix(PREFIX)) for url in urls]
        path = ".".join(explained.key)

        def shown(value: object) -> object:
            return MASK if any(is_protected) else masked(path, value, explained.secret)

        return answer(
            {
                "key": path,
                "is_found": explained.is_found,
                "value": shown(explained.value),
                "layers": layer_fields(explained, shown),
                "broken": explained.broken,
                "warnings": explained.warnings,
            }
        )

    async def _keys(self, name: str, urls: list[str]) -> list[str]:
        try:
            return await list_keys(self._fleet, name, urls)
        except NotFoundError:
            return []  # no data has been stored

    async def _facts(self, request: web.Request) -> web.Response:
        """Return the stored revisions of the assigned facts, newest first. `facts` is null for a removal."""
        name = await self._name(request)
        try:
            kept = await read_facts_history(self._fleet, name)
        except NotFoundError:
            kept = []
        revisions = [
            {
                "revision": one.revision,
                "written_by": one.written_by,
                "time": one.time,
                "message": one.message,
                "facts": one.body if isinstance(one.body, dict) else None,
                "unverified": one.unverified,
            }
            for one in reversed(kept)
        ]
        return answer({"revisions": revisions})

    async def _name(self, request: web.Request) -> str:
        overview = await self._state.current()
        return overview.inventory.need(request.match_info["name"]).name


def session_fields(session: PastSession) -> dict[str, Any]:
    """Return the fields of a session of a node, with the operator or event that started it."""
    start = session.start
    events = [event for event in session.events if event.changed or event.failed]
    return {
        "run": session.run,
        "time": session.time,
        "until": _ended(session),
        "manifest": session.manifest,
        "state": session.state,
        "cause": find_cause(start) if start else "",
        "origin": start.origin if start else "",
        "requester": start.requester if start else "",
        "message": start.message if start else "",
        "is_plan": not session.applies,
        "changed": [f"{event.type}#{event.name}" for event in events if event.changed],
        "failed": [f"{event.type}#{event.name}" for event in events if event.failed],
        "corrective": any(event.corrective for event in events),
    }


def _ended(session: PastSession) -> datetime:
    """Return the session's end by the node's clock, but not before the broker stored the session's first event."""
    end = session.summary.end_time if session.summary else None
    try:
        return max(session.time, end.astimezone(UTC)) if end else session.time
    except OverflowError:
        return session.time


def manifest_fields(name: str, manifest: PastManifest) -> dict[str, Any]:
    """Return the states of the resources of one manifest."""
    return {
        "name": name,
        "session": session_fields(manifest.session),
        "silent": manifest.silent,
        "resources": [
            {
                "resource": resource,
                "ensure": past.event.final_ensure,
                "outcome": str(past.event.outcome),
                "error": past.event.error,
                "time": past.session.time,
                "run": past.session.run,
                "corrective": bool(past.event.corrective),
                "changed": past.changed.time if past.changed else None,
                "changed_run": past.changed.run if past.changed else "",
            }
            for resource, past in sorted(manifest.resources.items())
        ],
    }
