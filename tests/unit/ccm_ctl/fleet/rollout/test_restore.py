"""An earlier state of a rollout, with what nodes have reported since."""

from __future__ import annotations

import pytest

from ccm_agent.model.records.rollout_records import RolloutPlan, RolloutState, Wave
from ccm_agent.model.wire import NodeState
from ccm_ctl.fleet.rollout.restore import catch_up

NODES = ["web1", "web2", "web3", "web4"]
STATE = RolloutState(
    run="r",
    plan=RolloutPlan(waves=(Wave(name="canary", nodes=1, slots=1), Wave(name="rest", nodes=2, slots=1))),
    asked=1,
    is_promoted=True,
)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        pytest.param({}, (1, 0, ()), id="nothing since"),
        pytest.param({"web1": NodeState.CHANGED}, (1, 0, ()), id="the node that had been asked"),
        pytest.param({"web2": NodeState.RUNNING}, (2, 1, ()), id="a node of the next wave"),
        pytest.param({"web3": NodeState.FAILED}, (3, 1, ()), id="all nodes before it may have been asked"),
        pytest.param({"web2": NodeState.LOST, "web3": NodeState.EXPECTED}, (1, 0, ()), id="silent nodes"),
        pytest.param({"web4": NodeState.ACCEPTED}, (1, 0, ("web4",)), id="a node that came back"),
    ],
)
def test_nodes_that_have_reported_were_asked(
    ends: dict[str, NodeState], expected: tuple[int, int, tuple[str, ...]]
) -> None:
    state = catch_up(STATE, NODES, ["web4"], ends)

    assert (state.asked, state.wave, state.returned) == expected
    assert state.is_promoted is (state.wave == 0)
