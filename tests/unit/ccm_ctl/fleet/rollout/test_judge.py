"""Which orders about a rollout a driver obeys, in whatever order a broker delivers them."""

from __future__ import annotations

import pytest

from ccm_agent.model.ids import new_id
from ccm_agent.model.rollout_records import (
    GivenOrder,
    OrderKind,
    Phase,
    RolloutOrder,
    RolloutPlan,
    RolloutState,
    Wave,
)
from ccm_ctl.fleet.rollout.judge import KEPT, contain, obey
from tests.support.controller import NOW

RUN = new_id(NOW)
NODES = ["web1", "web2"]
STATE = RolloutState(run=RUN, plan=RolloutPlan(waves=(Wave(name="all", nodes=2, slots=1),)))


def given(token: str, number: int, kind: OrderKind, halts: int | None = None) -> GivenOrder:
    return GivenOrder(
        token=token, number=number, order=RolloutOrder(run=RUN, order=kind, halts=halts), by=token
    )


@pytest.mark.parametrize("kind", [OrderKind.RESUME, OrderKind.PROMOTE])
@pytest.mark.parametrize(
    ("halts", "phase"),
    [(0, Phase.PAUSED), (1, Phase.RUNNING), (None, Phase.RUNNING)],
    ids=["before the pause", "after the pause", "of an older controller"],
)
def test_only_who_saw_a_pause_ends_it(kind: OrderKind, halts: int | None, phase: Phase) -> None:
    paused = obey(STATE, [given("ann", 1, OrderKind.PAUSE)], NODES, {})
    found = obey(paused, [given("bob", 1, kind, halts)], NODES, {})

    assert (found.phase, found.is_promoted) == (
        phase,
        kind is OrderKind.PROMOTE and phase is Phase.RUNNING,
    )
    assert found.orders == {"ann": 1, "bob": 1}


@pytest.mark.parametrize(
    ("kind", "phase"),
    [
        (OrderKind.ABORT, Phase.ABORTED),
        (OrderKind.PAUSE, Phase.PAUSED),
        (OrderKind.RESUME, Phase.RUNNING),
    ],
)
def test_a_halt_counts_that_comes_after_a_later_order_of_the_same_operator(
    kind: OrderKind, phase: Phase
) -> None:
    promoted = obey(STATE, [given("bob", 2, OrderKind.PROMOTE, 0)], NODES, {})
    assert promoted.phase is Phase.RUNNING

    found = obey(promoted, [given("bob", 1, kind, 0)], NODES, {})

    assert found.phase is phase
    assert found.orders == {"bob": 2}


def test_a_pause_counts_once() -> None:
    orders = [given("bob", 2, OrderKind.PROMOTE, 0), given("bob", 1, OrderKind.PAUSE, 0)]
    paused = obey(STATE, orders, NODES, {})
    orders.append(given("bob", 3, OrderKind.RESUME, 1))
    resumed = obey(paused, orders, NODES, {})

    assert (paused.phase, resumed.phase) == (Phase.PAUSED, Phase.RUNNING)
    assert resumed.missing == {}
    assert obey(resumed, orders, NODES, {}) == resumed


def test_numbers_that_are_left_out_do_not_fill_the_state() -> None:
    found = contain(STATE, "bob", 999_999_999)

    assert found.missing == {"bob": tuple(range(999_999_999 - KEPT, 999_999_999))}
    assert len(contain(found, "bob", 1_999_999_999).missing["bob"]) == KEPT
