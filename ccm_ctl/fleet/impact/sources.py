"""Read the data for the report: registered services, the addresses of nodes, slots and open rollouts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ccm_agent.model.errors import BusSetupError
from ccm_agent.model.records.rollout_records import RolloutPlan
from ccm_ctl.fleet.impact.changes import ManifestResources, NodeChange
from ccm_ctl.fleet.impact.placement import find_addresses, place_instances
from ccm_ctl.fleet.impact.report import ImpactReport, measure_impact, waves_of
from ccm_ctl.fleet.nodes.inventory import read_verified_facts
from ccm_ctl.fleet.nodes.nodes import Inventory, TargetSet
from ccm_ctl.fleet.nodes.slot_holders import read_slots
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.trust.node_state import VerifiedServices, format_left_out


async def make_report(
    fleet: Fleet,
    inventory: Inventory,
    resolved: TargetSet,
    rollout: tuple[RolloutPlan, list[str]] | None,
    changes: Sequence[NodeChange],
    resources: ManifestResources,
    run: str = "",
) -> ImpactReport:
    """
    Report the effects of a rollout on the registered services.

    Args:
        fleet: The fleet.
        inventory, resolved: Its nodes, and the target nodes.
        rollout: The waves, and the nodes in their order. None: all nodes run at the same time.
        changes: The nodes that would change.
        resources: The resources of the manifest, for their slots.
        run: The run of the plan. "": no plan was made.

    Raises:
        BusError: The registry or the facts cannot be read.
        BusSetupError: The broker has no registry.
    """
    if fleet.services is None:
        raise BusSetupError("the registered services of this broker cannot be read")
    entries = await VerifiedServices(fleet).stored()
    addresses = await _read_addresses(fleet, inventory) if entries else {}
    present = {name for name, node in inventory.nodes.items() if node.is_present}
    placed = await asyncio.to_thread(place_instances, entries, addresses, present)
    offline = set(resolved.offline)
    plan, order = rollout or (None, resolved.present)
    waves = waves_of(plan, order)
    in_waves = [one for one in changes if one.node not in offline]
    services = await asyncio.to_thread(measure_impact, placed, in_waves, waves, resources.counts)
    registered = {node for found in placed.values() for one in found if one.is_healthy for node in one.nodes}
    healthy = [one for found in placed.values() for one in found if one.is_healthy]
    return ImpactReport(
        run=run,
        waves=tuple(waves),
        changes=tuple(in_waves),
        unchanged=len(order) - len(in_waves),
        offline=tuple(resolved.offline),
        unregistered=tuple(one.node for one in in_waves if one.node not in registered),
        services=tuple(services),
        unplaced=tuple(sorted({one.address for one in healthy if not one.nodes})),
        slots=resources.counts,
        holders=await _read_holders(fleet, resources),
        others=await _read_rollouts(fleet),
    )


async def _read_addresses(fleet: Fleet, inventory: Inventory) -> dict[str, set[str]]:
    """
    Return the addresses of all nodes, from verified facts. Facts are large, so only a few nodes are in memory at the same time.
    """
    found: dict[str, set[str]] = {}
    async for node in read_verified_facts(fleet, inventory, inventory.nodes):
        found[node.name] = find_addresses(node.facts)
        node.gathered = {}
    return found


async def _read_holders(fleet: Fleet, resources: ManifestResources) -> dict[str, tuple[str, ...]]:
    if fleet.slots is None or not resources.counts:
        return {}
    held: dict[str, tuple[str, ...]] = {}
    left_out = []
    for place in await read_slots(fleet):
        if place.slot not in resources.counts:
            continue
        if place.is_holder:
            held[place.slot] = (*held.get(place.slot, ()), place.state.node)
        if place.unverified:
            left_out.append(f"{place.slot} of {place.state.node} ({place.unverified})")
    if left_out:
        fleet.warn(format_left_out(left_out, "entries of slots"))
    return held


async def _read_rollouts(fleet: Fleet) -> tuple[str, ...]:
    left_out: list[str] = []
    return tuple(state.run for state in await RolloutStore(fleet).open_rollouts(left_out))
