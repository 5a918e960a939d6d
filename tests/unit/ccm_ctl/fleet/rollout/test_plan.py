"""Waves and budgets from options and from a rollout file."""

from __future__ import annotations

from fnmatch import fnmatchcase

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.errors import UsageError
from ccm_agent.model.records.rollout_records import Budgets, RolloutPlan, Size, Wave
from ccm_ctl.fleet.rollout.plan import RolloutFile, RolloutOptions, plan_from_file, plan_from_options

WEB = [f"web{number}" for number in range(1, 9)]


def shape(plan: RolloutPlan) -> list[tuple[str, int, int, float]]:
    return [(wave.name, wave.nodes, wave.slots, wave.bake_s) for wave in plan.waves]


@pytest.mark.parametrize(
    ("options", "waves"),
    [
        pytest.param(RolloutOptions(batch="10"), [("wave 1", 40, 10, 0)], id="one size is a number of slots"),
        pytest.param(RolloutOptions(batch="25%"), [("wave 1", 40, 10, 0)], id="as a percentage"),
        pytest.param(
            RolloutOptions(batch="1,10%,50%"),
            [("wave 1", 1, 1, 0), ("wave 2", 4, 4, 0), ("wave 3", 20, 20, 0), ("wave 4", 15, 15, 0)],
            id="several sizes are waves, and the last repeats",
        ),
        pytest.param(
            RolloutOptions(canary=2, bake_s=600),
            [("canary", 2, 2, 600), ("wave 1", 38, 38, 0)],
            id="a canary bakes",
        ),
        pytest.param(
            RolloutOptions(canary=2, batch="5"),
            [("canary", 2, 2, 0), ("wave 1", 38, 5, 0)],
            id="a canary and slots",
        ),
        pytest.param(
            RolloutOptions(batch="20,100%", bake_s=60),
            [("wave 1", 20, 20, 60), ("wave 2", 20, 20, 0)],
            id="each wave bakes but the last",
        ),
        pytest.param(RolloutOptions(batch="500"), [("wave 1", 40, 40, 0)], id="more slots than nodes"),
    ],
)
def test_options_become_waves(options: RolloutOptions, waves: list[tuple[str, int, int, float]]) -> None:
    assert shape(plan_from_options(options, 40)) == waves


def test_the_first_failed_or_lost_node_pauses_a_rollout_without_budgets() -> None:
    plan = plan_from_options(RolloutOptions(batch="5"), 40)

    assert plan.budgets == Budgets(failed=Size(count=0), lost=Size(count=0))


def test_each_budget_can_be_given() -> None:
    options = RolloutOptions(failed="5%", unreachable="3", lost="100%", wave_failed="1", batch="5")

    plan = plan_from_options(options, 40)

    assert plan.budgets == Budgets(failed=Size(percent=5), unreachable=Size(count=3), lost=Size(percent=100))
    assert plan.waves[0].budgets == Budgets(failed=Size(count=1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(RolloutOptions(batch="0"), "--batch 0: no node would ever run", id="a batch of 0"),
        pytest.param(RolloutOptions(batch="5,"), "--batch : write a number", id="an empty wave"),
        pytest.param(
            RolloutOptions(canary=40), "--canary 40: .* nothing would be left", id="all are canaries"
        ),
        pytest.param(
            RolloutOptions(bake_s=60, batch="5"), "--bake: there is only one wave", id="nothing to bake"
        ),
        pytest.param(
            RolloutOptions(failed="40"),
            "--max-failures 40: .* could never stop it",
            id="a budget of all nodes",
        ),
        pytest.param(
            RolloutOptions(batch="2,2", wave_lost="2"),
            "--max-lost-per-wave 2: the largest wave has 2 nodes",
            id="a budget of a whole wave",
        ),
        pytest.param(RolloutOptions(batch="1,0.1%"), "more than 100 waves", id="too many waves"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: RolloutOptions, message: str) -> None:
    total = 400 if "0.1%" in options.batch else 40
    with pytest.raises(UsageError, match=message):
        plan_from_options(options, total)


@given(
    total=st.integers(1, 3000),
    parts=st.lists(
        st.one_of(st.integers(1, 500).map(str), st.integers(2, 100).map(lambda percent: f"{percent}%")),
        max_size=4,
    ),
    canary=st.integers(0, 5),
)
def test_every_node_is_in_exactly_one_wave(total: int, parts: list[str], canary: int) -> None:
    try:
        plan = plan_from_options(RolloutOptions(batch=",".join(parts), canary=canary), total)
    except UsageError:
        return

    assert plan.total == total
    assert all(0 < wave.slots <= wave.nodes for wave in plan.waves)


def from_file(text: str, nodes: list[str] = WEB) -> tuple[RolloutPlan, list[str]]:
    def matches(selector: str, node: str) -> bool:
        return fnmatchcase(node, selector)

    return plan_from_file(msgspec.yaml.decode(text, type=RolloutFile), nodes, matches)


def test_a_file_names_its_waves() -> None:
    plan, order = from_file(
        """
        max_failures: 1
        max_unreachable: 50%
        splay: 2m
        waves:
          - {name: canary, selector: "web[34]", size: 1, bake: 10m, gate: "failed == 0"}
          - {name: first half, size: 3, max_lost: 1}
          - {name: rest, batch: 50%}
        """
    )

    assert plan == RolloutPlan(
        waves=(
            Wave(name="canary", nodes=1, slots=1, bake_s=600, gate="failed == 0"),
            Wave(name="first half", nodes=3, slots=3, budgets=Budgets(lost=Size(count=1))),
            Wave(name="rest", nodes=4, slots=2),
        ),
        budgets=Budgets(failed=Size(count=1), unreachable=Size(percent=50), lost=Size(count=0)),
        splay_s=120,
    )
    assert order == ["web3", "web1", "web2", "web4", "web5", "web6", "web7", "web8"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("waves: []", "1 to 100 waves, not 0", id="no wave"),
        pytest.param("waves: [{selector: db*}, {}]", "wave 1: no node that is present", id="an empty wave"),
        pytest.param(
            "waves: [{name: a, selector: web1}, {name: b, selector: web*}]",
            "a and b overlap: both match web1",
            id="waves that overlap",
        ),
        pytest.param(
            "waves: [{}, {}]", "wave 1 and wave 2: only one wave may take", id="two waves take the rest"
        ),
        pytest.param("waves: [{selector: web1}]", "web2 and 6 more: in no wave", id="nodes in no wave"),
        pytest.param("waves: [{name: a, size: 1}, {name: a}]", "two waves are named a", id="one name twice"),
        pytest.param("waves: [{batch: 0}]", "batch of wave 1 0: no node", id="a batch of 0"),
        pytest.param("waves: [{bake: -1m}]", "bake of wave 1: -1m is negative", id="a negative time"),
        pytest.param("waves: [{max_failures: 8}]", "of wave 1 8: wave 1 has 8 nodes", id="a useless budget"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_file(text)
