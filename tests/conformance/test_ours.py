"""
What we do where the reference is plainly wrong: the cases of `ours/`, which have the form of `runs/`.

The cases of `mistakes/` say what the reference does there; each of those in a file that is here too has a counterpart of the
same id.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
CCM = Path(sys.executable).with_name("ccm")
FILES = sorted(path.stem for path in (HERE / "ours").glob("*.json"))


def read(folder: str, name: str) -> list[dict[str, Any]]:
    return json.loads((HERE / folder / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", FILES)
def test_the_mistakes_are_not_made_here(name: str) -> None:
    command = [sys.executable, HERE / "run", "--ccm", CCM, "--jobs", "2", HERE / "ours" / f"{name}.json"]

    done = subprocess.run(command, capture_output=True, text=True)

    differences = [
        line for line in done.stdout.splitlines() if not line.startswith((f"{name}.json: ", "all: "))
    ]
    assert (differences, done.stderr, done.returncode) == ([], "", 0)


@pytest.mark.parametrize("name", FILES)
def test_every_mistake_has_its_counterpart(name: str) -> None:
    assert [case["id"] for case in read("ours", name)] == [case["id"] for case in read("mistakes", name)]
