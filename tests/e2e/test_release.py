"""A release: an sdist and a wheel from a clean clone, which contain their version and commit, and notes for users."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from ccm_agent.version import VERSION
from tests.e2e.test_installation import PYPI, run
from tests.support.fleet import TOP

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def test_sdist_and_wheel_of_a_clean_clone_know_their_commit(tmp_path: Path) -> None:
    try:
        urllib.request.urlopen(PYPI, timeout=10).close()
    except urllib.error.URLError as err:
        pytest.skip(f"needs PyPI: {err.reason}")
    run(["git", "clone", "--quiet", str(TOP), "clone"], tmp_path, os.environ)
    commit = run(["git", "rev-parse", "HEAD"], tmp_path / "clone", os.environ)[:8]

    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist")]
    run(build, tmp_path / "clone", os.environ)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    run([sys.executable, "-m", "venv", str(tmp_path / "venv")], tmp_path, os.environ)
    run([str(tmp_path / "venv/bin/pip"), "install", "--quiet", "--no-deps", str(wheel)], tmp_path, os.environ)

    assert sorted(path.name for path in (tmp_path / "dist").iterdir()) == [
        f"ccm_fleet-{VERSION}-py3-none-any.whl",
        f"ccm_fleet-{VERSION}.tar.gz",
    ]
    for program in ("ccm", "ccmctl"):
        printed = run([str(tmp_path / "venv/bin" / program), "--version"], tmp_path, os.environ)
        assert printed == f"{program} {VERSION} ({commit})\n"
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=tmp_path / "clone", capture_output=True, text=True, check=True
    )
    assert status.stdout == ""


def test_version_has_notes_for_users() -> None:
    assert VERSION == "1.0.0"
    assert f'version = "{VERSION}"' in (TOP / "pyproject.toml").read_text()
    assert re.search(rf"^## {re.escape(VERSION)}\b", (TOP / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert f"\n## {VERSION}\n" in (TOP / "docs/releases.md").read_text()
