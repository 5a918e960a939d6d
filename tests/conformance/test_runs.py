"""
The cases of `runs/`: a run of `ccm` does what the reference's does.

Where it does not, DIFFERENCES.md says why, in a line that begins with the case's id in backquotes; a line about a case that goes
as the reference's is wrong too. Cases that need a machine of their own run in the host tier.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.differences import listed_cases
from tests.support.warm_ccm import warm_ccm

HERE = Path(__file__).parent
SHARE_OF_DIFFERENCES = 0.03  # of a file's cases; masked secrets do not count
FILES = sorted(
    path.stem
    for path in (HERE / "runs").glob("*.json")
    if any(case.get("needs") != "node" for case in json.loads(path.read_text(encoding="utf-8")))
)


@pytest.fixture(scope="module")
def ccm() -> Iterator[Path]:
    with warm_ccm() as program:
        yield program


def differences() -> set[str]:
    """Cases that DIFFERENCES.md gives a reason for."""
    return listed_cases((HERE / "DIFFERENCES.md").read_text(encoding="utf-8"))


def masked_differences() -> set[str]:
    """Cases that differ only because events hold no secret: the section "Secrets in events" of DIFFERENCES.md."""
    text = (HERE / "DIFFERENCES.md").read_text(encoding="utf-8")
    return listed_cases(text.partition("\n## Secrets in events\n")[2].partition("\n## ")[0])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", FILES)
def test_runs_go_as_the_references(name: str, ccm: Path) -> None:
    path = HERE / "runs" / f"{name}.json"
    cases = json.loads(path.read_text(encoding="utf-8"))
    ids = [case["id"] for case in cases if case.get("needs") != "root" or os.geteuid() == 0]
    command = [sys.executable, HERE / "run", "--ccm", ccm, "--jobs", "2", path]

    done = subprocess.run(command, capture_output=True, text=True)

    assert done.stderr == ""
    ran = re.search(rf"^{name}\.json: (\d+) of (\d+)$", done.stdout, re.MULTILINE)
    assert ran is not None
    wrong: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        case, mark, problem = line.partition(": ")
        if mark and case in ids:
            wrong.setdefault(case, []).append(problem)
    known = differences()
    assert {case: problems for case, problems in wrong.items() if case not in known} == {}
    assert known & set(ids) <= set(wrong)
    assert len(wrong.keys() - masked_differences()) <= int(ran[2]) * SHARE_OF_DIFFERENCES
    assert int(ran[2]) - int(ran[1]) == len(wrong)
