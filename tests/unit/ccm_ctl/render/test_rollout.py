"""The limits of a rollout in words."""

from __future__ import annotations

import pytest

from ccm_agent.model.records.rollout_records import Budgets, Size
from ccm_ctl.render.rollout import limits

NONE = Size(count=0)


@pytest.mark.parametrize(
    ("budgets", "words"),
    [
        pytest.param(Budgets(failed=NONE), "a node fails", id="none may fail"),
        pytest.param(
            Budgets(failed=NONE, unreachable=NONE, lost=NONE),
            "a node fails, does not run it or is lost",
            id="none of three kinds is one clause",
        ),
        pytest.param(
            Budgets(failed=NONE, lost=NONE, unreachable=Size(percent=5)),
            "a node fails or is lost, or more than 5% of the nodes do not run it",
            id="a share beside it",
        ),
        pytest.param(
            Budgets(failed=Size(count=1), lost=Size(count=2)),
            "more than 1 node fails or more than 2 nodes are lost",
            id="one and several",
        ),
        pytest.param(Budgets(failed=Size(percent=100)), "", id="what cannot be exceeded is no limit"),
    ],
)
def test_limits_are_one_sentence(budgets: Budgets, words: str) -> None:
    assert limits(budgets) == words
