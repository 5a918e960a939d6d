"""The document that holds the next revision of an assignment."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ccm_agent.model.bundle import Bundle
from ccm_agent.model.wire import Assignment
from ccm_ctl.fleet.assignments import Standing
from ccm_ctl.fleet.staging import hold_back, is_first, next_number
from tests.support.controller import NOW

RUN = "2zFXzzzzzzzzzzzzzzzzzzzzzzz"
NOW_MS = int(NOW.timestamp() * 1000)


def an_assignment(digest: str, **fields: object) -> Assignment:
    return Assignment(name="web", scope="all", bundle=Bundle(digest=digest * 64, size_bytes=1), **fields)  # type: ignore[arg-type]


def standing(assignment: Assignment, *, number: int = 7, stamp: int = 7) -> Standing:
    return Standing(key="all.web", revision=3, written=1, assignment=assignment, number=number, stamp=stamp)


def test_current_revision_keeps_its_number_and_holds_the_new_one() -> None:
    old, new = an_assignment("a", targets=["role=web"]), an_assignment("b", targets=["role=web"])

    held = hold_back(standing(old), new, 100, RUN)

    assert held == replace(old, number=7, next=replace(new, number=100, rollout=RUN))
    assert not is_first(standing(held))


def test_first_revision_selects_no_node_before_it_is_released() -> None:
    new = an_assignment("b", where="Facts.a == 1")

    held = hold_back(None, new, 100, RUN)

    assert held.where == "false"
    assert held.next == replace(new, number=100, rollout=RUN)
    assert is_first(standing(held))


@pytest.mark.parametrize(
    ("before", "number"),
    [
        pytest.param(None, NOW_MS, id="the first revision"),
        pytest.param(standing(an_assignment("a")), NOW_MS, id="after an older one"),
        pytest.param(standing(an_assignment("a"), stamp=NOW_MS + 5), NOW_MS + 6, id="clock is behind"),
        pytest.param(
            standing(an_assignment("a", next=an_assignment("b", number=NOW_MS + 9))),
            NOW_MS + 10,
            id="after a rollout",
        ),
    ],
)
def test_number_of_a_new_revision_is_that_of_no_earlier_one(before: Standing | None, number: int) -> None:
    assert next_number(NOW, before) == number
