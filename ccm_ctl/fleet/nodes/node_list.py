"""
Read the nodes of a list with their states in parts. The first rows appear quickly, and memory for all nodes is not needed.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from ccm_agent.model.ids import natural
from ccm_ctl.fleet.nodes.discovery import resolve
from ccm_ctl.fleet.nodes.inventory import AT_ONCE, node_reader
from ccm_ctl.fleet.nodes.nodes import Inventory
from ccm_ctl.fleet.nodes.overview import ConditionReader
from ccm_ctl.fleet.trust.node_state import judge_listed, make_node_verifier, warn_of_length

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from ccm_ctl.fleet.nodes.discovery import TargetSpec
    from ccm_ctl.fleet.nodes.node_condition import NodeCondition
    from ccm_ctl.fleet.nodes.nodes import Node
    from ccm_ctl.fleet.ports import Fleet

    Read = Callable[[Sequence[str]], Awaitable[Inventory]]


class ListedNode(Struct, frozen=True, gc=False):
    """A node and its state."""

    node: Node
    condition: NodeCondition


class NodeList:
    """
    Nodes in natural order.

    Attributes:
        names: Their names.
    """

    def __init__(self, names: Sequence[str], read: Read, conditions: ConditionReader) -> None:
        """
        Store the readers.

        Args:
            names: Their names, in natural order.
            read: Reads some of them.
            conditions: Reads their states.
        """
        self.names = names
        self._read = read
        self._conditions = conditions

    async def parts(self) -> AsyncIterator[list[ListedNode]]:
        """
        Yield all nodes in parts of AT_ONCE. Earlier parts are released.

        Raises:
            BusError: The broker does not answer.
        """
        for begin in range(0, len(self.names), AT_ONCE):
            inventory = await self._read(self.names[begin : begin + AT_ONCE])
            nodes = list(inventory.nodes.values())
            conditions = await self._conditions.read(inventory, nodes)
            yield [ListedNode(node, conditions[node.name]) for node in nodes]
            await asyncio.sleep(0)


@asynccontextmanager
async def open_list(fleet: Fleet, wish: TargetSpec) -> AsyncIterator[NodeList]:
    """
    Return the nodes that the operator selected, or all nodes. Unsigned data of nodes are marked.

    Raises:
        SelectorError: A selector does not parse.
        NoTargetError: A target matches no node.
        BusError: The broker does not answer.
    """
    if not wish.is_empty:
        inventory, resolved = await resolve(fleet, wish)

        async def select(names: Sequence[str]) -> Inventory:
            return Inventory({name: inventory.nodes[name] for name in names})

        yield NodeList(sorted(resolved.nodes, key=natural), select, await ConditionReader.open(fleet))
        return
    async with node_reader(fleet) as reader:
        count = len(reader.names)
        verifier, conditions = await make_node_verifier(fleet), await ConditionReader.open(fleet)
        warn_of_length(fleet, count)

        async def read_marked(names: Sequence[str]) -> Inventory:
            found = await reader.read(names)
            await judge_listed(verifier, list(found.nodes.values()), count)
            return found

        yield NodeList(reader.names, read_marked, conditions)
