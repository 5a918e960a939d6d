"""What two runs did differently."""

from __future__ import annotations

import pytest

from ccm_agent.model.wire import NodeState
from ccm_ctl.fleet.runs.node_run import NodeRun
from ccm_ctl.fleet.runs.run_diff import NodeDifference, NodeOutcome, compare_runs


@pytest.mark.parametrize("state", [NodeState.OFFLINE, NodeState.LOST, NodeState.UNREACHABLE])
def test_node_without_a_session_in_both_runs_does_not_differ(state: NodeState) -> None:
    before = {"web1": NodeRun(node="web1", state=state, reason="silent for 16 s")}
    after = {"web1": NodeRun(node="web1", state=state, reason="silent for 17 s")}

    assert compare_runs(before, after) == []


def test_node_that_refused_for_another_reason_differs() -> None:
    before = {"web1": NodeRun(node="web1", state=NodeState.REFUSED, reason="disabled")}
    after = {"web1": NodeRun(node="web1", state=NodeState.REFUSED, reason="no longer matches")}

    assert compare_runs(before, after) == [
        NodeDifference(
            node="web1",
            a=NodeOutcome(state="refused", reason="disabled"),
            b=NodeOutcome(state="refused", reason="no longer matches"),
        )
    ]
