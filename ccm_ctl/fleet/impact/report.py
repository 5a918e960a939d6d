"""Which services lose how many healthy instances in each wave of a rollout; pure, from what was read and planned."""

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
"""The budgets that count nodes whose services may be down. A node that is unreachable has run nothing, as far as is known."""


class PlannedWave(Struct, frozen=True, kw_only=True):
    """
    A wave with its nodes.

    Attributes:
        name: Its name; "" for a run without waves.
        nodes: Its nodes.
        at_once: How many of them run at the same time.
        may_have_failed: How many nodes may have failed or be lost, in this wave and those before, while the rollout continues.
    """

    name: str
    nodes: tuple[str, ...]
    at_once: int
    may_have_failed: int = 0


class WaveImpact(Struct, frozen=True, kw_only=True):
    """
    What one wave does to one service.

    Attributes:
        wave: The index of the wave.
        instances: Healthy instances on nodes of the wave that would change.
        at_once: The most of them on nodes that are in progress at the same time.
        failed: The most further instances on nodes that may have failed by then, without stopping the rollout.
        left: The healthy instances that remain then.
        preferred_left: Of those with the best priority.
    """

    wave: int
    instances: int
    at_once: int
    failed: int
    left: int
    preferred_left: int


class ServiceImpact(Struct, frozen=True, kw_only=True):
    """
    What a rollout does to one service.

    Attributes:
        service: The service.
        instances: All of its entries, also expired ones that the broker still names.
        healthy: Those that are registered now, and not on nodes that are offline.
        preferred: The healthy ones with the best priority.
        unplaced: Healthy instances at addresses that no node reports; they count as not lost.
        nodes: The nodes that would change and have healthy instances of it.
        others: The other nodes that have healthy instances of it.
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
    What a rollout does to the services of a fleet.

    Attributes:
        run: The run of the plan; "": no node was asked.
        waves: The waves, with their nodes.
        changes: The nodes that would change.
        unchanged: How many nodes are in the desired state.
        offline: The nodes that are offline; they are in no wave.
        unregistered: The nodes that would change and have no healthy instance of any service.
        services: The services that lose instances, those that lose most first.
        unplaced: Addresses of healthy instances that no node reports.
        slots: How many nodes may hold each slot of the manifest.
        holders: The nodes that hold one of these slots now.
        others: The runs of other rollouts that are not over.
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
        """The services that may have no healthy instance left."""
        return [one for one in self.services if one.worst.left <= 0]


def waves_of(plan: RolloutPlan | None, order: Sequence[str]) -> list[PlannedWave]:
    """The waves of a rollout with their nodes; without a rollout, all nodes run at the same time."""
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
    The services with healthy instances on nodes that would change; those that lose most first.

    Args:
        placed: The instances of each service.
        changes: The nodes that would change.
        waves: The waves, with their nodes.
        counts: How many nodes may hold each slot of the manifest.
    """
    slots = {one.node: one.slots for one in changes}
    of_wave = {node: index for index, wave in enumerate(waves) for node in wave.nodes if node in slots}
    by_shape: dict[object, ServiceImpact] = {}
    found = []
    for service, instances in placed.items():
        if not any(one.is_healthy and not of_wave.keys().isdisjoint(one.nodes) for one in instances):
            continue
        # one node can register any number of services; those with equal instances have an equal impact
        shape = tuple(sorted((one.nodes, one.is_healthy, one.priority) for one in instances))
        if shape not in by_shape:
            by_shape[shape] = _measure(service, instances, slots, of_wave, waves, counts)
        like = by_shape[shape]
        found.append(replace(like, service=service))
    return sorted(found, key=lambda one: (one.worst.left > 0, one.worst.left / one.healthy, one.service))


def _limit(budgets: Budgets, kind: str, total: int) -> int:
    """How many nodes may end in a way before the budget is exceeded; all of them without a budget."""
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
    """Instances on nodes of a wave that change, the most of them at once, and the most on nodes that have failed."""

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
    What each of the touched waves loses; the instances are on nodes of these waves only.

    Where several nodes report an address, its instance counts for each of them, but all together not more than there are.
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
