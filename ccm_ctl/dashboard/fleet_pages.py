"""What the pages of the fleet ask for: nodes, their facts, and the newest events."""

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
"""As a meaning in the address: what changed or failed."""


class FleetPages:
    """The interface of the Fleet page."""

    def __init__(self, fleet: Fleet, feed: EventFeed, state: FleetState) -> None:
        self._fleet = fleet
        self._feed = feed
        self._state = state

    def add_to(self, application: web.Application) -> None:
        """Serve it."""
        application.router.add_get("/api/fleet", self._nodes)
        application.router.add_get("/api/facts", self._facts)
        application.router.add_get("/api/events", self._events)

    async def _nodes(self, request: web.Request) -> web.Response:
        """`?since=VERSION&targets=SELECTOR&where=EXPRESSION`: what changed after a version."""
        spec = TargetSpec(
            targets=tuple(text for text in request.query.getall("targets", [])[:FILTERS] if text.strip()),
            where=request.query.get("where", "").strip(),
        )
        return answer(await self._state.changes(number_of(request, "since"), spec))

    async def _facts(self, request: web.Request) -> web.Response:
        """`?path=os.name`: a fact of all nodes that have it, by node; for facts that are not in the rows."""
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
        `?from=SECONDS&to=SECONDS&text=TEXT&node=PATTERN&kind=KIND&meaning=MEANING`: the newest events that fit.

        The time line of the last hour, of all events, comes with them.
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
    """The filter in the address; `*` and `?` in a node's name are wildcards."""
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
    """Something changed or failed, or the event is not genuine: not a start, nor the end of a run that changed nothing."""
    return bool(frame.verdict) or (frame.kind != "start" and frame.meaning in ("change", "bad"))


def number_of(request: web.Request, name: str) -> int:
    """A number in the address; 0 when it is missing."""
    text = request.query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def time_of(request: web.Request, name: str) -> datetime | None:
    """
    A time in the address, in seconds since 1970; None when it is missing.

    Raises:
        UsageError: It is not one.
    """
    text = request.query.get(name, "")
    if not text:
        return None
    try:
        return datetime.fromtimestamp(float(text), UTC)
    except (ValueError, OverflowError, OSError) as err:
        raise UsageError(f"{name}: not a number of seconds since 1970") from err
