"""The API for the page of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccm_ctl.dashboard.middleware import answer
from ccm_ctl.fleet.nodes.inventory import read_facts
from ccm_ctl.fleet.nodes.node_diagnostics import read_evidence
from ccm_ctl.fleet.nodes.node_resources import read_resources

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from ccm_ctl.dashboard.fleet_state import FleetState
    from ccm_ctl.fleet.nodes.node_diagnostics import Evidence
    from ccm_ctl.fleet.ports import Fleet

    Explain = Callable[[Evidence], dict[str, Any]]


class NodePages:
    """The API for the page of a node."""

    def __init__(self, fleet: Fleet, state: FleetState, explain: Explain) -> None:
        self._fleet = fleet
        self._state = state
        self._explain = explain

    def add_to(self, application: web.Application) -> None:
        """Add the routes."""
        application.router.add_get("/api/nodes/{name}", self._facts)
        application.router.add_get("/api/nodes/{name}/why", self._why)
        application.router.add_get("/api/nodes/{name}/resources", self._resources)

    async def _facts(self, request: web.Request) -> web.Response:
        """Return all facts of a node, and those that an operator assigned."""
        overview = await self._state.current()
        node = overview.inventory.need(request.match_info["name"])
        await read_facts(self._fleet, overview.inventory, [node.name])
        return answer({"facts": node.facts, "assigned": node.assigned})

    async def _why(self, request: web.Request) -> web.Response:
        """Return the explanation of a node's state. The agent is also queried if it is online."""
        overview = await self._state.current()
        name = overview.inventory.need(request.match_info["name"]).name
        return answer(self._explain(await read_evidence(self._fleet, name)))

    async def _resources(self, request: web.Request) -> web.Response:
        """Return the resources of a node, with the last event of each."""
        overview = await self._state.current()
        name = overview.inventory.need(request.match_info["name"]).name
        return answer({"resources": await read_resources(self._fleet, name)})
