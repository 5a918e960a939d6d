"""What `.ci/run` runs, with every program replaced by one that says how it was called."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
SYSTEM = Path("/usr/bin/python3")
IS_NEW_ENOUGH = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"


def run_ci(folder: Path, **variables: str) -> list[str]:
    """The calls of make, as an ordinary user without npm makes them."""
    programs = {"make": 'echo "$PYTHON make $*"', "id": "echo 1000"}
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    (folder / "dirname").symlink_to(str(shutil.which("dirname")))
    done = subprocess.run(
        ["/bin/bash", str(TOP / ".ci/run")],
        env={"PATH": str(folder), **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_ci_runs_everything_with_the_python_of_the_distribution(tmp_path: Path) -> None:
    if not SYSTEM.exists() or subprocess.run([SYSTEM, "-c", IS_NEW_ENOUGH], check=False).returncode:
        pytest.skip(f"{SYSTEM} is older than 3.11, or has no venv")

    assert run_ci(tmp_path) == [f"{SYSTEM} make check", f"{SYSTEM} make test TIER="]


def test_ci_takes_another_python_that_is_named(tmp_path: Path) -> None:
    named = sys.executable

    assert run_ci(tmp_path, PYTHON=named) == [f"{named} make check", f"{named} make test TIER="]
