"""The API for the page of changes. It searches all stored events, using the expressions of `ccmctl events --where`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from aiohttp import web

from ccm_ctl.dashboard.feed import frame_of
from ccm_ctl.dashboard.fleet_pages import EVENTS_SHOWN, event_filter, time_of
from ccm_ctl.dashboard.middleware import answer, sender_of
from ccm_ctl.dashboard.work_limiter import WorkLimiter
from ccm_ctl.fleet.events.event_filter import NAMES, EventFilter
from ccm_ctl.fleet.events.event_search import EventQuery, kind_of, search_events
from ccm_ctl.fleet.events.live_events import LiveEvent
from ccm_ctl.fleet.ports import Fleet

WILDCARDS = frozenset("*?[")


class SearchPages:
    """The API for the page of changes."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._work = WorkLimiter()

    def add_to(self, application: web.Application) -> None:
        """Add the routes."""
        application.router.add_get("/api/search", self._search)

    async def _search(self, request: web.Request) -> web.Response:
        """
        `?where=EXPRESSION&from=SECONDS&to=SECONDS&text=TEXT&node=PATTERN&kind=KIND&meaning=MEANING`: return the newest matching
        events.

        Only a few searches run at the same time.
        """
        where = request.query.get("where", "").strip()
        condition = EventFilter(where) if where else None
        now = self._fleet.clock.now()
        node = request.query.get("node", "")
        query = EventQuery(
            since=time_of(request, "from"),
            until=time_of(request, "to"),
            node=node if node and not WILDCARDS & set(node) else "",
            condition=condition,
            fits=_event_test(request, now),
            most=EVENTS_SHOWN,
        )
        async with self._work.place(sender_of(request).on_record):
            found = await search_events(self._fleet, query)
        said: dict[str, Any] = {
            "events": [frame_of(event, now) for event in found.events],
            "read": found.read,
            "begins": found.begins,
            "is_complete": found.is_complete,
            "trouble": found.trouble,
            "names": NAMES,
        }
        return answer(said)


def _event_test(request: web.Request, now: datetime) -> Callable[[LiveEvent], bool]:
    node, kind = request.query.get("node", ""), request.query.get("kind", "")
    fits = event_filter(request)

    def is_meant(event: LiveEvent) -> bool:
        is_cheaply_meant = (not node or fnmatchcase(event.heard.node, node)) and (
            not kind or kind_of(event.heard) == kind
        )
        return is_cheaply_meant and fits(frame_of(event, now))

    return is_meant
