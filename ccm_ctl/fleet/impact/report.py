"""Compute how many healthy instances each service loses in each wave of a rollout. This module does no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest

from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.model.records.rollout_records import Budgets, RolloutPlan
from ccm_ctl.fleet.impact.changes import NodeChange
from ccm_ctl.fleet.impact.placement import ServiceInstance, ServiceName
from ccm_ctl.fleet.impact.worst_case import CandidateNode, choose_worst

_BAD_ENDS = ("failed", "lost")
"""The budgets for nodes whose services may be down. An unreachable node is assumed to have changed nothing."""


class PlannedWave(Struct, frozen=True, kw_only=True):
    """
    A wave with its nodes.

    Attributes:
        name: Its name. "": a run without waves.
        nodes: Its nodes.
        at_once: The number of nodes that run at the same time.
        may_have_failed: The number of nodes in this wave and earlier ones that may fail or be lost without stopping the
            rollout.
    """

    name: str
    nodes: tuple[str, ...]
    at_once: int
    may_have_failed: int = 0


class WaveImpact(Struct, frozen=True, kw_only=True):
    """
    The effect of one wave on one service.

    Attributes:
        wave: The index of the wave.
        instances: Healthy instances on nodes of the wave that would change.
        at_once: The maximum number of them on nodes that are in progress at the same time.
        failed: The maximum number of further instances on nodes that may have failed by then without stopping the rollout.
        left: The number of healthy instances that then remain.
        preferred_left: The number of these with the best priority.
    """

    wave: int
    instances: int
    at_once: int
    failed: int
    left: int
    preferred_left: int


class ServiceImpact(Struct, frozen=True, kw_only=True):
    """
    The effect of a rollout on one service.

    Attributes:
        service: The service.
        instances: All of its entries, including expired ones that are still in the registry.
        healthy: The instances that are registered now and not on offline nodes.
        preferred: The healthy instances with the best priority.
        unplaced: Healthy instances at addresses that no node reports. They are assumed to remain.
        nodes: The nodes that would change and have healthy instances of it.
        others: The other nodes with healthy instances of it.
        waves: The waves with such nodes, in order.
    """

    service: ServiceName
    instances: int
    healthy: int
    preferred: int
    unplaced: int
    nodes: tuple[str, ...]
    others: tuple[str, ...]
    waves: tuple[WaveImpact, ...]

    @property
    def worst(self) -> WaveImpact:
        """The first of the waves that leave the fewest healthy instances."""
        return min(self.waves, key=lambda wave: wave.left)


class ImpactReport(Struct, frozen=True, kw_only=True):
    """
    The effects of a rollout on the services of a fleet.

    Attributes:
        run: The run of the plan. "": no plan was made.
        waves: The waves, with their nodes.
        changes: The nodes that would change.
        unchanged: The number of nodes in the desired state.
        offline: The offline nodes, which are in no wave.
        unregistered: The nodes that would change and have no healthy instance of any service.
        services: The services that lose instances, those with the greatest loss first.
        unplaced: Addresses of healthy instances that no node reports.
        slots: The maximum number of holders of each slot in the manifest.
        holders: The nodes that hold one of these slots now.
        others: The runs of other rollouts that have not ended.
    """

    run: str
    waves: tuple[PlannedWave, ...]
    changes: tuple[NodeChange, ...]
    unchanged: int
    offline: tuple[str, ...]
    unregistered: tuple[str, ...]
    services: tuple[ServiceImpact, ...]
    unplaced: tuple[str, ...] = ()
    slots: dict[str, int] = {}
    holders: dict[str, tuple[str, ...]] = {}
    others: tuple[str, ...] = ()

    @property
    def lost(self) -> list[ServiceImpact]:
        """The services that may have no healthy instances left."""
        return [one for one in self.services if one.worst.left <= 0]


def waves_of(plan: RolloutPlan | None, order: Sequence[str]) -> list[PlannedWave]:
    """Return the waves of a rollout with their nodes. Without a rollout, all nodes run at the same time."""
    if plan is None:
        return [PlannedWave(name="", nodes=tuple(order), at_once=len(order))]
    waves = []
    begin = 0
    tolerated = dict.fromkeys(_BAD_ENDS, 0)
    for wave in plan.waves:
        end = begin + wave.nodes
        for kind in _BAD_ENDS:
            tolerated[kind] += _limit(wave.budgets, kind, wave.nodes)
        failed = sum(min(tolerated[kind], _limit(plan.budgets, kind, plan.total)) for kind in _BAD_ENDS)
        waves.append(
            PlannedWave(
                name=wave.name,
                nodes=tuple(order[begin:end]),
                at_once=wave.slots,
                may_have_failed=min(failed, end),
            )
        )
        begin = end
    return waves


def measure_impact(
    placed: Mapping[ServiceName, Sequence[ServiceInstance]],
    changes: Iterable[NodeChange],
    waves: Sequence[PlannedWave],
    counts: Mapping[str, int],
) -> list[ServiceImpact]:
    """
    Return the services with healthy instances on nodes that would change, those with the greatest loss first.

    Args:
        placed: The instances of each service.
        changes: The nodes that would change.
        waves: The waves, with their nodes.
        counts: The maximum number of holders of each slot in the manifest.
    """
    slots = {one.node: one.slots for one in changes}
    of_wave = {node: index for index, wave in enumerate(waves) for node in wave.nodes if node in slots}
    by_shape: dict[object, ServiceImpact] = {}
    found = []
    for service, instances in placed.items():
        if not any(one.is_healthy and not of_wave.keys().isdisjoint(one.nodes) for one in instances):
            continue
        # one node can register any number of services, so the result is shared by services with equal instances
        shape = tuple(sorted((one.nodes, one.is_healthy, one.priority) for one in instances))
        if shape not in by_shape:
            by_shape[shape] = _measure(service, instances, slots, of_wave, waves, counts)
        like = by_shape[shape]
        found.append(replace(like, service=service))
    return sorted(found, key=lambda one: (one.worst.left > 0, one.worst.left / one.healthy, one.service))


def _limit(budgets: Budgets, kind: str, total: int) -> int:
    """Return how many nodes may have an end state before the budget is exceeded. Without a budget, all of them."""
    size = dict(budgets.items()).get(kind)
    return total if size is None else min(total, size.limit(total))


def _measure(
    service: ServiceName,
    instances: Sequence[ServiceInstance],
    slots: Mapping[str, frozenset[str]],
    of_wave: Mapping[str, int],
    waves: Sequence[PlannedWave],
    counts: Mapping[str, int],
) -> ServiceImpact:
    healthy = [one for one in instances if one.is_healthy]
    best = min(one.priority for one in healthy)
    preferred = [one for one in healthy if one.priority == best]
    touched = sorted({of_wave[node] for one in healthy for node in one.nodes if node in of_wave})
    lost = _lost(healthy, touched, slots, of_wave, waves, counts)
    first_lost = (
        lost if len(preferred) == len(healthy) else _lost(preferred, touched, slots, of_wave, waves, counts)
    )
    everywhere = {node for one in healthy for node in one.nodes}
    nodes = everywhere & of_wave.keys()
    measured = []
    for index, here, first in zip(touched, lost, first_lost, strict=True):
        measured.append(
            WaveImpact(
                wave=index,
                instances=here.instances,
                at_once=here.at_once,
                failed=here.failed,
                left=len(healthy) - here.at_once - here.failed,
                preferred_left=len(preferred) - first.at_once - first.failed,
            )
        )
    return ServiceImpact(
        service=service,
        instances=len(instances),
        healthy=len(healthy),
        preferred=len(preferred),
        unplaced=sum(not one.nodes for one in healthy),
        nodes=tuple(sorted(nodes)),
        others=tuple(sorted(everywhere - nodes)),
        waves=tuple(measured),
    )


class _WaveLoss(Struct, frozen=True):
    """Instances on changing nodes of a wave, the maximum at the same time, and the maximum on nodes that have failed."""

    instances: int
    at_once: int
    failed: int


def _lost(
    instances: Sequence[ServiceInstance],
    touched: Sequence[int],
    slots: Mapping[str, frozenset[str]],
    of_wave: Mapping[str, int],
    waves: Sequence[PlannedWave],
    counts: Mapping[str, int],
) -> list[_WaveLoss]:
    """
    Return the losses in each of the affected waves. All of the given instances are on nodes of these waves.

    If several nodes report an address, its instance is attributed to each of them, but the sum never exceeds the number of
    instances.
    """
    weights: dict[int, Counter[str]] = {}
    there: Counter[int] = Counter()
    first: Counter[int] = Counter()
    for one in instances:
        nodes = [node for node in one.nodes if node in of_wave]
        for node in nodes:
            weights.setdefault(of_wave[node], Counter())[node] += 1
        its_waves = {of_wave[node] for node in nodes}
        there.update(its_waves)
        first.update([min(its_waves)] if its_waves else [])
    found = []
    before: list[int] = []
    reached = 0
    for index in touched:
        wave, here = waves[index], weights.get(index, Counter())
        nodes_here = [CandidateNode(node=node, weight=each, slots=slots[node]) for node, each in here.items()]
        chosen = choose_worst(nodes_here, wave.at_once, counts)
        running = {one.node for one in chosen}
        before += [each for node, each in here.items() if node not in running]
        reached += first[index]
        at_once = min(sum(one.weight for one in chosen), there[index])
        failed = min(sum(nlargest(wave.may_have_failed, before)), reached - at_once)
        found.append(_WaveLoss(there[index], at_once, failed))
        before += [one.weight for one in chosen]
    return found
