"""What a rollout takes from services: by hand, and never less than what a simulated rollout has in progress."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from ccm_agent.model.records.rollout_records import Budgets, Phase, RolloutPlan, RolloutState, Size, Wave
from ccm_agent.model.wire import NodeState
from ccm_ctl.fleet.impact.changes import NodeChange, PlannedChange
from ccm_ctl.fleet.impact.placement import ServiceInstance, ServiceName
from ccm_ctl.fleet.impact.report import PlannedWave, ServiceImpact, WaveImpact, measure_impact, waves_of
from ccm_ctl.fleet.rollout.plan import RolloutOptions, plan_from_options
from ccm_ctl.fleet.rollout.state import step

WEB = ServiceName("prod", "http", "web")
RESTART = PlannedChange("service#nginx", True)
NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
COUNTS = {"a": 1, "b": 1}


def an_instance(*nodes: str, priority: int = 10, is_healthy: bool = True) -> ServiceInstance:
    return ServiceInstance(nodes=nodes, is_healthy=is_healthy, priority=priority, address="10.0.0.1")


def changing(*nodes: str, slot: str = "") -> list[NodeChange]:
    change = PlannedChange("exec#restart", slot=slot)
    return [NodeChange(node=node, changes=(change,)) for node in nodes]


def test_a_canary_and_a_batch_lose_what_is_in_progress() -> None:
    order = [f"web{number}" for number in range(1, 9)]
    plan = plan_from_options(RolloutOptions(canary=1, batch="25%"), len(order))

    found = measure_impact(
        {WEB: [an_instance(node) for node in order]}, changing(*order), waves_of(plan, order), {}
    )

    assert found == [
        ServiceImpact(
            service=WEB,
            instances=8,
            healthy=8,
            preferred=8,
            unplaced=0,
            nodes=tuple(order),
            others=(),
            waves=(
                WaveImpact(wave=0, instances=1, at_once=1, failed=0, left=7, preferred_left=7),
                WaveImpact(wave=1, instances=7, at_once=2, failed=0, left=6, preferred_left=6),
            ),
        )
    ]


def test_nodes_that_do_not_change_and_instances_that_are_not_healthy_do_not_count() -> None:
    order = ["web1", "web2", "web3"]
    instances = [
        an_instance("web1"),
        an_instance("web2"),
        an_instance("web3", is_healthy=False),
        an_instance(),
        an_instance("db1"),
    ]

    [one] = measure_impact({WEB: instances}, changing("web1", "web3"), waves_of(None, order), {})

    assert (one.instances, one.healthy, one.unplaced) == (5, 4, 1)
    assert (one.nodes, one.others) == (("web1",), ("db1", "web2"))
    assert one.waves == (WaveImpact(wave=0, instances=1, at_once=1, failed=0, left=3, preferred_left=3),)


def test_a_slot_of_the_manifest_limits_a_larger_batch() -> None:
    order = ["db1", "db2", "db3"]
    placed = {WEB: [an_instance(node) for node in order]}

    [one] = measure_impact(placed, changing(*order, slot="pg"), waves_of(None, order), {"pg": 1})

    assert (one.worst.at_once, one.worst.left) == (1, 2)


def test_nodes_that_may_fail_are_lost_besides_those_in_progress() -> None:
    order = [f"web{number}" for number in range(1, 7)]
    plan = plan_from_options(RolloutOptions(canary=2, batch="1", failed="2"), len(order))

    [one] = measure_impact(
        {WEB: [an_instance(node) for node in order]}, changing(*order), waves_of(plan, order), {}
    )

    assert [(wave.at_once, wave.failed, wave.left) for wave in one.waves] == [(2, 0, 4), (1, 2, 3)]


def test_what_each_wave_tolerates_adds_up_to_what_the_rollout_does() -> None:
    order = [f"web{number}" for number in range(1, 7)]
    plan = plan_from_options(RolloutOptions(batch="2,2,2", failed="2", wave_failed="1"), len(order))

    assert [wave.may_have_failed for wave in waves_of(plan, order)] == [1, 2, 2]


def test_a_node_without_a_slot_is_in_progress_besides_one_that_holds_it() -> None:
    order = ["db1", "db2", "db3"]
    changes = [*changing("db1", "db2", slot="pg"), *changing("db3")]

    [one] = measure_impact(
        {WEB: [an_instance(node) for node in order]}, changes, waves_of(None, order), {"pg": 1}
    )

    assert (one.worst.at_once, one.worst.left) == (2, 1)


def test_an_address_that_two_nodes_report_counts_for_both_and_once() -> None:
    order = ["web1", "web2"]
    plan = plan_from_options(RolloutOptions(batch="1"), 2)

    [one] = measure_impact({WEB: [an_instance(*order)]}, changing(*order), waves_of(plan, order), {})

    assert (one.healthy, one.worst.instances, one.worst.at_once, one.worst.left) == (1, 1, 1, 0)


def test_the_preferred_instances_are_counted_apart() -> None:
    order = ["web1", "web2"]
    placed = {WEB: [an_instance("web1", priority=1), an_instance("web2", priority=200)]}

    [one] = measure_impact(placed, changing("web1"), waves_of(None, order), {})

    assert (one.healthy, one.preferred, one.worst.left, one.worst.preferred_left) == (2, 1, 1, 0)


def test_a_million_services_of_one_node_are_measured_once() -> None:
    mine = [an_instance("web1")]
    placed = {ServiceName("c", "p", f"s{number}"): mine for number in range(20_000)}

    found = measure_impact(placed, changing("web1"), waves_of(None, ["web1"]), {})

    assert len(found) == 20_000
    assert len({id(one.waves) for one in found}) == 1


def test_services_that_may_be_lost_whole_come_first() -> None:
    placed = {
        ServiceName("a", "p", "s"): [an_instance("web1"), an_instance("web2")],
        ServiceName("z", "p", "s"): [an_instance("web1")],
    }

    found = measure_impact(placed, changing("web1"), waves_of(None, ["web1", "web2"]), {})

    assert [one.service.cluster for one in found] == ["z", "a"]


@st.composite
def rollouts(draw: st.DrawFn) -> tuple[RolloutPlan, list[str], list[NodeChange], list[ServiceInstance]]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    limit = st.one_of(st.none(), st.integers(0, 3).map(lambda count: Size(count=count)))
    waves = tuple(
        Wave(
            name=f"w{number}",
            nodes=size,
            slots=draw(st.integers(1, size)),
            budgets=Budgets(failed=draw(limit), lost=draw(limit)),
        )
        for number, size in enumerate(sizes)
    )
    plan = RolloutPlan(waves=waves, budgets=Budgets(failed=draw(limit), lost=draw(limit)))
    order = [f"n{number}" for number in range(sum(sizes))]
    slots = st.lists(st.sampled_from(["", *COUNTS]), min_size=1, max_size=2)
    changes = [
        NodeChange(
            node=node,
            changes=tuple(PlannedChange(f"exec#{slot}", slot=slot) for slot in draw(slots)),
        )
        for node in order
        if draw(st.booleans())
    ]
    owners = st.lists(st.sampled_from([*order, "elsewhere"]), max_size=2, unique=True)
    instances = [
        an_instance(*draw(owners), priority=draw(st.integers(1, 2)))
        for _ in range(draw(st.integers(1, 2 * len(order))))
    ]
    return plan, order, changes, instances


def disturbed(running: list[str], changes: dict[str, NodeChange], data: st.DataObject) -> list[str]:
    """Which of the running nodes are disturbed: those that need a slot only while they hold one."""
    held: dict[str, int] = {}
    found = []
    for node in data.draw(st.permutations([one for one in running if one in changes])):
        free = [slot for slot in sorted(changes[node].slots) if held.get(slot, 0) < COUNTS[slot]]
        if not changes[node].slots:
            found.append(node)
        elif free:
            slot = data.draw(st.sampled_from(free))
            held[slot] = held.get(slot, 0) + 1
            found.append(node)
    return found


@given(rollout=rollouts(), data=st.data())
@settings(max_examples=300, deadline=None)
def test_no_rollout_has_more_in_progress_than_the_worst_case(
    rollout: tuple[RolloutPlan, list[str], list[NodeChange], list[ServiceInstance]], data: st.DataObject
) -> None:
    plan, order, listed, instances = rollout
    changes = {one.node: one for one in listed}
    measured = measure_impact({WEB: instances}, listed, waves_of(plan, order), COUNTS)
    by_wave = {wave.wave: wave for one in measured for wave in one.waves}
    state = RolloutState(run="2zFXzzzzzzzzzzzzzzzzzzzzzzz", plan=plan)
    ends: dict[str, NodeState] = {}
    for _ in range(4 * len(order)):
        taken = step(state, order, ends, [], NOW)
        state = taken.state
        if state.phase is not Phase.RUNNING:
            break
        asked = order[: state.asked]
        running = [node for node in asked if node not in ends]
        now = set(disturbed(running, changes, data))
        bad = {node for node, end in ends.items() if end is not NodeState.CHANGED and node in changes}
        wave = by_wave.get(state.wave)
        in_progress = sum(not now.isdisjoint(one.nodes) for one in instances)
        lost = sum(not (now | bad).isdisjoint(one.nodes) for one in instances)
        best = min(one.priority for one in instances)
        preferred = [one for one in instances if one.priority == best]
        standing = sum((now | bad).isdisjoint(one.nodes) for one in preferred)
        if wave is not None:
            assert in_progress <= wave.at_once
            assert lost <= wave.at_once + wave.failed
            assert len(instances) - lost >= wave.left
            assert standing >= wave.preferred_left
        else:
            assert in_progress == 0
        if running:
            some = data.draw(st.lists(st.sampled_from(running), min_size=1, unique=True))
            outcome = st.sampled_from([NodeState.CHANGED, NodeState.FAILED, NodeState.LOST])
            ends |= {node: data.draw(outcome) for node in some}


def test_a_run_without_waves_has_one() -> None:
    assert waves_of(None, ["a", "b"]) == [PlannedWave(name="", nodes=("a", "b"), at_once=2)]
