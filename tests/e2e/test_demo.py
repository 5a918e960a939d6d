"""`make demo`: the first command that a newcomer runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fleet import TOP

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def test_demo_configures_the_web_nodes_and_stops_its_processes(tmp_path: Path) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, TOP / ".ci/demo.py"], env=environ, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "2 nodes: 2 changed" in done.stdout
    assert "2 nodes: 2 stable" in done.stdout
    assert list(tmp_path.glob("ccm-demo-*")) == []
