"""The holders of the fleet's slots, the nodes that wait for them, and the locks on nodes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec import Struct

from ccm_agent.bus.signatures.node_state import find_slot_forgery
from ccm_agent.model.errors import BusDeniedError, BusSetupError
from ccm_agent.model.records.maintenance import ResourceLock
from ccm_agent.model.records.slots import SlotState, decode_entry
from ccm_agent.model.wire import Disabled
from ccm_ctl.fleet.nodes.nodes import Inventory
from ccm_ctl.fleet.ports import Bucket, Fleet
from ccm_ctl.fleet.trust.node_state import make_state_reader

WHOLE_NODE = "all"
"""Used in place of a resource if the whole node is disabled."""


class SlotPlace(Struct, frozen=True, kw_only=True):
    """
    A node that holds or waits for a slot.

    Attributes:
        slot: The name of the slot.
        state: The state that the node wrote.
        position: Its place in the queue, from 1. 0: it holds the slot, or the entry is not valid.
        unverified: The reason why the entry is not from its node. Nodes ignore such an entry. "": it is from its node.
    """

    slot: str
    state: SlotState
    position: int
    unverified: str = ""

    @property
    def is_holder(self) -> bool:
        """Whether other nodes treat the node as a holder of the slot."""
        return self.state.entry.is_held and not self.unverified

    def fields(self) -> dict[str, Any]:
        """Return the fields for JSON output."""
        entry = self.state.entry
        return {
            "slot": self.slot,
            "node": self.state.node,
            "state": "waiting" if not entry.is_held else "failed" if entry.has_failed else "held",
            "position": self.position or None,
            "count": entry.count or None,
            "since": entry.since,
            "resource": entry.resource or None,
            "run": entry.run or None,
            "unverified": self.unverified or None,
        }


class NodeSlot(Struct, frozen=True, kw_only=True):
    """
    A slot that a node holds or waits for.

    Attributes:
        name: Its name.
        resource: The resource that needs it.
        has_failed: Whether the node keeps it after a failure.
        position: The node's place in the queue, from 1. 0: it holds the slot.
        holders: The nodes that hold it.
        waiting: The nodes that wait for it, in the order of the queue.
    """

    name: str
    resource: str
    has_failed: bool
    position: int
    holders: list[str]
    waiting: list[str]


def need_slots(fleet: Fleet) -> Bucket:
    """
    Return the bucket of slots.

    Raises:
        BusSetupError: The broker has no slots that these credentials can read.
    """
    if fleet.slots is None:
        raise BusSetupError("the slots of this broker cannot be read")
    return fleet.slots


async def read_slots(fleet: Fleet, names: Iterable[str] | None = None) -> list[SlotPlace]:
    """
    Return all entries by slot: first the holders by name, then the queue in its order, then unverified entries.

    Args:
        fleet: The fleet.
        names: The slots. None: all.

    Raises:
        BusSetupError: The broker has no slots that these credentials can read.
        BusError: The broker does not answer.
    """
    bucket, reader = need_slots(fleet), await make_state_reader(fleet)
    found: dict[str, list[SlotState]] = {}
    forged: dict[str, list[tuple[SlotState, str]]] = {}
    for one in await bucket.matching([">"] if names is None else [f"{name}.*" for name in names]):
        name, _, node = one.key.partition(".")
        entry = decode_entry(one.value)
        state = SlotState(node=node, revision=one.revision, written=one.created, entry=entry)
        reason = find_slot_forgery(reader, one)
        states = found.setdefault(name, [])
        if reason:
            forged.setdefault(name, []).append((state, reason))
        else:
            states.append(state)
    places = []
    for name, states in sorted(found.items()):
        holders = sorted((one for one in states if one.entry.is_held), key=lambda one: one.node)
        queue = sorted((one for one in states if not one.entry.is_held), key=lambda one: one.place)
        places += [SlotPlace(slot=name, state=one, position=0) for one in holders]
        places += [SlotPlace(slot=name, state=one, position=place) for place, one in enumerate(queue, 1)]
        for state, reason in sorted(forged.get(name, []), key=lambda pair: pair[0].node):
            places.append(SlotPlace(slot=name, state=state, position=0, unverified=reason))
    return places


async def read_slots_of(fleet: Fleet, node: str) -> list[NodeSlot]:
    """Return the slots that a node holds or waits for, if these credentials can read them."""
    if fleet.slots is None:
        return []
    try:
        keys = [key.partition(".") for key in await fleet.slots.keys()]
        names = [slot for slot, _, named in keys if named == node]
        places = await read_slots(fleet, names) if names else []
    except (BusDeniedError, BusSetupError):
        return []
    return [
        NodeSlot(
            name=one.slot,
            resource=one.state.entry.resource,
            has_failed=one.state.entry.has_failed,
            position=one.position,
            holders=[other.state.node for other in places if other.slot == one.slot and other.is_holder],
            waiting=[other.state.node for other in places if other.slot == one.slot and other.position],
        )
        for one in places
        if one.state.node == node and (one.is_holder or one.position)
    ]


def find_locks(inventory: Inventory, now: datetime) -> list[tuple[str, str, ResourceLock | Disabled]]:
    """Return the current locks in the order of the nodes, each with its node and its resource (or WHOLE_NODE)."""
    found: list[tuple[str, str, ResourceLock | Disabled]] = []
    for name, node in sorted(inventory.nodes.items()):
        if node.record is None:
            continue
        if node.record.disabled is not None:
            found.append((name, WHOLE_NODE, node.record.disabled))
        found += [(name, one.resource, one) for one in node.record.locks if one.until > now]
    return found
