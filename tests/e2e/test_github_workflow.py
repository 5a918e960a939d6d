"""The example of a GitHub workflow plans with credentials that allow plans only, and its comment shows what would change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.fleet import TOP, a_file, manifest
from tests.support.secured import secured_fleet

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

WORKFLOW = yaml.safe_load((TOP / "deploy/github/plan.yml").read_text())
STEPS = {step.get("name", ""): step for step in WORKFLOW["jobs"]["plan"]["steps"]}


def test_workflow_comments_what_a_pull_request_would_change(tmp_path: Path) -> None:
    with secured_fleet(tmp_path / "fleet") as one:
        assert one.fleet.ctl("facts", "set", "web1", "role=web").code == 0
        creds = one.give("operator", "ci", "--plan", "all")
        (tmp_path / "site").mkdir()
        (tmp_path / "site/manifest.yaml").write_text(manifest(a_file("motd")))
        environ = {name: text for name, text in one.fleet.environ.items() if name != "CCM_CREDS"}
        environ |= {"CREDS": creds.read_text(), "RUNNER_TEMP": str(tmp_path)}
        environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"

        done = subprocess.run(
            ["bash", "-e", "-c", STEPS["Plan"]["run"]],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        denied = one.as_("ci", "apply", str(tmp_path / "site"), "-t", "role=web", "--yes")

    comment = (tmp_path / "comment.md").read_text()
    assert done.returncode == 0, comment + done.stderr
    assert "1 node: 1 would change" in comment
    assert (tmp_path / "ci.creds").stat().st_mode & 0o077 == 0
    assert denied.code != 0
