"""The reference's cases about packages and services, on machines that hold nothing but the one package manager."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.differences import listed_cases

pytestmark = [pytest.mark.host, pytest.mark.timeout(600)]

CONFORMANCE = Path(__file__).resolve().parents[1] / "conformance"
COUNT = re.compile(r"^all: (\d+) of (\d+) ", re.MULTILINE)


FILES = ["package_apt", "package_dnf", "service"]


def run_in_node(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CONFORMANCE / "run-in-node"), str(Path(sys.executable).parent / "ccm")]
    env = {**os.environ, "IN_SANDBOX": "1", "CM_TESTENV": str(CONFORMANCE.parent / "testenv")}
    return subprocess.run([*command, str(file)], env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("file", FILES)
def test_the_mistakes_are_not_made_here(base: Path, file: str) -> None:
    done = run_in_node(CONFORMANCE / f"ours/{file}.json")

    assert (done.returncode, COUNT.search(done.stdout) is not None) == (0, True), done.stdout + done.stderr


@pytest.mark.parametrize("file", FILES)
def test_the_cases_are_answered_as_the_reference_does(base: Path, file: str) -> None:
    done = run_in_node(CONFORMANCE / f"runs/{file}.json")

    count = COUNT.search(done.stdout)
    assert count is not None, done.stdout + done.stderr
    assert int(count[2]) > 0
    differing = set(re.findall(r"^((?:package|service)-[\w-]+): ", done.stdout, re.MULTILINE))
    listed = listed_cases((CONFORMANCE / "DIFFERENCES.md").read_text())
    prefix = file.replace("_", "-")
    assert differing == {name for name in listed if name.startswith(prefix)}, done.stdout
