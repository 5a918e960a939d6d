"""
What we do where the reference is plainly wrong: the cases of `ours/`, which have the form of `runs/`.

The cases of `mistakes/` say what the reference does there; each has a counterpart of the same id. Those that need a machine run
in the host tier.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.answer import answer, read_question
from tests.conformance.test_answers import same
from tests.support.warm_ccm import warm_ccm

HERE = Path(__file__).parent
MISTAKES = sorted(path.stem for path in (HERE / "mistakes").glob("*.json"))


def read(folder: str, name: str) -> list[dict[str, Any]]:
    return json.loads((HERE / folder / f"{name}.json").read_text(encoding="utf-8"))


FILES = [name for name in MISTAKES if all(case.get("needs") != "node" for case in read("ours", name))]


@pytest.fixture(scope="module")
def ccm() -> Iterator[Path]:
    with warm_ccm() as program:
        yield program


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", FILES)
def test_the_mistakes_are_not_made_here(name: str, ccm: Path) -> None:
    command = [sys.executable, HERE / "run", "--ccm", ccm, "--jobs", "2", HERE / "ours" / f"{name}.json"]

    done = subprocess.run(command, capture_output=True, text=True)

    differences = [
        line for line in done.stdout.splitlines() if not line.startswith((f"{name}.json: ", "all: "))
    ]
    assert (differences, done.stderr, done.returncode) == ([], "", 0)


def test_the_mistaken_answers_are_not_given_here() -> None:
    path = HERE / "ours/answers.jsonl"
    wanted = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    theirs = [
        json.loads(line)
        for line in (HERE / "mistakes/answers.jsonl").read_text(encoding="utf-8").splitlines()
    ]

    given = [answer(read_question(json.dumps(case))) for case in wanted]

    wrong = {
        case["id"]: got
        for case, got in zip(wanted, given, strict=True)
        if not ("error" in got if "error" in case else "value" in got and same(case["value"], got["value"]))
    }
    assert wrong == {}
    assert [case["id"] for case in wanted] == [case["id"] for case in theirs]


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_has_its_counterpart(name: str) -> None:
    assert [case["id"] for case in read("ours", name)] == [case["id"] for case in read("mistakes", name)]
