"""Read the whole fleet at one moment: the nodes, the assignments, and the state of each node for each assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_ctl.fleet.assignments.assignments import Assignments, read_assignments
from ccm_ctl.fleet.assignments.convergence import SAID_GOODBYE_MOST, NodeStanding, judge, read_away
from ccm_ctl.fleet.assignments.followed_data import FollowedData, followed_keys
from ccm_ctl.fleet.nodes.discovery import lacking_facts, select
from ccm_ctl.fleet.nodes.inventory import read_facts, read_inventory
from ccm_ctl.fleet.nodes.node_condition import AgentAnswer, NodeCondition, decide_condition
from ccm_ctl.fleet.nodes.nodes import Inventory
from ccm_ctl.fleet.trust.node_state import mark_unverified

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ccm_ctl.fleet.nodes.discovery import TargetSpec
    from ccm_ctl.fleet.nodes.nodes import Node
    from ccm_ctl.fleet.ports import Fleet


class FleetOverview(Struct, frozen=True, kw_only=True):
    """
    The fleet at one moment.

    Attributes:
        time: The moment.
        inventory: The nodes.
        assignments: The assignments.
        standings: The state of a node for the assignment that applies to it, by node and by the assignment's name.
        conditions: The state of each node.
    """

    time: datetime
    inventory: Inventory
    assignments: Assignments
    standings: dict[str, dict[str, NodeStanding]]
    conditions: dict[str, NodeCondition]


async def read_overview(
    fleet: Fleet,
    data: FollowedData | None = None,
    answer_of: Callable[[Node], AgentAnswer | None] = lambda _: None,
) -> FleetOverview:
    """
    Return the current state of the fleet from the broker. Unsigned data of nodes are marked.

    Args:
        fleet: The bus.
        data: The cached revisions of followed documents, for a caller that reads repeatedly. None: no cache.
        answer_of: Returns the answer of a node's agent, if it was queried (`SilentNodes`).

    Raises:
        BusError: The broker does not answer.
    """
    assignments = await read_assignments(fleet)
    inventory = await read_inventory(fleet)
    await assignments.fill_in(fleet, inventory)
    nodes = list(inventory.nodes.values())
    await mark_unverified(fleet, nodes)
    standings = await judge_nodes(fleet, nodes, assignments, data)
    now = fleet.clock.now()
    conditions = {
        node.name: decide_condition(node, standings[node.name], now, answer_of(node)) for node in nodes
    }
    return FleetOverview(
        time=now, inventory=inventory, assignments=assignments, standings=standings, conditions=conditions
    )


async def judge_nodes(
    fleet: Fleet,
    nodes: list[Node],
    assignments: Assignments,
    data: FollowedData | None = None,
    goodbyes_most: int = SAID_GOODBYE_MOST,
) -> dict[str, dict[str, NodeStanding]]:
    """Return the states of these nodes for the assignments that apply to them, by node and by name."""
    newest = await (data or FollowedData(fleet.data)).newest(followed_keys(nodes, assignments))
    away = await read_away(fleet, (node for node in nodes if not node.is_present), goodbyes_most)
    now = fleet.clock.now()
    return {
        node.name: {
            name: judge(node, standing, now, away.get(node.name), newest)
            for name, standing in assignments.of_node(node).items()
        }
        for node in nodes
    }


async def read_conditions(fleet: Fleet, inventory: Inventory, nodes: list[Node]) -> dict[str, NodeCondition]:
    """Return the states of these nodes of an inventory, by name."""
    return await (await ConditionReader.open(fleet)).read(inventory, nodes)


class ConditionReader:
    """Reads the states of nodes in parts. For the first offline nodes, this includes the time since which they are offline."""

    def __init__(self, fleet: Fleet, assignments: Assignments) -> None:
        """Store the fleet and its assignments."""
        self._fleet = fleet
        self._assignments = assignments
        self._data = FollowedData(fleet.data)
        self._goodbyes_left = SAID_GOODBYE_MOST

    @classmethod
    async def open(cls, fleet: Fleet) -> ConditionReader:
        """
        Read the assignments.

        Raises:
            BusError: The broker does not answer.
        """
        return cls(fleet, await read_assignments(fleet))

    async def read(self, inventory: Inventory, nodes: list[Node]) -> dict[str, NodeCondition]:
        """Return the states of these nodes of an inventory, by name."""
        await self._assignments.fill_in(self._fleet, inventory)
        standings = await judge_nodes(self._fleet, nodes, self._assignments, self._data, self._goodbyes_left)
        absent = sum(not node.is_present and node.record is not None for node in nodes)
        self._goodbyes_left = max(self._goodbyes_left - absent, 0)
        now = self._fleet.clock.now()
        return {node.name: decide_condition(node, standings[node.name], now) for node in nodes}


async def choose_nodes(fleet: Fleet, overview: FleetOverview, spec: TargetSpec) -> list[str]:
    """
    Return the target nodes of an overview. Facts that selectors need are read and stored in the nodes.

    Raises:
        SelectorError: A selector does not parse.
        NoTargetError: A target matches no node.
        BusError: The broker does not answer.
    """
    from ccm_agent.templates.selector import parse_targets
    from ccm_ctl.fleet.nodes.groups import expand_groups

    spec = msgspec.structs.replace(spec, targets=await expand_groups(fleet, spec.targets))
    selectors = parse_targets(spec.targets)
    inventory = overview.inventory
    lacking = [
        name for name in lacking_facts(inventory, selectors, spec.where) if not inventory.nodes[name].gathered
    ]
    await read_facts(fleet, inventory, lacking)
    return select(inventory, spec, selectors).nodes


async def read_all_facts(fleet: Fleet, overview: FleetOverview) -> None:
    """Read the gathered facts of the nodes of an overview, except those that were already read."""
    nodes = overview.inventory.nodes
    await read_facts(fleet, overview.inventory, [name for name, node in nodes.items() if not node.gathered])
