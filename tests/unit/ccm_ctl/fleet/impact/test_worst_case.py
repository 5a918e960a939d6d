"""The worst set of nodes, against all sets."""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from ccm_ctl.fleet.impact.worst_case import CandidateNode, choose_worst

COUNTS = {"a": 1, "b": 2, "c": 1}

CANDIDATES = st.lists(
    st.tuples(st.integers(0, 4), st.frozensets(st.sampled_from(sorted(COUNTS)))), max_size=7
).map(
    lambda drawn: [
        CandidateNode(node=f"n{number}", weight=weight, slots=slots)
        for number, (weight, slots) in enumerate(drawn)
    ]
)


def may_run_together(nodes: tuple[CandidateNode, ...]) -> bool:
    """Whether each node that needs a slot can hold one of its own: every assignment is tried."""
    bound = [sorted(node.slots) for node in nodes if node.slots]
    return any(all(held.count(slot) <= COUNTS[slot] for slot in held) for held in product(*bound))


def test_nodes_without_slots_are_limited_by_the_batch() -> None:
    candidates = [CandidateNode(node=f"n{number}", weight=number) for number in range(5)]

    assert [one.node for one in choose_worst(candidates, 2, {})] == ["n4", "n3"]


def test_a_node_moves_to_another_of_its_slots_to_make_room() -> None:
    both = CandidateNode(node="both", weight=3, slots=frozenset({"a", "b"}))
    only = CandidateNode(node="only", weight=2, slots=frozenset({"a"}))
    late = CandidateNode(node="late", weight=1, slots=frozenset({"a"}))

    assert choose_worst([both, only, late], 9, {"a": 1, "b": 1}) == [both, only]


@given(candidates=CANDIDATES, at_once=st.integers(0, 7))
def test_no_other_set_of_nodes_that_can_run_together_loses_more(
    candidates: list[CandidateNode], at_once: int
) -> None:
    chosen = choose_worst(candidates, at_once, COUNTS)

    most = max(
        sum(one.weight for one in some)
        for size in range(min(at_once, len(candidates)) + 1)
        for some in combinations(candidates, size)
        if may_run_together(some)
    )
    assert may_run_together(tuple(chosen))
    assert len(chosen) <= at_once
    assert sum(one.weight for one in chosen) == most
