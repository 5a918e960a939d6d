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


FLEET = "make bench ONLY=simulate NODES=20000 WITHIN=80 BUDGETS=no"
NO_NEWER = "unit tests with a newer Python: not run, there is none on this machine"
PRINTS_VERSION = 'case "$2" in *print*) echo 3.{} ;; esac'
"""A program that passes every check of a Python."""


def run_ci(folder: Path, pythons: dict[str, str] | None = None, **variables: str) -> list[str]:
    """What CI prints, with the calls of make, for an ordinary user without npm; `pythons` are programs by name."""
    programs = {"make": 'echo "$PYTHON make $*${LOCKED:+, locked}"', "id": "echo 1000", **(pythons or {})}
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    for name in ("dirname", "sed", "sort"):
        (folder / name).symlink_to(str(shutil.which(name)))
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

    assert run_ci(tmp_path) == [
        f"{SYSTEM} make check, locked",
        f"{SYSTEM} make test TIER=, locked",
        f"{SYSTEM} {FLEET}, locked",
        NO_NEWER,
    ]


def test_ci_takes_another_python_that_is_named(tmp_path: Path) -> None:
    named = sys.executable

    assert run_ci(tmp_path, PYTHON=named) == [
        f"{named} make check, locked",
        f"{named} make test TIER=, locked",
        f"{named} {FLEET}, locked",
        NO_NEWER,
    ]


@pytest.mark.parametrize("newest", ["3.12", "3.13"])
def test_ci_runs_unit_tests_with_the_newest_supported_python(tmp_path: Path, newest: str) -> None:
    minors = range(11, int(newest[2:]) + 1)
    pythons = {f"python3.{minor}": PRINTS_VERSION.format(minor) for minor in [*minors, 99]}
    pythons["python"] = PRINTS_VERSION.format(11)

    printed = run_ci(tmp_path, pythons, PYTHON=str(tmp_path / "python"))

    path = tmp_path / f"python{newest}"
    call = f"{tmp_path}/python make test TIER=unit PYTHON={path} VENV=.cache/newest-python, locked"
    assert printed[3:] == [f"unit tests with {path}", call]


def test_ci_repeats_no_unit_tests_with_the_same_python(tmp_path: Path) -> None:
    pythons = {"python3.11": PRINTS_VERSION.format(11), "python": PRINTS_VERSION.format(11)}

    assert run_ci(tmp_path, pythons, PYTHON=str(tmp_path / "python"))[3:] == [NO_NEWER]
