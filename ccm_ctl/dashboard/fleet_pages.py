"""The API for the pages of the fleet. It serves nodes, their facts, and the newest events."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from fnmatch import fnmatchcase

from aiohttp import web

from ccm_agent.model.errors import UsageError
from ccm_ctl.dashboard.feed import BUCKET_S, MEANINGS, TIMELINE_S, EventFeed, EventFrame
from ccm_ctl.dashboard.fleet_state import FleetState
from ccm_ctl.dashboard.middleware import answer
from ccm_ctl.fleet.nodes.discovery import TargetSpec
from ccm_ctl.fleet.nodes.overview import read_all_facts
from ccm_ctl.fleet.ports import Fleet

EVENTS_SHOWN = 500
FACT_COLUMNS = 8
FILTERS = 20
NOTABLE = "notable"
"""The value of `meaning` in the address that selects only events with changes or failures."""


class FleetPages:
    """The API for the Fleet page."""

    def __init__(self, fleet: Fleet, feed: EventFeed, state: FleetState) -> None:
        self._fleet = fleet
        self._feed = feed
        self._state = state

    def add_to(self, application: web.Application) -> None:
        """Add the routes."""
        application.router.add_get("/api/fleet", self._nodes)
        application.router.add_get("/api/facts", self._facts)
        application.router.add_get("/api/events", self._events)

    async def _nodes(self, request: web.Request) -> web.Response:
        """`?since=VERSION&targets=SELECTOR&where=EXPRESSION`: return changes after a version."""
        spec = TargetSpec(
            targets=tuple(text for text in request.query.getall("targets", [])[:FILTERS] if text.strip()),
            where=request.query.get("where", "").strip(),
        )
        return answer(await self._state.changes(number_of(request, "since"), spec))

    async def _facts(self, request: web.Request) -> web.Response:
        """`?path=os.name`: return the values of a fact that is not in the rows, by node."""
        paths = request.query.getall("path", [])[:FACT_COLUMNS]
        overview = await self._state.current()
        await read_all_facts(self._fleet, overview)
        found = {
            name: {path: value for path in paths if (value := node.fact(path)) is not None}
            for name, node in overview.inventory.nodes.items()
        }
        return answer({name: values for name, values in found.items() if values})

    async def _events(self, request: web.Request) -> web.Response:
        """
        `?from=SECONDS&to=SECONDS&text=TEXT&node=PATTERN&kind=KIND&meaning=MEANING`: return the newest matching events.

        The response includes the timeline of the last hour, which covers all events.
        """
        last = self._feed.last
        begin, end = time_of(request, "from"), time_of(request, "to")
        found = self._feed.newest(EVENTS_SHOWN, begin, end, event_filter(request))
        return answer(
            {
                "last": last,
                "events": found,
                "timeline": self._feed.timeline(),
                "meanings": MEANINGS,
                "bucket_s": BUCKET_S,
                "timeline_s": TIMELINE_S,
                "now": self._fleet.clock.now(),
            }
        )


def event_filter(request: web.Request) -> Callable[[EventFrame], bool]:
    """Return the filter in the address. `*` and `?` in a node's name are wildcards."""
    text, node, kind, meaning = (request.query.get(name, "") for name in ("text", "node", "kind", "meaning"))
    text = text.lower()

    def fits(frame: EventFrame) -> bool:
        return (
            (not node or fnmatchcase(frame.node, node))
            and (not kind or frame.kind == kind)
            and (not meaning or frame.meaning == meaning or (meaning == NOTABLE and is_notable(frame)))
            and (not text or text in frame.text.lower() or text in frame.resource.lower())
        )

    return fits


def is_notable(frame: EventFrame) -> bool:
    """
    Whether an event is a change or failure, or is not genuine. Starts of runs, and ends of runs without changes, are not notable.
    """
    return bool(frame.verdict) or (frame.kind != "start" and frame.meaning in ("change", "bad"))


def number_of(request: web.Request, name: str) -> int:
    """Return a number from the address, or 0 if it is missing."""
    text = request.query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def time_of(request: web.Request, name: str) -> datetime | None:
    """
    Return a time from the address, where it is in seconds since 1970, or None if it is missing.

    Raises:
        UsageError: The value is not a time.
    """
    text = request.query.get(name, "")
    if not text:
        return None
    try:
        return datetime.fromtimestamp(float(text), UTC)
    except (ValueError, OverflowError, OSError) as err:
        raise UsageError(f"{name}: not a number of seconds since 1970") from err
