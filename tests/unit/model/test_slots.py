"""Slots: who may take one, as a pure question."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.errors import PropertyError
from ccm_agent.model.records.slots import (
    Slot,
    SlotDecision,
    SlotEntry,
    SlotState,
    decode_entry,
    judge_turn,
    parse_slot,
)

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def state(node: str, revision: int, *, held: bool = False, place: int = 0, age_s: float = 0) -> SlotState:
    entry = SlotEntry(is_held=held, place=place)
    return SlotState(node=node, revision=revision, written=NOW - timedelta(seconds=age_s), entry=entry)


def test_name_and_count_are_read() -> None:
    assert parse_slot("pg-restart/1") == Slot("pg-restart", 1)
    assert parse_slot("A_9/10000") == Slot("A_9", 10_000)


@pytest.mark.parametrize(
    "text",
    ["", "pg", "pg/", "/1", "pg/0", "pg/-1", "pg/1.5", "pg/10001", "p g/1", "a.b/1", "*/1", ">/1", "a/1\n"],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(PropertyError, match="write NAME/COUNT"):
        parse_slot(text)


@pytest.mark.parametrize(
    ("states", "turn"),
    [
        pytest.param([], SlotDecision(is_free=True), id="no node holds it"),
        pytest.param(
            [state("b", 1, held=True)], SlotDecision(is_free=False, holders=("b",)), id="another holds it"
        ),
        pytest.param(
            [state("a", 1, held=True)], SlotDecision(is_free=True), id="the node holds it from before"
        ),
        pytest.param([state("b", 1)], SlotDecision(is_free=False, ahead=1), id="another waits already"),
        pytest.param([state("a", 1), state("b", 2)], SlotDecision(is_free=True), id="the node waits first"),
        pytest.param(
            [state("b", 2), state("a", 9, place=1)], SlotDecision(is_free=True), id="renewing keeps the place"
        ),
        pytest.param(
            [state("b", 1, age_s=31), state("a", 2)],
            SlotDecision(is_free=True),
            id="a silent waiter does not count",
        ),
        pytest.param(
            [state("b", 1, held=True, age_s=299), state("a", 2)],
            SlotDecision(is_free=False, holders=("b",)),
            id="a silent holder counts until its entry expires",
        ),
    ],
)
def test_turn_of_a_node(states: list[SlotState], turn: SlotDecision) -> None:
    assert judge_turn(states, "a", 1) == turn


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=8),
    st.integers(1, 4),
)
def test_no_more_nodes_may_take_a_slot_than_are_free(entries: list[tuple[bool, int]], count: int) -> None:
    states = [state(f"n{at}", at + 1, held=held, age_s=age) for at, (held, age) in enumerate(entries)]
    holders = sum(one.entry.is_held for one in states)

    free = [
        one.node for one in states if not one.entry.is_held and judge_turn(states, one.node, count).is_free
    ]

    fresh = [
        one for one in free if next(s for s in states if s.node == one).written >= NOW - timedelta(seconds=30)
    ]
    assert not free or holders < count
    assert len(fresh) <= max(0, count - holders)


def test_entry_that_cannot_be_read_holds_the_slot() -> None:
    assert decode_entry(b"\xff{").is_held
    assert decode_entry(b'{"is_held": "no"}').is_held
    assert not decode_entry(b"{}").is_held
