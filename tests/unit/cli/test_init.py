"""`ccm init`: a first manifest that works as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from blockbuster import BlockBuster

from ccm_agent.cli import main


def test_first_manifest_passes_lint_and_is_applied(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    blockbuster: BlockBuster,
) -> None:
    blockbuster.deactivate()  # a real apply reads the working directory
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)

    assert main.run(["init", "new/first.yaml"]) == 0
    assert (
        capsys.readouterr().out
        == "new/first.yaml: written; preview the changes: ccm apply new/first.yaml --noop --diff\n"
    )
    assert main.run(["lint", "new/first.yaml"]) == 0
    assert capsys.readouterr().out == ""
    assert main.run(["fmt", "--check", "new/first.yaml"]) == 0
    assert main.run(["apply", str(tmp_path / "new/first.yaml")]) == 0
    assert (tmp_path / "new/hello.txt").read_text().startswith("Hello from ")


def test_file_that_exists_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.yaml").write_text("mine")

    assert main.run(["init"]) == 1
    assert "site.yaml: already exists; name another file" in capsys.readouterr().err
    assert (tmp_path / "site.yaml").read_text() == "mine"
