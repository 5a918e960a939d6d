"""
The cases of `answers/`: what the reference answers to a question is what is answered here.

Where it is not, DIFFERENCES.md says why, in a line that begins with the case's id in backquotes; a line about a case that is
answered as the reference does is wrong too.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.answer import answer, read_question, reply
from tests.conformance.differences import listed_cases

HERE = Path(__file__).parent
SHARE_OF_DIFFERENCES = 0.03  # of a file's cases, whatever the reasons


def same(want: Any, got: Any) -> bool:
    """Equality of answers: numbers by value, a boolean is not a number, nothing missing and nothing more."""
    if isinstance(want, bool) or isinstance(got, bool):
        return want is got
    if isinstance(want, (int, float)) and isinstance(got, (int, float)):
        return want == got or math.isclose(want, got, rel_tol=1e-12)
    if isinstance(want, dict) and isinstance(got, dict):
        return want.keys() == got.keys() and all(same(want[key], got[key]) for key in want)
    if isinstance(want, list) and isinstance(got, list):
        return len(want) == len(got) and all(map(same, want, got))
    return type(want) is type(got) and bool(want == got)


def differences() -> set[str]:
    """Cases that DIFFERENCES.md gives a reason for."""
    return listed_cases((HERE / "DIFFERENCES.md").read_text(encoding="utf-8"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("path", sorted((HERE / "answers").glob("*.jsonl")), ids=lambda path: path.stem)
def test_answers_are_the_references_own(path: Path) -> None:
    wrong = {}
    lines = [line for line in path.read_text(encoding="utf-8").split("\n") if line]
    for line in lines:
        case = json.loads(line)
        got = answer(read_question(line))
        right = "error" in got if "error" in case else "value" in got and same(case["value"], got["value"])
        if not right:
            wrong[case["id"]] = f"{got}, want {case.get('value', case.get('error'))}"

    known = differences()
    assert {name: what for name, what in wrong.items() if name not in known} == {}
    answered = {json.loads(line)["id"] for line in lines}
    assert known & answered <= set(wrong)
    assert len(wrong) <= len(lines) * SHARE_OF_DIFFERENCES


def test_a_question_that_nothing_can_be_made_of_leaves_the_others_alone() -> None:
    answers = [json.loads(reply(line)) for line in ('{"op": "expr"}', '{"op": "expr", "input": "1 + 1"}')]

    assert answers == [{"crash": "KeyError('input')"}, {"value": 2}]
