"""The version stands in two places, which agree."""

from __future__ import annotations

import tomllib
from pathlib import Path

from ccm_agent.version import VERSION


def test_the_packages_version_is_the_programs() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())

    assert project["project"]["version"] == VERSION
