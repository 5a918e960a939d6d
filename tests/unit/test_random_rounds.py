"""The judge of random rounds: it accepts what is so, and names what is not."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY
from tests.random_rounds.judge import (
    Event,
    check_ends,
    check_events,
    check_gate,
    check_limit,
    check_undo,
    check_work,
)
from tests.random_rounds.plan import Fault, Round, draw_round
from tests.random_rounds.play import Played


def a_round(kind: str = "apply", limit: int | None = 0, **fields: Any) -> Round:
    given: dict[str, Any] = {"nodes": ("n1", "n2", "n3"), "faults": (), "end": "abort"} | fields
    return Round(
        seed=1,
        kind=kind,
        operator="ann",
        failing=frozenset(),
        options=(),
        limit=limit,
        after="",
        **given,
    )


def a_played(marks: dict[str, int], drawn: Round | None = None) -> Played:
    return Played(round=drawn or a_round(), run="r", marks=marks)


def an_event(node: str, protocol: str, number: int, state: str = "changed") -> Event:
    return node, protocol, {"number": number, "state": state}


WHOLE = [an_event("n1", SESSION_START, 1), an_event("n1", SESSION_SUMMARY, 2)]


def test_a_seed_gives_the_same_round_again() -> None:
    assert [draw_round(seed) for seed in range(50)] == [draw_round(seed) for seed in range(50)]
    assert len({draw_round(seed).kind for seed in range(50)}) == 4


@pytest.mark.parametrize(
    ("states", "problems"),
    [
        ({"n1": "changed", "n2": "failed", "n3": "skipped"}, 0),
        ({"n1": "changed", "n2": "expected", "n3": "skipped"}, 1),
        ({"n1": "changed"}, 1),
    ],
    ids=["all ended", "one open", "two missing"],
)
def test_every_target_needs_a_documented_end(states: dict[str, str], problems: int) -> None:
    assert len(list(check_ends(a_played({}), states))) == problems


@pytest.mark.parametrize(
    ("state", "count", "is_well"),
    [
        ("changed", 1, True),
        ("changed", 0, False),
        ("changed", 2, False),
        ("skipped", 0, True),
        ("skipped", 1, False),
        ("failed", 0, True),
    ],
)
def test_work_is_done_once_where_the_run_reports_it(state: str, count: int, is_well: bool) -> None:
    assert (list(check_work(a_played({"n1": count}), {"n1": state})) == []) is is_well


@pytest.mark.parametrize(("marks", "is_well"), [(1, True), (0, False), (2, True), (3, False)])
def test_a_command_runs_on_each_node_that_carried_it_out(marks: int, is_well: bool) -> None:
    states = {"n1": "changed", "n2": "failed", "n3": "offline"}

    assert (list(check_work(a_played({"": marks}, a_round("exec")), states)) == []) is is_well


@pytest.mark.parametrize(
    ("events", "state", "is_well"),
    [
        (WHOLE, "changed", True),
        (WHOLE[:1], "changed", False),
        ([WHOLE[0], an_event("n1", SESSION_SUMMARY, 3)], "changed", False),
        (WHOLE, "lost", False),
        (WHOLE, "failed", False),
        ([], "skipped", True),
    ],
    ids=["whole", "no summary", "a gap", "a summary of a lost node", "another end", "never asked"],
)
def test_the_stream_has_what_the_run_reports(events: list[Event], state: str, is_well: bool) -> None:
    assert (list(check_events({"n1": state}, events)) == []) is is_well


def test_waves_end_at_the_limit_unless_an_operator_lets_them_go_on() -> None:
    failed = [an_event("n1", SESSION_SUMMARY, 2, "failed")]
    started = [an_event(node, SESSION_START, 1) for node in ("n2", "n3", "n4")]
    resumed = a_round(faults=(Fault(after_s=1, what="resume"),))

    assert list(check_limit(a_played({}), failed + started)) != []
    assert list(check_limit(a_played({}), started + failed)) == []
    assert list(check_limit(a_played({}, resumed), failed + started)) == []
    assert list(check_limit(a_played({}, a_round(limit=None)), failed + started)) == []


def test_nothing_starts_behind_a_gate_that_is_never_true() -> None:
    canary = [an_event("n1", SESSION_START, 1)]
    others = [an_event("n2", SESSION_START, 1)]
    gated = a_played({}, a_round(is_gated=True))

    assert list(check_gate(gated, canary)) == []
    assert list(check_gate(gated, canary + others)) != []
    assert list(check_gate(a_played({}, a_round(is_gated=True, end="promote")), canary + others)) == []
    assert list(check_gate(a_played({}), canary + others)) == []


@pytest.mark.parametrize(
    ("undone", "after", "problems"),
    [
        ({"n1": "changed"}, set(), 0),
        ({"n1": "changed"}, {"n1"}, 1),
        ({"n1": "offline"}, {"n1"}, 0),
        ({"n1": "offline"}, set(), 1),
        ({"n1": "running"}, {"n1"}, 1),
        ({}, {"n1"}, 1),
    ],
    ids=["undone", "still there", "not reached", "gone without an undo", "open", "not requested"],
)
def test_an_undo_restores_where_it_reports_it(undone: dict[str, str], after: set[str], problems: int) -> None:
    played = Played(round=a_round(), run="r", marks={}, kept=(frozenset({"n1"}), frozenset(after)), undo="u")

    assert len(list(check_undo(played, {"n1": "changed", "n2": "skipped"}, undone))) == problems


def test_a_node_that_changed_has_the_file_of_the_manifest() -> None:
    assert list(check_undo(a_played({}), {"n1": "changed"}, {"n1": "offline"})) != []
