"""`ccmctl demo`, which is also `make demo`: the first command that a newcomer runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.mark.parametrize("options", [[], ["--secure"]], ids=["plain", "secure"])
def test_demo_configures_the_web_nodes_undoes_a_run_and_stops_its_processes(
    tmp_path: Path, options: list[str]
) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-m", "ccm_ctl", "demo", *options],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "2 nodes: 2 changed" in done.stdout
    assert "2 nodes: 2 stable" in done.stdout
    assert re.findall(r"^  db1: (.*)$", done.stdout, re.MULTILINE) == ["(no file)", "(no file)"]
    assert re.findall(r"^  web1: (.*)$", done.stdout, re.MULTILINE) == ["web1 has role=web"] * 2
    assert "$ ccmctl undo last --yes" in done.stdout
    assert re.search(r"^  http://127\.0\.0\.1:\d+/#\S+$", done.stdout, re.MULTILINE)
    assert list(tmp_path.glob("ccm-demo-*")) == []
