"""Machines of the tests' own making: real systemd, apt and dnf."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import testenv

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def base() -> Path:
    """The file system that all machines share."""
    if why := testenv.missing():
        if os.environ.get("CM_TESTENV_REQUIRED"):
            pytest.fail(f"machines cannot run here: {why}")
        pytest.skip(why)
    return testenv.ensure_base()


@pytest.fixture(scope="session")
def lab(base: Path) -> Iterator[testenv.Lab]:
    """A bridge with machines on it."""
    with testenv.Lab(base) as made:
        yield made


@pytest.fixture(scope="session")
def program_binds() -> dict[str, str]:
    """What a machine needs of this one to run `ccm`: the virtual environment, its Python and the project, at their own places."""
    prefixes = {sys.prefix, sys.base_prefix, str(TOP)}
    return {
        path: path for path in sorted(prefixes) if not any(path.startswith(f"{other}/") for other in prefixes)
    }


@pytest.fixture(scope="session")
def program() -> str:
    """Path of `ccm`, the same here and in a machine."""
    return str(Path(sys.executable).parent / "ccm")


@pytest.fixture(scope="module")
def machine(
    lab: testenv.Lab, program_binds: dict[str, str], request: pytest.FixtureRequest
) -> Iterator[testenv.Node]:
    """One booted machine for the tests of a module."""
    name = request.module.__name__.rpartition(".")[2].removeprefix("test_").replace("_", "-")[:20]
    node = lab.create(name, program_binds).start()
    yield node
    lab.remove(node)
